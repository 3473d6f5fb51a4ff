/**
 * Looks after kept answers: tells other edges which ones run here, ends those whose
 * edge is gone, and removes from the log what has expired.
 */
import { type Frame, FrameType } from "@gateway/shared/bus/stream/frame";
import { openEntry } from "@gateway/shared/kept/entry";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import type { KeptLogReader } from "@gateway/shared/kept/log";
import { ApiError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RunOutcome } from "../dispatch/outcome.ts";
import type { Leases } from "../limits/leases.ts";
import { chargeFields } from "../limits/rate.ts";
import type { AnswerName, KeptRecord, KeptRecords } from "./records.ts";
import { closingOf, lostOutcome, outcomeOf, settleFor } from "./settling.ts";

/** What {@link Orphans} needs. */
export interface OrphansOptions {
  readonly records: Pick<
    KeptRecords,
    "find" | "gone" | "claim" | "clearDue" | "setDueIn" | "close"
  >;
  readonly keptLog: Pick<KeptLogReader, "last" | "remove">;
  readonly leases: Pick<Leases, "settle">;
  /** The answers that run here. */
  readonly running: () => readonly AnswerName[];
  readonly isLogReady: () => boolean;
  readonly now: MonotonicNow;
  readonly log: Pick<Log, "warn" | "info">;
  /** Is called for each answer that was ended without its edge. */
  readonly onEnded?: (state: "complete" | "failed") => void;
}

/** An answer whose edge is gone, and since when its log has had this last entry. */
interface Orphan {
  readonly name: AnswerName;
  readonly sequence: number;
  readonly sinceMs: number;
}

/** An old server of the log needs 2 ms for each, and has other things to do. */
const REMOVED_AT_ONCE = 10;

/** A token of a stream takes up to this many bytes of its answer. */
const BYTES_PER_TOKEN = 256;

/** The answers that nobody else looks after. */
export class Orphans {
  readonly #options: OrphansOptions;
  /** Orphans that this edge watches, by request id. */
  readonly #watched = new Map<string, Orphan>();
  readonly #timers: ReturnType<typeof setInterval>[] = [];
  #looking: Promise<void> | null = null;

  constructor(options: OrphansOptions) {
    this.#options = options;
  }

  /** Looks, and tells what runs here, every ten seconds. */
  start(): void {
    this.#timers.push(
      setInterval(() => void this.#renew(), KEPT_LIMITS.renewMs),
      setInterval(() => void this.look(), KEPT_LIMITS.sweepMs),
    );
  }

  /** Ends, after the look that is under way. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await this.#looking;
  }

  /** Looks now. Never rejects: what fails is due again. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { records, isLogReady } = this.#options;
    if (!isLogReady()) return;
    const watched = [...this.#watched.values()].map(({ name }) => name);
    try {
      await records.setDueIn(KEPT_LIMITS.orphanMs, watched);
      await this.#lookAt(watched);
      for (;;) {
        const claimed = await records.claim();
        await this.#lookAt(claimed);
        if (claimed.length < KEPT_LIMITS.sweptMax) break;
      }
    } catch (error) {
      this.#options.log.warn("kept_answers_not_looked_after", { error });
    }
  }

  async #lookAt(names: readonly AnswerName[]): Promise<void> {
    const { records, running } = this.#options;
    const here = new Set(running().map(({ requestId }) => requestId));
    const others = names.filter(({ requestId }) => !here.has(requestId));
    const gone = await records.gone(others);
    await this.#remove(gone);
    const left = new Set(others).difference(new Set(gone));
    for (const name of left) {
      const record = await records.find(name);
      if (record?.state === "running") await this.#follow(record);
      else this.#watched.delete(name.requestId);
    }
  }

  /** Removes the entries of answers that nobody can read any more. */
  async #remove(names: readonly AnswerName[]): Promise<void> {
    const { records, keptLog } = this.#options;
    for (let at = 0; at < names.length; at += REMOVED_AT_ONCE) {
      const some = names.slice(at, at + REMOVED_AT_ONCE);
      await Promise.all(
        some.map(({ requestId }) => keptLog.remove(requestId)),
      );
      for (const { requestId } of some) this.#watched.delete(requestId);
    }
    await records.clearDue(names);
  }

  /** Ends an answer if its worker has, or is gone as well. */
  async #follow(record: KeptRecord): Promise<void> {
    const { now, keptLog } = this.#options;
    const { requestId, ownerId } = record;
    const entry = await keptLog.last(requestId);
    const frame = entry && openEntry(record, entry.bytes)?.at(-1);
    if (frame && isEnd(frame)) {
      return await this.#end(record, outcomeOf(frame));
    }
    const { sequence = 0 } = entry ?? {};
    const before = this.#watched.get(requestId);
    if (before === undefined || before.sequence !== sequence) {
      const name = { ownerId, requestId };
      this.#watched.set(requestId, { name, sequence, sinceMs: now() });
    } else if (now() - before.sinceMs >= KEPT_LIMITS.silentMs) {
      await this.#end(record, lostOutcome(frame?.tokens ?? 0, lost()));
    }
  }

  async #end(record: KeptRecord, outcome: RunOutcome): Promise<void> {
    const { records, leases, log, onEnded } = this.#options;
    const { requestId, ownerId, facts: { keepMs, keyId, model } } = record;
    const { completionTokens: tokens } = outcome;
    const closing = closingOf(outcome, {
      keepMs,
      bytes: Math.max(KEPT_LIMITS.reservedBytes, tokens * BYTES_PER_TOKEN),
      hasData: tokens > 0,
    });
    // The charge comes first: if this edge is killed now, the next one repeats it.
    const charge = await settleFor(record, outcome, leases);
    await records.close(record, closing);
    this.#watched.delete(requestId);
    const { state } = closing;
    onEnded?.(state);
    log.info("kept_answer_taken_over", {
      requestId: publicRequestId(requestId),
      keyId,
      ownerId,
      model,
      outcome: state,
      ...chargeFields(charge),
    });
  }

  async #renew(): Promise<void> {
    const { records, running, log } = this.#options;
    await records.setDueIn(KEPT_LIMITS.orphanMs, running()).catch((error) =>
      log.warn("kept_answers_not_looked_after", { error })
    );
  }
}

const isEnd = ({ type }: Frame): boolean =>
  type === FrameType.END || type === FrameType.ERR;

function lost(): ApiError {
  const message = "The worker that ran the request was lost.";
  return new ApiError("worker_lost", message);
}
