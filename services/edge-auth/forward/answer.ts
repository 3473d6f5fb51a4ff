/** The answer to a forwarded request: its model server's headers, and its bytes. */
import { AnswerHeadReader } from "@gateway/shared/forward/answer_head";
import type { AnswerHead } from "@gateway/shared/forward/answer_head";
import { ApiError } from "@gateway/shared/openai/error";
import { BYTES_HEADERS } from "../http/responses.ts";
import { type AnswerOptions, StreamedAnswer } from "../requests/answer.ts";

/**
 * Passes on an answer as it arrives. Until its first byte was sent, a failure is an HTTP
 * error; a whole answer that fails later is cut, which its length shows.
 */
export class ForwardAnswer extends StreamedAnswer {
  #head = new AnswerHeadReader();

  constructor(options: AnswerOptions, readonly isStream: boolean) {
    super(options);
  }

  protected override get isBetweenEvents(): boolean {
    return this.isStream;
  }

  /** Sends the next bytes. */
  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    if (this.hasStarted) return this.write(payload, sequence);
    const read = this.#head.push(payload);
    if (read === null) return this.run.delivered(sequence);
    if (read === "invalid") return this.run.cancel("violation", unreadable());
    this.start();
    this.#open(read.head);
    this.write(read.rest, sequence);
  }

  /** Forgets an unfinished head. */
  onRestart(): void {
    this.#head = new AnswerHeadReader();
  }

  #open({ content_type: type, length, headers }: AnswerHead): void {
    this.open({
      ...BYTES_HEADERS,
      ...headers,
      "content-type": type,
      ...length !== undefined && { "content-length": `${length}` },
    });
  }
}

function unreadable(): ApiError {
  const message = "The model server sent an invalid answer.";
  return new ApiError("upstream_invalid", message);
}
