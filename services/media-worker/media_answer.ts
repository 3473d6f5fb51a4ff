import {
  encodeMediaHead,
  type MediaHead,
} from "@gateway/shared/bus/media_head";
import {
  type MediaRequest,
  SPEECH_FORMATS,
  TRANSCRIPTION_FORMATS,
} from "@gateway/shared/openai/media";
import type { AttemptDeadlines } from "@gateway/shared/upstream/attempt_deadlines";
import type { JsonObject } from "@gateway/shared/upstream/json";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import type { JobCall } from "@gateway/shared/worker/job";

/** Passed on at once: a quarter of the credit window. */
const PIECE_BYTES_MAX = 64 * 1024;

/** The media type of an answer with `stream`. */
export const EVENT_STREAM = "text/event-stream";

const encoder = new TextEncoder();

/**
 * The answer to one attempt: its head, then bytes, as fast as the client takes them.
 * Nothing is sent before the model server has made something.
 */
export class MediaAnswer {
  /** What has been made, in the unit that such requests cost: characters spoken, or images. */
  made = 0;
  head: MediaHead;
  #isOpen = false;
  readonly #progress: AttemptProgress;

  constructor(
    readonly call: JobCall,
    progress: AttemptProgress,
    request: MediaRequest,
  ) {
    this.#progress = progress;
    this.head = { content_type: mediaTypeOf(request) };
  }

  /** The model server has started to answer: nothing is repeated from now on. */
  begin(): void {
    if (this.#progress.hasSent) return;
    this.#progress.hasSent = true;
    this.#progress.onBegun();
  }

  /**
   * Passes on the next part; the first one, even if it is empty, sends the head. If the client is slow, waits for it and suspends the
   * `deadlines` of the server. Rejects when the answer is no longer needed, or the
   * attempt has ended.
   */
  async write(
    part: string | Uint8Array,
    deadlines?: AttemptDeadlines,
  ): Promise<void> {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.begin();
      this.call.write(encodeMediaHead(this.head), this.made);
    }
    const bytes = typeof part === "string" ? encoder.encode(part) : part;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES_MAX) {
      const piece = bytes.subarray(at, at + PIECE_BYTES_MAX);
      const room = this.call.write(piece, this.made);
      if (room === undefined) continue;
      deadlines?.rest();
      await room;
      this.call.signal.throwIfAborted();
      deadlines?.throwIfEnded();
    }
  }

  /** Passes on an event. */
  writeEvent(
    data: JsonObject & { type: string },
    deadlines?: AttemptDeadlines,
  ): Promise<void> {
    const { type } = data;
    const event = `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
    return this.write(event, deadlines);
  }
}

/** Follows the request, because each server names the formats differently. */
function mediaTypeOf(request: MediaRequest): string {
  if (request.stream) return EVENT_STREAM;
  switch (request.kind) {
    case "speech":
      return SPEECH_FORMATS[request.response_format];
    case "image":
    case "video":
      return "application/json";
    case "transcription":
      return TRANSCRIPTION_FORMATS[request.response_format];
  }
}
