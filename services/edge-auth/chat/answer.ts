/**
 * The two ways an answer reaches a client: as an event stream while it is made, or
 * whole when it is complete. Both take what the dispatcher delivers and promise an
 * HTTP response; until that promise is kept nothing has gone out, and a failure is
 * still an honest HTTP error.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { ByteSlab } from "@gateway/shared/bus/byte_slab";
import { SSE_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { Writable } from "node:stream";
import type { AnswerSink } from "../dispatch/run.ts";
import { StreamedResponse } from "../http/server.ts";
import { errorEvent } from "../http/responses.ts";
import { LineAssembler, sseFrame } from "./sse_lines.ts";

/** What an answer needs from the request it belongs to. */
export interface AnswerOptions {
  /** Headers of the 200. */
  headers: Headers;
  now: MonotonicNow;
  /** A stream without a first line is opened after this long; 0: never. */
  headMs: number;
  /** The client's socket took everything up to this frame: the worker may send more. */
  onDelivered: (sequence: number) => void;
  /** A chunk is longer than any chunk may be: the answer cannot go on. */
  onOverlongLine: () => void;
  /** The client takes nothing. */
  onAbandoned: (reason: "slow_client") => void;
  /** Calls back when the end may be said. */
  hold: (end: () => void) => void;
}

const encoder = new TextEncoder();
const DONE = encoder.encode("data: [DONE]\n\n");
const KEEP_ALIVE = encoder.encode(": keep-alive\n\n");

/**
 * An answer as server-sent events. The 200 is held until the first line, or for
 * `headMs`: proxies cut a connection that stays silent. A 200 that was opened early
 * holds keep-alive comments only, so another worker may still begin the answer.
 */
export class StreamAnswer implements AnswerSink {
  readonly response: Promise<Response>;
  readonly #options: AnswerOptions;
  readonly #settle: PromiseWithResolvers<Response>;
  readonly #slab = new ByteSlab();
  #lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  /** The 200 is on its way. */
  #isOpen = false;
  /** Where the body goes; null until the head was written. */
  #out: Writable | null = null;
  /** What came before that. */
  #waiting: Uint8Array[] = [];
  /** The last frame that waits for the client, or 0 when the socket took all. */
  #queuedSequence = 0;
  #lastSentAtMs: number;
  #hasStarted = false;
  /** Since when the client has taken nothing; null while it keeps up. */
  #blockedSinceMs: number | null = null;
  #isOver = false;
  #isCut = false;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#settle = Promise.withResolvers<Response>();
    this.response = this.#settle.promise;
    this.#lastSentAtMs = options.now();
  }

  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    if (this.#isOver) return;
    const lines = this.#lines.push(payload);
    if (lines === null) this.#options.onOverlongLine();
    else if (lines.length === 0) this.#onCut(sequence);
    else {
      this.#hasStarted = true;
      this.#enqueue(sseFrame(lines, this.#slab), sequence);
    }
  }

  onEnd(): void {
    this.#options.hold(() => this.#close(DONE));
  }

  onError(error: ApiError): void {
    this.#options.hold(() => this.#fail(error));
  }

  #fail(error: ApiError): void {
    if (this.#isOver) return;
    if (this.#isOpen) {
      this.#close(encoder.encode(errorEvent(error.toBody())));
    } else {
      this.#isOver = true;
      this.#settle.reject(error);
    }
  }

  onAbandoned(): void {
    if (this.#isOver) return;
    this.#cut();
    if (!this.#isOpen) this.#settle.resolve(clientClosedRequest());
  }

  onRestart(): void {
    this.#lines = new LineAssembler(STREAM_LIMITS.lineBytesMax);
  }

  onTick(nowMs: number): void {
    if (this.#isOver) return;
    if (!this.#isOpen) {
      const { headMs } = this.#options;
      // Nothing was sent yet: it is as old as its last sign of life.
      if (headMs > 0 && nowMs - this.#lastSentAtMs >= headMs) {
        this.#enqueue(KEEP_ALIVE, 0);
      }
    } else if (
      this.#blockedSinceMs !== null &&
      nowMs - this.#blockedSinceMs >= SSE_LIMITS.slowClientMs
    ) {
      this.#cut();
      this.#options.onAbandoned("slow_client");
    } else if (nowMs - this.#lastSentAtMs >= SSE_LIMITS.keepAliveMs) {
      this.#enqueue(KEEP_ALIVE, 0);
    }
  }

  /**
   * The rest of a cut line is needed before it can go out: as good as taken. But
   * not while something waits before it, which this would count as taken too.
   */
  #onCut(sequence: number): void {
    if (this.#blockedSinceMs === null && this.#waiting.length === 0) {
      this.#options.onDelivered(sequence);
    } else this.#queuedSequence = sequence;
  }

  #enqueue(bytes: Uint8Array, sequence: number): void {
    if (!this.#isOpen) this.#open();
    this.#lastSentAtMs = this.#options.now();
    if (sequence > 0) this.#queuedSequence = sequence;
    if (this.#out === null) this.#waiting.push(bytes);
    else if (this.#out.write(bytes)) this.#onDrained();
    else this.#blockedSinceMs ??= this.#lastSentAtMs;
  }

  /** Sends the 200, whose head goes out with the first bytes. */
  #open(): void {
    this.#isOpen = true;
    this.#settle.resolve(
      new StreamedResponse(this.#options.headers, (out) => this.#start(out)),
    );
  }

  #start(out: Writable): void {
    if (this.#isCut) return void out.destroy();
    this.#out = out;
    out.on("drain", () => this.#onDrained());
    out.cork();
    let isTaken = true;
    for (const bytes of this.#waiting) isTaken = out.write(bytes);
    this.#waiting = [];
    if (this.#isOver) out.end();
    out.uncork();
    if (isTaken) this.#onDrained();
    else this.#blockedSinceMs = this.#lastSentAtMs;
  }

  #close(last: Uint8Array): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#out === null) this.#waiting.push(last);
    else this.#out.end(last);
  }

  /** Ends it without its end: nobody reads it. */
  #cut(): void {
    this.#isOver = true;
    this.#isCut = true;
    this.#out?.destroy();
  }

  /** The socket takes more: what was queued counts as delivered. */
  #onDrained(): void {
    this.#blockedSinceMs = null;
    if (this.#queuedSequence === 0) return;
    const taken = this.#queuedSequence;
    this.#queuedSequence = 0;
    this.#options.onDelivered(taken);
  }
}

/** An answer as one JSON body. Nothing goes out before it is complete. */
export class WholeAnswer implements AnswerSink {
  readonly response: Promise<Response>;
  readonly hasStarted = false;
  readonly #options: AnswerOptions;
  readonly #settle: PromiseWithResolvers<Response>;
  #parts: Uint8Array<ArrayBuffer>[] = [];

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#settle = Promise.withResolvers<Response>();
    this.response = this.#settle.promise;
  }

  onPayload(payload: Uint8Array, sequence: number): void {
    this.#parts.push(new Uint8Array(payload));
    this.#options.onDelivered(sequence);
  }

  onEnd(): void {
    const [only] = this.#parts;
    const body = this.#parts.length === 1 && only !== undefined
      ? only
      : new Blob(this.#parts);
    const { headers, hold } = this.#options;
    hold(() =>
      this.#settle.resolve(new Response(body, { status: 200, headers }))
    );
  }

  onError(error: ApiError): void {
    this.#options.hold(() => this.#settle.reject(error));
  }

  onAbandoned(): void {
    this.#settle.resolve(clientClosedRequest());
  }

  onRestart(): void {
    this.#parts = [];
  }

  onTick(): void {}
}

/** What logs of proxies call "client closed request". */
const CLIENT_CLOSED_REQUEST = 499;

/** Lets the server finish with a request whose client is gone. */
export function clientClosedRequest(): Response {
  return new Response(null, { status: CLIENT_CLOSED_REQUEST });
}

/**
 * Holds the end of an answer until its slot is free, `holdMs` at most. A client with
 * one slot that asks again as soon as it has read the end must not be told that its
 * own last request still runs, on this edge or another.
 */
export function holdUntil(
  slotFreed: Promise<void>,
  holdMs: number,
): (end: () => void) => void {
  return (end) => {
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, holdMs);
    void Promise.race([slotFreed, late.promise]).then(() => {
      clearTimeout(timer);
      end();
    });
  };
}
