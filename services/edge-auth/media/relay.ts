/** Answers of media workers on their way to clients. */
import type { JobRequest } from "@gateway/shared/bus/job";
import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import { ApiError } from "@gateway/shared/openai/error";
import { BYTES_HEADERS, EVENT_STREAM_HEADERS } from "../http/responses.ts";
import { type AnswerOptions, StreamedAnswer } from "../requests/answer.ts";
import type { Endpoint } from "../requests/endpoint.ts";

/** Passes on what the model server makes. */
export const answerAsMade: Endpoint<JobRequest>["answer"] =
  ({ stream }) => (options) => new MediaRelay(options, stream);

/** Passes on a file, and gives way to others while its client does not read it. */
export const answerAsFile: Endpoint<JobRequest>["answer"] =
  ({ stream }) => (options) => new FileRelay(options, stream);

const LINE_END = 0x0a;

/**
 * An answer that is passed on as its worker sends it. A failure after its first byte is
 * an event, or cuts the connection.
 */
class MediaRelay extends StreamedAnswer {
  protected override readonly errorHead = "event: error\n";
  #head = new MediaHeadReader();
  /** The last byte written ended an event, so that a comment may follow. */
  #hasEndedEvent = true;

  constructor(options: AnswerOptions, readonly isStream: boolean) {
    super(options);
  }

  protected override get isBetweenEvents(): boolean {
    return this.isStream && this.#hasEndedEvent;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    if (this.hasStarted) return this.#send(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return this.run.delivered(sequence);
    if (read === "invalid") return this.run.cancel("violation", unreadable());
    this.start();
    const { content_type, headers, status } = read.head;
    const ofFile = { "content-type": content_type, ...headers };
    this.open(
      this.isStream ? EVENT_STREAM_HEADERS : { ...BYTES_HEADERS, ...ofFile },
      status,
    );
    this.#send(read.rest, sequence);
  }

  onRestart(): void {
    this.#head = new MediaHeadReader();
  }

  #send(bytes: Uint8Array, sequence: number): void {
    if (bytes.length > 0) {
      this.#hasEndedEvent = bytes.at(-1) === LINE_END &&
        (bytes.at(-2) ?? LINE_END) === LINE_END;
    }
    this.write(bytes, sequence);
  }
}

/** A file, whose client can ask for the rest of it again. */
class FileRelay extends MediaRelay {
  lateMs(nowMs: number): number {
    return this.blockedMs(nowMs);
  }
}

/** The error for an answer of a worker that is empty or not what it should be. */
export const unreadable = () =>
  new ApiError("upstream_invalid", "The model server sent an invalid answer.");
