/**
 * The two forms of an answer: events, or one body. Until something was sent, a failure
 * is an HTTP error.
 */
import { STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { JSON_HEADERS, sendBytes, sendError } from "../http/responses.ts";
import {
  type AnswerOptions,
  StreamedAnswer,
  WholeAnswer,
} from "../requests/answer.ts";
import { LineAssembler, sseFrame } from "./sse_lines.ts";
import { withCost } from "./usage_cost.ts";

const DONE = new TextEncoder().encode("data: [DONE]\n\n");

/**
 * An answer as server-sent events. While a stream has only keep-alive comments, another
 * worker may still start it.
 */
export class EventAnswer extends StreamedAnswer {
  protected override readonly last = DONE;
  #lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);

  /** Sends the lines that are whole by now. */
  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.isOver) return;
    const lines = this.#lines.push(payload);
    if (lines === null) {
      const message =
        "The model server answered with a chunk that is too long.";
      const error = new ApiError("upstream_invalid", message);
      return this.run.cancel("violation", error);
    }
    const { lease, numbers } = this.options;
    const nanosOf = lease?.nanosOf;
    const answerLines = nanosOf === undefined
      ? lines
      : withCost(lines, nanosOf);
    // Part of a line cannot be sent before the rest has arrived.
    const events = numbers === undefined
      ? sseFrame(answerLines)
      : numbers.eventsOf(answerLines);
    if (events.length > 0) {
      this.start();
      this.open();
    }
    this.write(events, sequence);
  }

  /** Forgets an unfinished line. */
  onRestart(): void {
    this.#lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  }
}

/** Makes the receiver of a whole answer, which it sends as one JSON body. */
export function bodyAnswer(options: AnswerOptions): WholeAnswer {
  const { out, lease } = options;
  return new WholeAnswer((result) => {
    if (result instanceof ApiError) return sendError(out, result);
    const headers = { ...JSON_HEADERS, ...lease?.headers };
    const nanosOf = lease?.nanosOf;
    const body = nanosOf === undefined ? result : withCost(result, nanosOf);
    sendBytes(out, body, { headers });
  }, out);
}
