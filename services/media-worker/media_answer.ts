import type { MediaHead } from "@gateway/shared/bus/media_head";
import { encodeMediaHead } from "@gateway/shared/bus/media_head";
import type { MediaRequest } from "@gateway/shared/openai/media";
import type { AttemptDeadlines } from "@gateway/shared/upstream/attempt_deadlines";
import type { JsonObject } from "@gateway/shared/upstream/json";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import type { JobCall } from "@gateway/shared/worker/job";

/** Bytes passed on at a time: a quarter of the credit window. */
const PIECE_BYTES_MAX = 64 * 1024;

/** The media type of an answer with `stream`. */
export const EVENT_STREAM = "text/event-stream";

const encoder = new TextEncoder();

/** The answer to one attempt: its head, then bytes. Nothing is sent before the model server has made something. */
export class MediaAnswer {
  /** What has been made, in the unit that such requests cost. */
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
   * Passes on the next part; the first one, even if it is empty, sends the head. While
   * a slow client is waited for, the `deadlines` of the server rest. Rejects when the
   * answer is no longer needed, or the attempt has ended.
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

  writeEvent(
    event: JsonObject & { type: string },
    deadlines?: AttemptDeadlines,
  ): Promise<void> {
    const data = JSON.stringify(event);
    return this.write(`event: ${event.type}\ndata: ${data}\n\n`, deadlines);
  }
}

/** Follows the request, because each server names the formats differently. */
function mediaTypeOf(request: MediaRequest): string {
  if (request.stream) return EVENT_STREAM;
  switch (request.kind) {
    case "speech":
      return request.response_format === "mp3"
        ? "audio/mpeg"
        : `audio/${request.response_format}`;
    case "transcription":
      return TRANSCRIPTION_TYPES[request.response_format];
    default:
      return "application/json";
  }
}

const TRANSCRIPTION_TYPES = {
  json: "application/json; charset=utf-8",
  text: "text/plain; charset=utf-8",
  srt: "application/x-subrip; charset=utf-8",
  verbose_json: "application/json; charset=utf-8",
  vtt: "text/vtt; charset=utf-8",
};
