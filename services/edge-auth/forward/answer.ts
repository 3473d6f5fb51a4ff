/** The answer to a forwarded request: its model server's headers, and its bytes. */
import {
  type AnswerHead,
  AnswerHeadReader,
} from "@gateway/shared/forward/answer_head";
import type { ForwardName } from "@gateway/shared/forward/endpoints";
import { errorEvent, signOfLife } from "@gateway/shared/forward/envelope";
import { LastEvent } from "@gateway/shared/forward/events/last_event";
import { ApiError } from "@gateway/shared/openai/error";
import { BYTES_HEADERS, EVENT_STREAM_HEADERS } from "../http/responses.ts";
import { type AnswerOptions, StreamedAnswer } from "../requests/answer.ts";

/** The forwarded request that an answer is to. */
export interface ForwardedRequest {
  readonly endpoint: ForwardName;
  readonly stream: boolean;
  readonly model: string;
  readonly requestId: string;
  /** When it came, in Unix seconds. */
  readonly created: number;
}

/**
 * Passes on an answer as it arrives. Until its first byte was sent, a failure is an
 * HTTP error; a stream that fails later ends with an event of its dialect, unless its
 * final event has passed, and a whole answer is cut, which its length shows.
 */
export class ForwardAnswer extends StreamedAnswer {
  readonly #to: ForwardedRequest;
  #head = new AnswerHeadReader();
  readonly #lastEvent: LastEvent;
  /** The server has answered with one body, though asked for events. */
  #isWhole = false;

  constructor(options: AnswerOptions, to: ForwardedRequest) {
    super(options);
    this.#to = to;
    this.#lastEvent = new LastEvent(to.endpoint);
  }

  protected override get signOfLife(): Uint8Array {
    return new TextEncoder().encode(signOfLife(this.#to.endpoint));
  }

  protected override get isBetweenEvents(): boolean {
    return this.#to.stream && !this.#isWhole && this.#lastEvent.hasEnded;
  }

  /** Sends the next bytes. */
  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    if (this.hasStarted) return this.#send(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return this.run.delivered(sequence);
    if (read === "invalid") return this.run.cancel("violation", unreadable());
    this.#isWhole = read.head.length !== undefined;
    // It was opened as a stream while the server was silent.
    if (this.#isWhole && this.options.out.headersSent) {
      return this.run.cancel("violation", unreadable());
    }
    this.start();
    this.#open(read.head);
    this.#send(read.rest, sequence);
  }

  /** Forgets an unfinished head. */
  onRestart(): void {
    this.#head = new AnswerHeadReader();
  }

  /** Ends a stream that is complete for its client, although its worker was lost. */
  override onError(error: ApiError): void {
    const isComplete = this.isBetweenEvents && this.#lastEvent.isFinal;
    if (isComplete) this.onEnd();
    else super.onError(error);
  }

  /** Sends what the server has left without a blank line, too. */
  override onEnd(): void {
    const rest = this.options.numbers?.takeRest();
    if (rest !== undefined && rest.length > 0) this.write(rest);
    super.onEnd();
  }

  /** The event that ends a stream: the server's own, if it has sent one, or ours. */
  protected override errorEvent(error: ApiError): string {
    const { endpoint } = this.#to;
    const own = error.answer?.body ?? "";
    // Codex does not read the server's event `error`.
    const isTold = own !== "" &&
      !(endpoint === "responses" && own.startsWith("event: error"));
    if (isTold) return own;
    return own + errorEvent(endpoint, error, this.#to);
  }

  #open({ content_type: type, length, headers }: AnswerHead): void {
    if (length === undefined) {
      return this.open({ ...headers, ...EVENT_STREAM_HEADERS });
    }
    this.open({
      ...BYTES_HEADERS,
      ...headers,
      "content-type": type,
      "content-length": `${length}`,
    });
  }

  #send(bytes: Uint8Array, sequence: number): void {
    if (!this.#isWhole) this.#lastEvent.push(bytes);
    const { numbers } = this.options;
    const isNumbered = numbers !== undefined && !this.#isWhole;
    this.write(isNumbered ? numbers.numbered(bytes) : bytes, sequence);
  }
}

function unreadable(): ApiError {
  const message = "The model server sent an invalid answer.";
  return new ApiError("upstream_invalid", message);
}
