/** What receives the answer of a run for a client, and when it is sent. */
import { Buffer } from "node:buffer";
import { SSE_LIMITS } from "@gateway/shared/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { StartedRun } from "../dispatch/dispatcher.ts";
import type { AnswerSink } from "../dispatch/outcome.ts";
import {
  abandon,
  EVENT_STREAM_HEADERS,
  type ResponseOutput,
  sendError,
} from "../http/responses.ts";
import type { RunLease } from "../limits/admission.ts";

export interface Answer extends AnswerSink {
  /** The run that it comes from, set once that has started. */
  run: StartedRun;
  /** Null until an upload has ended. */
  lease: RunLease | null;
  /** Nothing is sent from now on: somebody else answers the client. */
  detach(): void;
}

export interface AnswerOptions {
  out: ResponseOutput;
  lease: RunLease | null;
  now: MonotonicNow;
  /** A stream is opened after this long even without a first byte; 0: never. */
  headMs: number;
}

const NOT_STARTED: StartedRun = { delivered() {}, cancel() {} };
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

/**
 * An answer that is sent while it arrives, as fast as its client reads it: frames count
 * as delivered once the socket has taken them, which lets the worker send more. An
 * event stream gets comments while nothing arrives, since proxies cut silent connections.
 */
export abstract class StreamedAnswer implements Answer {
  run = NOT_STARTED;
  lease: RunLease | null;
  hasStarted = false;
  /** Nothing more is written. */
  protected isOver = false;
  /** The last bytes of a complete answer. */
  protected readonly last?: Uint8Array;
  /** What comes before the data of an event with an error. */
  protected readonly errorHead: string = "";
  readonly #options: AnswerOptions;
  #lastWrittenAtMs: number;
  /** The last frame that waits for the client, or 0 if the socket has taken everything. */
  #queuedSequence = 0;
  /** When the client stopped reading; null while it keeps up. */
  #blockedSinceMs: number | null = null;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.lease = options.lease;
    this.#lastWrittenAtMs = options.now();
  }

  abstract onPayload(payload: Uint8Array, sequence: number): void;
  abstract onRestart(): void;

  /** It is an event stream, and the last byte written ended an event. */
  protected get isBetweenEvents(): boolean {
    return true;
  }

  onEnd(): void {
    this.#end(this.last);
  }

  /** An HTTP error, an event of the stream, or a cut connection, which the client sees. */
  onError(error: ApiError): void {
    const { out } = this.#options;
    if (this.isOver) return;
    if (!out.headersSent) {
      this.isOver = true;
      return sendError(out, error);
    }
    if (!this.isBetweenEvents) return this.onAbandoned();
    const data = `data: ${JSON.stringify(error.toBody())}\n\n`;
    this.#end(new TextEncoder().encode(this.errorHead + data));
  }

  onAbandoned(): void {
    if (this.isOver) return;
    this.isOver = true;
    abandon(this.#options.out);
  }

  onTick(nowMs: number): void {
    if (this.isOver) return;
    const { out, headMs } = this.#options;
    const blockedMs = nowMs - (this.#blockedSinceMs ?? nowMs);
    if (blockedMs >= SSE_LIMITS.slowClientMs) {
      return this.run.cancel("slow_client");
    }
    const silentMs = nowMs - this.#lastWrittenAtMs;
    const isSilent = out.headersSent
      ? silentMs >= SSE_LIMITS.keepAliveMs
      : headMs > 0 && silentMs >= headMs;
    if (!isSilent || !this.isBetweenEvents) return;
    this.open();
    this.write(KEEP_ALIVE);
  }

  detach(): void {
    this.isOver = true;
  }

  /** Writes the head, unless it was written. */
  protected open(headers = EVENT_STREAM_HEADERS, status = 200): void {
    const { out } = this.#options;
    if (out.headersSent) return;
    out.writeHead(status, { ...headers, ...this.lease?.headers });
    out.on("drain", () => this.#onDrained());
  }

  /** Writes bytes, perhaps none, after which everything up to this frame is delivered. */
  protected write(bytes: Uint8Array, sequence = this.#queuedSequence): void {
    const { out, now } = this.#options;
    this.#queuedSequence = sequence;
    if (bytes.length > 0) {
      this.#lastWrittenAtMs = now();
      if (!out.write(bytes)) this.#blockedSinceMs ??= this.#lastWrittenAtMs;
      else this.#blockedSinceMs = null;
    }
    if (this.#blockedSinceMs === null) this.#onDrained();
  }

  #end(last?: Uint8Array): void {
    if (this.isOver) return;
    this.open();
    this.isOver = true;
    this.#options.out.end(last);
  }

  /** The socket accepts data again, so what was queued counts as delivered. */
  #onDrained(): void {
    this.#blockedSinceMs = null;
    if (this.#queuedSequence === 0) return;
    this.run.delivered(this.#queuedSequence);
    this.#queuedSequence = 0;
  }
}

/** An answer that is needed as a whole. Nothing is sent before, so until then another worker may take over. */
export class WholeAnswer implements Answer {
  readonly hasStarted = false;
  run = NOT_STARTED;
  lease: RunLease | null = null;
  readonly #onOver: (result: Uint8Array | ApiError) => void;
  readonly #out: ResponseOutput | undefined;
  #parts: Uint8Array[] = [];
  #isOver = false;

  /** `onOver` is called once, unless the client leaves. Without options there is no client. */
  constructor(
    onOver: (result: Uint8Array | ApiError) => void,
    options?: AnswerOptions,
  ) {
    this.#onOver = onOver;
    this.#out = options?.out;
    this.lease = options?.lease ?? null;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#parts.push(payload.slice());
    this.run.delivered(sequence);
  }

  onEnd(): void {
    this.#end(Buffer.concat(this.#parts));
  }

  onError(error: ApiError): void {
    this.#end(error);
  }

  onAbandoned(): void {
    if (!this.#isOver && this.#out !== undefined) abandon(this.#out);
    this.#isOver = true;
  }

  onRestart(): void {
    this.#parts = [];
  }

  onTick(): void {}

  detach(): void {
    this.#isOver = true;
  }

  #end(result: Uint8Array | ApiError): void {
    if (!this.#isOver) this.#onOver(result);
    this.#isOver = true;
  }
}
