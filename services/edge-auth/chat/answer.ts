/**
 * The two ways an answer reaches a client: as an event stream while it is generated,
 * or as one body when it is complete. Both are sinks of the dispatcher. A failure is
 * an HTTP error as long as nothing has been sent.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { Buffer } from "node:buffer";
import { SSE_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { settlesWithin } from "@gateway/shared/process/serve";
import type { StartedRun } from "../dispatch/dispatcher.ts";
import type { AnswerSink } from "../dispatch/outcome.ts";
import {
  abandon,
  type HeaderFields,
  type ResponseOutput,
  sendBytes,
  sendError,
} from "../http/responses.ts";
import { LineAssembler, sseFrame } from "./sse_lines.ts";

/** What an answer needs from the request it belongs to. */
export interface AnswerOptions {
  out: ResponseOutput;
  /** Headers of the 200. */
  headers: HeaderFields;
  now: MonotonicNow;
  /** A stream is opened after this long even without a first line; 0: never. */
  headMs: number;
  /** The run that the answer comes from. Nothing arrives before it was started. */
  run: () => StartedRun;
  /** Calls `end` when the end of the answer may be sent. */
  hold: (end: () => void) => void;
}

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
  #lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  /** The last frame that waits for the client, or 0 if the socket has taken everything. */
  #queuedSequence = 0;
  #lastSentAtMs: number;
  #hasStarted = false;
  /** When the client stopped reading; null while it keeps up. */
  #blockedSinceMs: number | null = null;
  #isOver = false;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#lastSentAtMs = options.now();
  }

  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.#isOver) return;
    const { run } = this.#options;
    const lines = this.#lines.push(payload);
    if (lines === null) {
      const message =
        "The model server answered with a chunk that is too long.";
      return run().cancel(
        "violation",
        new ApiError("upstream_invalid", message),
      );
    }
    if (lines.length > 0) {
      this.#hasStarted = true;
      this.#queuedSequence = sequence;
      this.#send(sseFrame(lines));
    } else if (this.#blockedSinceMs !== null) {
      this.#queuedSequence = sequence;
    } else {
      // Part of a line cannot be sent before the rest has arrived.
      run().delivered(sequence);
    }
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
        this.#isOver = true;
        sendError(out, error);
      }
    });
  }

  onAbandoned(): void {
    if (!this.#isOver) this.#cut();
  }

  onRestart(): void {
    this.#lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  }

  onTick(nowMs: number): void {
    if (this.#isOver) return;
    const { headMs, run, out } = this.#options;
    const silentMs = nowMs - this.#lastSentAtMs;
    if (!out.headersSent) {
      if (headMs > 0 && silentMs >= headMs) this.#send(KEEP_ALIVE);
    } else if (
      this.#blockedSinceMs !== null &&
      nowMs - this.#blockedSinceMs >= SSE_LIMITS.slowClientMs
    ) {
      this.#cut();
      run().cancel("slow_client");
    } else if (silentMs >= SSE_LIMITS.keepAliveMs) this.#send(KEEP_ALIVE);
  }

  #send(bytes: Uint8Array): void {
    const { out, now } = this.#options;
    if (!out.headersSent) this.#open();
    this.#lastSentAtMs = now();
    if (out.write(bytes)) this.#onDrained();
    else this.#blockedSinceMs ??= this.#lastSentAtMs;
  }

  /** Sends the head, together with the first bytes. */
  #open(): void {
    const { out, headers } = this.#options;
    out.writeHead(200, headers);
    out.on("drain", () => this.#onDrained());
  }

  #end(last: Uint8Array): void {
    if (this.#isOver) return;
    const { out } = this.#options;
    if (!out.headersSent) this.#open();
    this.#isOver = true;
    out.end(last);
  }

  /** Aborts the answer, because the client does not read it. */
  #cut(): void {
    this.#isOver = true;
    abandon(this.#options.out);
  }

  /** The socket accepts data again, so what was queued counts as delivered. */
  #onDrained(): void {
    this.#blockedSinceMs = null;
    if (this.#queuedSequence === 0) return;
    const taken = this.#queuedSequence;
    this.#queuedSequence = 0;
    this.#options.run().delivered(taken);
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

/**
 * Holds back the end of an answer until its slot is free, if it needs one, for at most
 * `holdMs`. A client with one slot that sends its next request as soon as it has read the end
 * must not be refused because of the previous one, on this edge or another.
 */
export function holdUntil(
  slotFreed: Promise<void> | null,
  holdMs: number,
): (end: () => void) => void {
  return (end) => {
    if (slotFreed === null) end();
    else void settlesWithin(slotFreed, holdMs).then(end);
  };
}
