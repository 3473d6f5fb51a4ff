/** Reads a kept answer from the log, from its first frame to its last. */
import { type Frame, FrameType } from "@gateway/shared/bus/stream/frame";
import { parseErr } from "@gateway/shared/bus/stream/payloads";
import { openEntry } from "@gateway/shared/kept/entry";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import {
  KeptLogError,
  type KeptLogReader,
  type LogEntry,
} from "@gateway/shared/kept/log";
import { ApiError, isErrorCode } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { KeptEnd, KeptRecord, KeptRecords } from "./records.ts";

/** Runs a function after this time, unless what it returns is called before. */
export type Schedule = (run: () => void, waitMs: number) => () => void;

/** What reading one kept answer needs. */
export interface ReadingOptions {
  readonly record: KeptRecord;
  readonly log: Pick<
    KeptLogReader,
    "next" | "nextOfLeader" | "last" | "watch"
  >;
  readonly records: Pick<KeptRecords, "find">;
  readonly now: MonotonicNow;
  readonly schedule: Schedule;
}

/** A part of an answer, or its end. */
export type KeptPart =
  | {
    readonly type: "data";
    readonly payload: Uint8Array;
    /** The number of its entry. */
    readonly number: number;
  }
  | { readonly type: "end" };

/**
 * One reader of an answer. The log alone says what the answer is: what a watch hears
 * may have been refused there, so it only says when to look.
 */
export class KeptReading {
  readonly #options: ReadingOptions;
  readonly #stopWatching: () => void;
  /** Frames that were read and are not handed over yet. */
  #frames: Frame[] = [];
  #fromSequence = 1;
  #number = 0;
  #entryAtMs: number;
  #askedAtMs: number;
  /** When it was last known what has become of the answer. */
  #knownAtMs: number;
  #lookMs: number = KEPT_LIMITS.lookMs;
  #hasNews = false;
  #isClosed = false;
  #wake: (() => void) | null = null;
  readonly #closing = Promise.withResolvers<void>();

  constructor(options: ReadingOptions) {
    this.#options = options;
    this.#entryAtMs = options.now();
    this.#askedAtMs = this.#entryAtMs;
    this.#knownAtMs = this.#entryAtMs;
    const { log, record } = options;
    this.#stopWatching = log.watch(record.requestId, () => this.#onNews());
  }

  /** Ends it; a call of `next` that waits resolves with null. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stopWatching();
    this.#wake?.();
    this.#closing.resolve();
  }

  /** Calls a function once it is closed. */
  onClosed(run: () => void): void {
    void this.#closing.promise.then(run);
  }

  /**
   * The next part, once there is one; null: the reading was closed. Throws the
   * `ApiError` with which the answer has failed, or cannot be read.
   */
  async next(): Promise<KeptPart | null> {
    while (!this.#isClosed) {
      const frame = this.#frames.shift();
      const part = frame === undefined ? null : partOf(frame);
      if (part !== null) return part;
      if (frame === undefined) await this.#readOn();
    }
    return null;
  }

  /** Reads the next entry, or waits a moment for it. */
  async #readOn(): Promise<void> {
    const frames = await this.#look();
    if (frames === null) await this.#wait();
    else this.#frames = frames;
  }

  async #look(): Promise<Frame[] | null> {
    const { log, record: { requestId } } = this.#options;
    this.#hasNews = false;
    const from = this.#fromSequence;
    const entry = await this.#patiently(() => log.next(requestId, from));
    if (entry === null) return null;
    const frames = this.#framesOf(entry);
    if (frames !== null) return this.#take(entry, frames);
    // A server that was started a moment ago may lack some, the leader has them.
    const sure = await this.#patiently(() => log.nextOfLeader(requestId, from));
    if (sure === null) return null;
    const itsFrames = this.#framesOf(sure);
    // Without the entries between, it would be another answer.
    if (itsFrames === null) throw lost();
    return this.#take(sure, itsFrames);
  }

  /** Calls the log; null, too, while it is away for a moment. */
  async #patiently(
    call: () => Promise<LogEntry | null>,
  ): Promise<LogEntry | null> {
    try {
      return await call();
    } catch (error) {
      const isAway = error instanceof KeptLogError;
      const silentMs = this.#options.now() - this.#entryAtMs;
      if (isAway && silentMs < KEPT_LIMITS.awayMs) return null;
      throw isAway ? logAway(error) : error;
    }
  }

  /** The frames of an entry; null if it is not the one that follows. */
  #framesOf({ bytes }: LogEntry): Frame[] | null {
    const frames = openEntry(this.#options.record, bytes);
    return frames?.[0].sequence === this.#number + 1 ? frames : null;
  }

  #take({ sequence }: LogEntry, frames: Frame[]): Frame[] {
    this.#number += 1;
    this.#fromSequence = sequence + 1;
    this.#entryAtMs = this.#options.now();
    this.#askedAtMs = this.#entryAtMs;
    this.#knownAtMs = this.#entryAtMs;
    this.#lookMs = KEPT_LIMITS.lookMs;
    return frames;
  }

  #onNews(): void {
    this.#hasNews = true;
    this.#lookMs = KEPT_LIMITS.lookMs;
    this.#wake?.();
  }

  async #wait(): Promise<void> {
    const { now, schedule } = this.#options;
    if (now() - this.#askedAtMs >= KEPT_LIMITS.askMs) await this.#ask();
    if (this.#hasNews || this.#isClosed) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const cancel = schedule(resolve, this.#lookMs);
    this.#lookMs = Math.min(2 * this.#lookMs, KEPT_LIMITS.lookMsMax);
    await promise;
    cancel();
    this.#wake = null;
  }

  /** Asks what has become of an answer of which nothing comes. */
  async #ask(): Promise<void> {
    const { now } = this.#options;
    this.#askedAtMs = now();
    const found = await this.#find();
    if (found === undefined) return;
    if (found === null) throw unknownAnswer();
    this.#knownAtMs = now();
    const silentMs = now() - this.#entryAtMs;
    if (found.state === "failed") throw errorOfEnd(found.end);
    const isComplete = found.state === "complete";
    const isSilent = silentMs >= KEPT_LIMITS.silentMs &&
      (isComplete || this.#number > 0);
    if (isSilent || isComplete && await this.#isGone()) throw lost();
  }

  /** The record; undefined: Redis is away for a moment, and the log is enough. */
  async #find(): Promise<KeptRecord | null | undefined> {
    const { record, records, now } = this.#options;
    try {
      return await records.find(record);
    } catch (error) {
      const isAway = error instanceof ApiError &&
        error.code === "service_unavailable";
      const unknownMs = now() - this.#knownAtMs;
      if (isAway && unknownMs < KEPT_LIMITS.awayMs) return undefined;
      throw error;
    }
  }

  /** Whether a log whose copies agree has nothing more of an answer that is complete. */
  async #isGone(): Promise<boolean> {
    const { record, log } = this.#options;
    try {
      const last = await log.last(record.requestId);
      return last === null || last.sequence < this.#fromSequence;
    } catch (error) {
      if (error instanceof KeptLogError) return false; // It may come back.
      throw error;
    }
  }
}

function partOf({ type, payload, sequence }: Frame): KeptPart | null {
  switch (type) {
    case FrameType.DATA:
      return { type: "data", payload, number: sequence };
    case FrameType.END:
      return { type: "end" };
    case FrameType.ERR:
      throw parseErr(payload)?.error ?? lost();
    default:
      return null;
  }
}

/** The error with which an answer has failed, as its record has it. */
export function errorOfEnd(end: KeptEnd | null): ApiError {
  const { error = null } = end ?? {};
  if (error === null) return lost();
  const { code, message, retryAfterMs, ...more } = error;
  const options = { ...more, retryAfterMs: retryAfterMs ?? undefined };
  const errorCode = isErrorCode(code) ? code : "internal_error";
  return new ApiError(errorCode, message, options);
}

/** The 404 of an answer that the account does not have, or no longer. */
export function unknownAnswer(): ApiError {
  return new ApiError(
    "answer_not_found",
    "There is no such answer: it has expired or was deleted, or this API key " +
      "may not read it.",
  );
}

function lost(): ApiError {
  const message = "The rest of the answer was lost.";
  return new ApiError("keep_failed", message);
}

function logAway(cause: unknown): ApiError {
  const message = "The log of kept answers cannot be reached.";
  return new ApiError("keep_failed", message, { cause });
}
