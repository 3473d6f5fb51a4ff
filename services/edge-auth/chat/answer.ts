/** The two ways of an answer to a client: events, or one body. A failure is an HTTP error until something was sent. */
import { Buffer } from "node:buffer";
import { SSE_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { AnswerSink } from "../dispatch/outcome.ts";
import { abandon, sendBytes, sendError } from "../http/responses.ts";
import { ClientWriter } from "../requests/client_writer.ts";
import type { AnswerOptions } from "../requests/run_request.ts";
import { LineAssembler, sseFrame } from "./sse_lines.ts";

const encoder = new TextEncoder();
const DONE = encoder.encode("data: [DONE]\n\n");
const KEEP_ALIVE = encoder.encode(": keep-alive\n\n");

/**
 * An answer as server-sent events. The 200 is held back until the first line, but at
 * most for `headMs`, since proxies cut silent connections. A stream opened early has
 * only keep-alive comments, so another worker may still start the answer.
 */
export class StreamAnswer implements AnswerSink {
  readonly #options: AnswerOptions;
  readonly #writer: ClientWriter;
  #lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  #hasStarted = false;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#writer = new ClientWriter(options);
  }

  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.#writer.isOver) return;
    const lines = this.#lines.push(payload);
    if (lines === null) {
      const message =
        "The model server answered with a chunk that is too long.";
      return this.#options.run().cancel(
        "violation",
        new ApiError("upstream_invalid", message),
      );
    }
    if (lines.length > 0) {
      this.#hasStarted = true;
      this.#open();
    }
    // Part of a line cannot be sent before the rest has arrived.
    this.#writer.write(sseFrame(lines), sequence);
  }

  onEnd(): void {
    this.#options.hold(() => this.#end(DONE));
  }

  onError(error: ApiError): void {
    const { hold, out } = this.#options;
    hold(() => {
      if (out.headersSent) {
        const event = `data: ${JSON.stringify(error.toBody())}\n\n`;
        this.#end(encoder.encode(event));
      } else {
        this.#writer.isOver = true;
        sendError(out, error);
      }
    });
  }

  onAbandoned(): void {
    this.#writer.cut();
  }

  onRestart(): void {
    this.#lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  }

  onTick(nowMs: number): void {
    const writer = this.#writer;
    if (writer.isOver || writer.cutIfSlow(nowMs)) return;
    const { headMs } = this.#options;
    const silentMs = nowMs - writer.lastWrittenAtMs;
    const isSilent = writer.isOpen
      ? silentMs >= SSE_LIMITS.keepAliveMs
      : headMs > 0 && silentMs >= headMs;
    if (!isSilent) return;
    this.#open();
    writer.write(KEEP_ALIVE);
  }

  #open(): void {
    if (!this.#writer.isOpen) this.#writer.open(this.#options.headers);
  }

  #end(last: Uint8Array): void {
    if (this.#writer.isOver) return;
    this.#open();
    this.#writer.end(last);
  }
}

/** An answer as one JSON body. Nothing is sent before it is complete. */
export class WholeAnswer implements AnswerSink {
  readonly hasStarted = false;
  readonly #options: AnswerOptions;
  #parts: Uint8Array[] = [];

  constructor(options: AnswerOptions) {
    this.#options = options;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#parts.push(new Uint8Array(payload));
    this.#options.run().delivered(sequence);
  }

  onEnd(): void {
    const { out, headers, hold } = this.#options;
    hold(() => sendBytes(out, Buffer.concat(this.#parts), { headers }));
  }

  onError(error: ApiError): void {
    const { hold, out } = this.#options;
    hold(() => sendError(out, error));
  }

  onAbandoned(): void {
    abandon(this.#options.out);
  }

  onRestart(): void {
    this.#parts = [];
  }

  onTick(): void {}
}
