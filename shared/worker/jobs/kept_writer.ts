/**
 * Writes the answer to one offer into the log of kept answers: encrypted, in entries
 * that carry what has come since the last one, one after the other.
 *
 * Its first entry follows nothing, or entries of an earlier offer that has said no more
 * than that it writes; so of two workers that run a request only one can write,
 * whatever they know of each other. A later offer says at once that it writes, before
 * an earlier one does. The first one begins with what it has to write: when hundreds of
 * jobs come together, the worker must have accepted them all within 250 ms.
 */
import { Buffer } from "node:buffer";
import { FrameType } from "../../bus/stream/frame.ts";
import {
  type EntryFrame,
  type KeptSubject,
  openEntry,
  placeOf,
  sealEntry,
} from "../../kept/entry.ts";
import { KEPT_LIMITS } from "../../kept/limits.ts";
import { KeptLogError, type KeptLogWriter } from "../../kept/log.ts";
import { ApiError } from "../../openai/error.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import { WaitingBytes } from "./waiting_bytes.ts";

const EMPTY = new Uint8Array(0);

/** What writing one kept answer needs. */
export interface KeptWriterOptions extends KeptSubject {
  readonly offerNumber: number;
  readonly log: KeptLogWriter;
  readonly now: MonotonicNow;
  /** Runs a function after this time. */
  readonly schedule: (run: () => void, waitMs: number) => void;
  /** Runs a function when the next entry may be written. */
  readonly afterPause: (run: () => void) => void;
  /** The answer cannot be kept, or another offer writes it. Called once. */
  readonly onFailed: (error: ApiError) => void;
}

/** What ends an answer: the last entry, and its tokens. */
export interface LastEntry {
  readonly type: typeof FrameType.END | typeof FrameType.ERR;
  readonly payload: Uint8Array;
  readonly tokens: number;
}

/** Writes one answer, see the top of this file. */
export class KeptWriter {
  readonly #options: KeptWriterOptions;
  readonly #waiting = new WaitingBytes();
  #answerBytes = 0;
  #tokens = 0;
  /** Number and sequence of the last entry of the request. */
  #number = 0;
  #sequence = 0;
  #appendedAtMs: number;
  #end: LastEntry | null = null;
  #isWriting: boolean;
  #isClosed = false;
  #room: PromiseWithResolvers<void> | null = null;
  #skipPause: (() => void) | null = null;
  /** Resolves when the last entry is in the log; rejects when none can be. */
  readonly #done = Promise.withResolvers<void>();

  /** Begins to write, if there was an earlier offer: that this one does. */
  constructor(options: KeptWriterOptions) {
    this.#options = options;
    this.#appendedAtMs = options.now();
    this.#done.promise.catch(() => {}); // Nobody may wait for the end.
    this.#isWriting = options.offerNumber > 1;
    if (this.#isWriting) void this.#begin();
  }

  /** Part of the answer was handed over. */
  get hasData(): boolean {
    return this.#answerBytes > 0;
  }

  /** The end was handed over. */
  get isEnded(): boolean {
    return this.#end !== null;
  }

  /**
   * Takes a copy of the next bytes. If too many wait for the log, returns a promise
   * that resolves when there is room.
   */
  write(bytes: Uint8Array, tokens: number): Promise<void> | undefined {
    if (this.#isClosed || this.#end !== null) return undefined;
    this.#waiting.add(bytes);
    this.#answerBytes += bytes.length;
    this.#tokens = tokens;
    if (this.#answerBytes > KEPT_LIMITS.answerBytesMax) {
      this.#fail(keepFailed("The answer is too long to be kept."));
      return undefined;
    }
    this.#writeOn();
    if (this.#waiting.length <= KEPT_LIMITS.waitingBytesMax) return undefined;
    this.#room ??= Promise.withResolvers();
    return this.#room.promise;
  }

  /** Resolves when the log has everything. Rejects with the `ApiError` if it cannot. */
  end(end: LastEntry): Promise<void> {
    if (!this.#isClosed) {
      this.#end ??= end;
      this.#skipPause?.();
      this.#writeOn();
    }
    return this.#done.promise;
  }

  /** Writes no more: nobody needs the answer. */
  close(): void {
    this.#isClosed = true;
    this.#waiting.clear();
    this.#skipPause?.();
    this.#room?.resolve();
    this.#done.resolve();
  }

  /** Advances time: after a silence, says that the worker lives. */
  onTick(nowMs: number): void {
    const silentMs = nowMs - this.#appendedAtMs;
    if (silentMs < KEPT_LIMITS.signMs || this.#isWriting) return;
    if (this.#isClosed || this.#end !== null) return;
    this.#isWriting = true;
    void this.#guard(() => this.#appendSign(FrameType.BEAT));
  }

  async #begin(): Promise<void> {
    await this.#guard(async () => {
      await this.#follow();
      await this.#appendSign(FrameType.ACCEPT);
    });
  }

  /** Finds the place after the entries of earlier offers, if they may be followed. */
  async #follow(): Promise<void> {
    const { log, requestId } = this.#options;
    const last = await this.#patiently(() => log.last(requestId));
    if (last === null) return;
    const [frame] = openEntry(this.#options, last.bytes) ?? [];
    const isSign = frame?.type === FrameType.ACCEPT ||
      frame?.type === FrameType.BEAT;
    const isOlder = (frame?.offerNumber ?? Infinity) <
      this.#options.offerNumber;
    if (!isSign || !isOlder) throw new KeptLogError("taken", "another writes");
    this.#number = frame.sequence;
    this.#sequence = last.sequence;
  }

  /** At the end of this turn: the end of a whole answer comes in the same one. */
  #writeOn(): void {
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#options.schedule(() => void this.#guard(() => this.#drain()), 0);
  }

  /** Runs a part of the work, then writes on if more has come. Never rejects. */
  async #guard(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      await this.#drain();
    } catch (error) {
      this.#fail(failureOf(error));
    }
  }

  async #drain(): Promise<void> {
    const { entryBytesMax } = KEPT_LIMITS;
    while (!this.#isClosed) {
      if (this.#end !== null && this.#waiting.length <= entryBytesMax) {
        await this.#appendLast(this.#end);
      } else if (this.#waiting.length > 0) await this.#appendWaiting();
      else {
        // In the turn that has found nothing: what comes later starts anew.
        this.#isWriting = false;
        return;
      }
    }
  }

  async #appendWaiting(): Promise<void> {
    const payload = this.#waiting.first(KEPT_LIMITS.entryBytesMax);
    const { DATA: type } = FrameType;
    const appended = this.#append([{ type, tokens: this.#tokens, payload }]);
    // It is sealed by now.
    this.#waiting.drop(payload.length);
    await appended;
    this.#room?.resolve();
    this.#room = null;
    if (this.#end === null && this.#waiting.length === 0) await this.#pause();
  }

  /** Appends what waits, and the end. */
  async #appendLast(end: LastEntry): Promise<void> {
    const payload = this.#waiting.first(this.#waiting.length);
    const { DATA: type } = FrameType;
    const data = { type, tokens: this.#tokens, payload };
    await this.#append(payload.length > 0 ? [data, end] : [end]);
    this.close();
  }

  /** Says that this offer writes the answer, or that its worker lives. */
  #appendSign(type: FrameType): Promise<void> {
    return this.#append([{ type, tokens: this.#tokens, payload: EMPTY }]);
  }

  async #append(frames: readonly EntryFrame[]): Promise<void> {
    const { log, requestId, offerNumber, now } = this.#options;
    const number = this.#number + 1;
    const bytes = sealEntry(this.#options, { offerNumber, number }, frames);
    this.#sequence = await this.#patiently(async (isRepeat) => {
      try {
        return await log.append(requestId, bytes, this.#sequence);
      } catch (error) {
        if (!isTaken(error)) throw error;
        const last = await log.last(requestId);
        // Its servers were started anew, with nothing.
        if (last === null && this.#sequence > 0) {
          throw new KeptLogError("lost", error);
        }
        // The answer to an earlier call may have been lost.
        const isOurs = isRepeat && last !== null && isSame(last.bytes, bytes);
        if (!isOurs) throw error;
        return last.sequence;
      }
    });
    this.#number = number;
    this.#appendedAtMs = now();
  }

  /** Repeats a call for as long as the log may be away. */
  async #patiently<T>(call: (isRepeat: boolean) => Promise<T>): Promise<T> {
    const { now } = this.#options;
    const untilMs = now() + KEPT_LIMITS.awayMs;
    for (let isRepeat = false;; isRepeat = true) {
      try {
        return await call(isRepeat);
      } catch (error) {
        const isAway = error instanceof KeptLogError &&
          error.reason === "unavailable";
        if (!isAway || this.#isClosed || now() >= untilMs) throw error;
      }
      await this.#wait(KEPT_LIMITS.retryMs);
    }
  }

  #pause(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#skipPause = resolve;
    this.#options.afterPause(resolve);
    return promise;
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.#options.schedule(resolve, ms));
  }

  #fail(error: ApiError): void {
    if (this.#isClosed) return;
    this.#done.reject(error);
    this.close();
    this.#options.onFailed(error);
  }
}

const isTaken = (error: unknown): boolean =>
  error instanceof KeptLogError && error.reason === "taken";

const isSame = (a: Uint8Array, b: Uint8Array): boolean =>
  placeOf(a) !== null && Buffer.compare(a, b) === 0;

function failureOf(cause: unknown): ApiError {
  if (isTaken(cause)) {
    const message = "Another worker has begun to answer the request.";
    return new ApiError("worker_lost", message, { cause });
  }
  return keepFailed("The answer could not be kept.", cause);
}

function keepFailed(message: string, cause?: unknown): ApiError {
  return new ApiError("keep_failed", message, { cause });
}
