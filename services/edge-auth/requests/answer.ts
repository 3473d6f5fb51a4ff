/** What receives the answer of a run for a client, and when it is sent. */
import { SSE_LIMITS } from "@gateway/shared/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { StartedRun } from "../dispatch/dispatcher.ts";
import type { AnswerSink } from "../dispatch/outcome.ts";
import { copyOf, joined } from "../http/read_body.ts";
import {
  abandon,
  EVENT_STREAM_HEADERS,
  type ResponseOutput,
  sendError,
} from "../http/responses.ts";
import type { RunLease } from "../limits/admission.ts";

export interface AnswerOptions {
  out: ResponseOutput;
  lease: RunLease | null;
  now: MonotonicNow;
  /** A stream is opened after this long even without a first byte; 0: never. */
  streamHeadMs: number;
}

const NOT_STARTED: StartedRun = { delivered() {}, cancel() {} };
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

export abstract class Answer implements AnswerSink {
  hasStarted = false;
  /** The run that it comes from, set once that has started. */
  run = NOT_STARTED;
  /**
   * Nothing more is sent: the answer has ended, or somebody else answers the client.
   */
  isOver = false;

  /** Without `out` there is no client. The lease is null until an upload has ended. */
  constructor(
    readonly out: ResponseOutput | null,
    public lease: RunLease | null,
  ) {}

  abstract onPayload(payload: Uint8Array, sequence: number): void;
  abstract onRestart(): void;
  abstract onEnd(): void;
  abstract onError(error: ApiError): void;
  abstract onTick(nowMs: number): void;

  onAbandoned(): void {
    if (!this.isOver && this.out !== null) abandon(this.out);
    this.isOver = true;
  }
}

/**
 * An answer that is sent while it arrives: the worker may send more once the socket has
 * taken a frame.
 */
export abstract class StreamedAnswer extends Answer {
  /** The last bytes of a complete answer. */
  protected readonly last?: Uint8Array;
  /** What comes before the data of an event with an error. */
  protected readonly errorHead: string = "";
  #lastWrittenAtMs: number;
  /**
   * The last frame that waits for the client, or 0 if the socket has taken everything.
   */
  #queuedSequence = 0;
  /** When the client stopped reading; null while it keeps up. */
  #blockedSinceMs: number | null = null;

  constructor(readonly options: AnswerOptions) {
    super(options.out, options.lease);
    this.#lastWrittenAtMs = options.now();
  }

  /** It is an event stream, and the last byte written ended an event. */
  protected get isBetweenEvents(): boolean {
    return true;
  }

  onEnd(): void {
    this.#end(this.last);
  }

  /**
   * An HTTP error, an event of the stream, or a cut connection, which the client sees.
   */
  onError(error: ApiError): void {
    const { out } = this.options;
    if (this.isOver) return;
    if (!out.headersSent) {
      this.isOver = true;
      return sendError(out, error);
    }
    if (!this.isBetweenEvents) return this.onAbandoned();
    const data = `data: ${JSON.stringify(error.toBody())}\n\n`;
    this.#end(new TextEncoder().encode(this.errorHead + data));
  }

  onTick(nowMs: number): void {
    if (this.isOver) return;
    const { out, streamHeadMs } = this.options;
    const blockedMs = nowMs - (this.#blockedSinceMs ?? nowMs);
    if (blockedMs >= SSE_LIMITS.slowClientMs) {
      return this.run.cancel("slow_client");
    }
    const silentMs = nowMs - this.#lastWrittenAtMs;
    const isSilent = out.headersSent
      ? silentMs >= SSE_LIMITS.keepAliveMs
      : streamHeadMs > 0 && silentMs >= streamHeadMs;
    if (!isSilent || !this.isBetweenEvents) return;
    this.open();
    this.write(KEEP_ALIVE);
  }

  protected open(headers = EVENT_STREAM_HEADERS, status = 200): void {
    const { out } = this.options;
    if (out.headersSent) return;
    out.sendHead(status, { ...headers, ...this.lease?.headers });
    out.on("drain", () => this.#onDrained());
  }

  /**
   * Writes bytes, perhaps none, after which everything up to this frame is delivered.
   */
  protected write(bytes: Uint8Array, sequence = this.#queuedSequence): void {
    const { out, now } = this.options;
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
    this.options.out.end(last);
  }

  /** The socket accepts data again, so what was queued counts as delivered. */
  #onDrained(): void {
    this.#blockedSinceMs = null;
    if (this.#queuedSequence === 0) return;
    this.run.delivered(this.#queuedSequence);
    this.#queuedSequence = 0;
  }
}

/**
 * An answer that is needed as a whole. Nothing is sent before, so until then another
 * worker may take over.
 */
export class WholeAnswer extends Answer {
  #parts: Uint8Array[] = [];

  /**
   * `onOver` is called once, unless the client leaves. Without options there is no
   * client.
   */
  constructor(
    readonly onOver: (result: Uint8Array | ApiError) => void,
    options: AnswerOptions | null = null,
  ) {
    super(options?.out ?? null, options?.lease ?? null);
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#parts.push(copyOf(payload));
    this.run.delivered(sequence);
  }

  onEnd(): void {
    if (!this.isOver) this.onOver(joined(this.#parts));
    this.isOver = true;
  }

  onError(error: ApiError): void {
    if (!this.isOver) this.onOver(error);
    this.isOver = true;
  }

  onRestart(): void {
    this.#parts = [];
  }

  onTick(): void {}
}
