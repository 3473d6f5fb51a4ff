import { MediaHeadReader } from "@gateway/shared/bus/media_head";
import { SSE_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { AnswerSink } from "../dispatch/outcome.ts";
import {
  BYTES_HEADERS,
  EVENT_STREAM_HEADERS,
  type HeaderFields,
  sendError,
} from "../http/responses.ts";
import type { AnswerOptions } from "../requests/run_request.ts";
import { ClientWriter } from "../requests/client_writer.ts";

const encoder = new TextEncoder();
const KEEP_ALIVE = encoder.encode(": keep-alive\n\n");
const LINE_END = 0x0a;

/**
 * An answer as its model server sends it: audio, or a document with images. The first
 * byte opens the 200. A failure after that cuts the connection, which every client
 * treats as an error; in an event stream it is an event.
 */
export class MediaAnswer implements AnswerSink {
  readonly #options: AnswerOptions;
  readonly #isStream: () => boolean;
  readonly #writer: ClientWriter;
  #head = new MediaHeadReader();
  #hasStarted = false;
  /** The last byte written ended an event, so that a comment may follow. */
  #isBetweenEvents = true;

  /** `isStream`: the client asked for server-sent events. */
  constructor(options: AnswerOptions, isStream: () => boolean) {
    this.#options = options;
    this.#isStream = isStream;
    this.#writer = new ClientWriter(options);
  }

  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  /** Nothing touches the response from now on. */
  detach(): void {
    this.#writer.isOver = true;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.#writer.isOver) return;
    const { run } = this.#options;
    if (this.#hasStarted) return this.#send(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return run().delivered(sequence);
    if (read === "invalid") {
      const message = "The model server sent an invalid answer.";
      const error = new ApiError("upstream_invalid", message);
      return run().cancel("violation", error);
    }
    this.#hasStarted = true;
    const { content_type, headers, status } = read.head;
    this.#open({ "content-type": content_type, ...headers }, status);
    this.#send(read.rest, sequence);
  }

  onEnd(): void {
    this.#options.hold(() => this.#writer.end());
  }

  onError(error: ApiError): void {
    const { hold, out } = this.#options;
    hold(() => {
      if (this.#writer.isOver) return;
      if (!out.headersSent) {
        this.#writer.isOver = true;
        return sendError(out, error);
      }
      if (!this.#isStream() || !this.#isBetweenEvents) {
        return this.#writer.cut();
      }
      const event = `event: error\ndata: ${JSON.stringify(error.toBody())}\n\n`;
      this.#writer.end(encoder.encode(event));
    });
  }

  onAbandoned(): void {
    this.#writer.cut();
  }

  onRestart(): void {
    this.#head = new MediaHeadReader();
  }

  onTick(nowMs: number): void {
    const writer = this.#writer;
    if (writer.isOver || writer.cutIfSlow(nowMs) || !this.#isStream()) return;
    const { headMs } = this.#options;
    const silentMs = nowMs - writer.lastWrittenAtMs;
    const isSilent = writer.isOpen
      ? silentMs >= SSE_LIMITS.keepAliveMs
      : headMs > 0 && silentMs >= headMs;
    if (!isSilent || !this.#isBetweenEvents) return;
    this.#open({});
    writer.write(KEEP_ALIVE);
  }

  #open(given: HeaderFields, status = 200): void {
    if (this.#writer.isOpen) return;
    const { headers } = this.#options;
    const own = this.#isStream()
      ? EVENT_STREAM_HEADERS
      : { ...BYTES_HEADERS, ...given };
    this.#writer.open({ ...own, ...headers }, status);
  }

  #send(bytes: Uint8Array, sequence: number): void {
    if (bytes.length > 0) {
      this.#isBetweenEvents = bytes.at(-1) === LINE_END &&
        (bytes.at(-2) ?? LINE_END) === LINE_END;
    }
    this.#writer.write(bytes, sequence);
  }
}
