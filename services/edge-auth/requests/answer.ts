/** What receives the answer of a run for a client, and when it is sent. */
import { SSE_LIMITS } from "@gateway/shared/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { AnswerSink, StartedRun } from "../dispatch/outcome.ts";
import { copyOf, joined } from "../http/read_body.ts";
import {
  abandon,
  EVENT_STREAM_HEADERS,
  type ResponseOutput,
  sendError,
} from "../http/responses.ts";
import type { RunLease } from "../limits/admission.ts";
import type { EventNumbers } from "./event_numbers.ts";

/** What an answer may say of the lease of its request. */
export type AnswerLease =
  & Pick<RunLease, "headers" | "nanosOf">
  & Partial<Pick<RunLease, "reservation">>;

/** What an answer needs. */
export interface AnswerOptions {
  out: ResponseOutput;
  /** Null if the request has none. */
  lease: AnswerLease | null;
  now: MonotonicNow;
  /** A stream is opened after this long even without a first byte; 0: never. */
  streamHeadMs: number;
  /** Numbers the events of a kept answer; absent: they have no numbers. */
  numbers?: EventNumbers | undefined;
}

const NOT_STARTED: StartedRun = { delivered() {}, cancel() {} };
/**
 * A comment, without a blank line: some clients take one for the end of an event, find
 * no data in that, and break off.
 */
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n");

/** The receiver of a run's answer. */
export abstract class Answer implements AnswerSink {
  /** The response to the client; null if there is no client. */
  readonly #out: ResponseOutput | null;
  #run = NOT_STARTED;
  #hasStarted = false;
  #isOver = false;

  constructor(out: ResponseOutput | null) {
    this.#out = out;
  }

  /** Part of the answer was sent. */
  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  /** Nothing more is sent. */
  protected get isOver(): boolean {
    return this.#isOver;
  }

  /** The run that it comes from, or one that does nothing before `attach`. */
  protected get run(): StartedRun {
    return this.#run;
  }

  /** Names the run that the answer comes from; called once. */
  attach(run: StartedRun): void {
    this.#run = run;
  }

  abstract onPayload(payload: Uint8Array, sequence: number): void;
  abstract onRestart(): void;
  abstract onEnd(): void;
  abstract onError(error: ApiError): void;
  abstract onTick(nowMs: number): void;

  /** The client has disconnected. */
  onAbandoned(): void {
    if (!this.#isOver && this.#out !== null) abandon(this.#out);
    this.#isOver = true;
  }

  /** From now on the run cannot be repeated. */
  protected start(): void {
    this.#hasStarted = true;
  }

  /** Ends the answer. False if it has ended before. */
  protected finish(): boolean {
    const wasOver = this.#isOver;
    this.#isOver = true;
    return !wasOver;
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
    super(options.out);
    this.#lastWrittenAtMs = options.now();
  }

  /** It is an event stream, and the last byte written ended an event. */
  protected get isBetweenEvents(): boolean {
    return true;
  }

  /** What keeps a silent stream open. */
  protected get signOfLife(): Uint8Array {
    return KEEP_ALIVE;
  }

  /** Sends what comes after the last payload. */
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
      this.finish();
      return sendError(out, error);
    }
    if (!this.isBetweenEvents) return this.onAbandoned();
    this.#end(new TextEncoder().encode(this.errorEvent(error)));
  }

  /** The event that ends a stream which has failed. */
  protected errorEvent(error: ApiError): string {
    return `${this.errorHead}data: ${JSON.stringify(error.toBody())}\n\n`;
  }

  /** Sends a comment after a silence, and gives up on a client that does not read. */
  onTick(nowMs: number): void {
    if (this.isOver) return;
    const { out, streamHeadMs } = this.options;
    if (this.blockedMs(nowMs) >= SSE_LIMITS.slowClientMs) {
      return this.run.cancel("slow_client");
    }
    const silentMs = nowMs - this.#lastWrittenAtMs;
    const isSilent = out.headersSent
      ? silentMs >= SSE_LIMITS.keepAliveMs
      : streamHeadMs > 0 && silentMs >= streamHeadMs;
    if (!isSilent || !this.isBetweenEvents) return;
    this.open();
    this.write(this.signOfLife);
  }

  /** For how long the client has read nothing; 0: it keeps up. */
  protected blockedMs(nowMs: number): number {
    return nowMs - (this.#blockedSinceMs ?? nowMs);
  }

  /** Sends the head, unless it was sent. */
  protected open(headers = EVENT_STREAM_HEADERS, status = 200): void {
    const { out } = this.options;
    if (out.headersSent) return;
    out.sendHead(status, { ...headers, ...this.options.lease?.headers });
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
    this.finish();
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
  readonly #onOver: (result: Uint8Array | ApiError) => void;
  #parts: Uint8Array[] = [];

  /**
   * `onOver` is called once, unless the client leaves. Without `out` there is no
   * client.
   */
  constructor(
    onOver: (result: Uint8Array | ApiError) => void,
    out: ResponseOutput | null = null,
  ) {
    super(out);
    this.#onOver = onOver;
  }

  /** Keeps a part of the answer. */
  onPayload(payload: Uint8Array, sequence: number): void {
    this.#parts.push(copyOf(payload));
    this.run.delivered(sequence);
  }

  /** Hands over the answer. */
  onEnd(): void {
    if (this.finish()) this.#onOver(joined(this.#parts));
  }

  /** Hands over the error. */
  onError(error: ApiError): void {
    if (this.finish()) this.#onOver(error);
  }

  /** Forgets the parts. */
  onRestart(): void {
    this.#parts = [];
  }

  /** A whole answer has no keep-alives. */
  onTick(): void {}
}
