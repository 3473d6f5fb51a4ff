import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunJob } from "../dispatch/outcome.ts";
import { BYTES_HEADERS, EVENT_STREAM_HEADERS } from "../http/responses.ts";
import { type AnswerOptions, StreamedAnswer } from "../requests/answer.ts";

const LINE_END = 0x0a;

/**
 * An answer as its model server sends it: audio, or a document with images. The first
 * byte opens the 200. A failure after that cuts the connection, which every client
 * treats as an error; in an event stream it is an event.
 */
export class MediaAnswer extends StreamedAnswer {
  protected override readonly errorHead = "event: error\n";
  readonly #job: Pick<RunJob, "request">;
  #head = new MediaHeadReader();
  /** The last byte written ended an event, so that a comment may follow. */
  #hasEndedEvent = true;

  /** The request of an upload changes when that has ended. */
  constructor(options: AnswerOptions, job: Pick<RunJob, "request">) {
    super(options);
    this.#job = job;
  }

  protected override get isBetweenEvents(): boolean {
    return this.#job.request.stream && this.#hasEndedEvent;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    if (this.hasStarted) return this.#send(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return this.run.delivered(sequence);
    if (read === "invalid") return this.run.cancel("violation", unreadable());
    this.hasStarted = true;
    const { content_type, headers, status } = read.head;
    const ofFile = { "content-type": content_type, ...headers };
    const isStream = this.#job.request.stream;
    this.open(
      isStream ? EVENT_STREAM_HEADERS : { ...BYTES_HEADERS, ...ofFile },
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

/** The error for an answer of a worker that is empty or not what it should be. */
export const unreadable = () =>
  new ApiError("upstream_invalid", "The model server sent an invalid answer.");
