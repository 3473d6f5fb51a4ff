/** Sends kept answers from the log to clients that read on, or that ask again. */
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { KeptLogError, type KeptLogReader } from "@gateway/shared/kept/log";
import { STREAM_LIMITS } from "@gateway/shared/limits";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { Usage } from "@gateway/shared/openai/completion";
import { ApiError, internalError } from "@gateway/shared/openai/error";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { StartedRun } from "../dispatch/outcome.ts";
import type { Admission } from "../limits/admission.ts";
import type { Caller } from "../limits/callers/caller.ts";
import { nanosOfUsage } from "../limits/rate.ts";
import type { Answer } from "../requests/answer.ts";
import {
  ANSWERED,
  type AuthenticatedCall,
  type CallEnd,
} from "../requests/call.ts";
import { EventNumbers } from "../requests/event_numbers.ts";
import { requireRights } from "../requests/rights.ts";
import { answerOf, keptHeaders } from "./kept_answer.ts";
import { KeptReading, type Schedule, unknownAnswer } from "./reading.ts";
import type { AnswerName, KeptRecord, KeptRecords } from "./records.ts";

/** What {@link Replays} needs. */
export interface ReplaysOptions {
  readonly records: Pick<KeptRecords, "find">;
  readonly keptLog: Pick<
    KeptLogReader,
    "next" | "nextOfLeader" | "last" | "watch"
  >;
  readonly admission: Pick<Admission, "modelsOf">;
  readonly catalog: Catalog;
  readonly now: MonotonicNow;
  readonly schedule: Schedule;
  readonly log: Pick<Log, "error">;
  readonly streamHeadMs: number;
  /** Whether answers say what they cost. */
  readonly showsCost: boolean;
}

/** From where an answer is sent, and how the response says that it is one. */
export interface ReplayTerms {
  /** The last event that the client has; 0: none. */
  readonly after: number;
  /** Whether a request was sent again, and has this answer instead of a run. */
  readonly isReplayed: boolean;
}

/** Sends kept answers. */
export class Replays {
  readonly #options: ReplaysOptions;

  constructor(options: ReplaysOptions) {
    this.#options = options;
  }

  /**
   * The record of an answer that a key may read. Throws the `ApiError` of a key that
   * may not be used, or 404: an answer that is not for it is an unknown one.
   */
  async find(principal: Caller, requestId: string): Promise<KeptRecord> {
    const { admission, catalog, records } = this.#options;
    await admission.modelsOf(principal, null);
    const { ownerId } = principal;
    const record = await records.find({ ownerId, requestId });
    if (record === null) throw unknownAnswer();
    const { kind, model } = record.facts;
    const needed = { kinds: [kind], model };
    try {
      await requireRights(principal, needed, { admission, catalog });
    } catch (error) {
      const isForbidden = error instanceof ApiError &&
        error.code === "forbidden";
      throw isForbidden ? unknownAnswer() : error;
    }
    return record;
  }

  /**
   * Whether nobody can read an answer whose run has ended, because the log has lost it:
   * its servers were started anew, with nothing. While it runs it is not lost: its
   * worker finds that out, and ends it. Nor is it while the log does not answer.
   */
  async isLost(name: AnswerName): Promise<boolean> {
    const { records, keptLog } = this.#options;
    const record = await records.find(name);
    const isOver = record?.state === "complete" ||
      record?.end?.error?.code === "keep_failed";
    if (!isOver) return false;
    try {
      return await keptLog.last(name.requestId) === null;
    } catch (error) {
      if (error instanceof KeptLogError) return false;
      throw error;
    }
  }

  /** Sends an answer, as it is and as it grows. Resolves at its end. */
  async send(
    call: AuthenticatedCall,
    { requestId }: Pick<AnswerName, "requestId">,
    terms: ReplayTerms,
  ): Promise<CallEnd> {
    const record = await this.find(call.principal, requestId);
    if (terms.after > 0 && !record.facts.stream) {
      throw new ApiError(
        "invalid_value",
        "This answer is no stream, so it has no events after which it could " +
          "be read: ask for it without 'Last-Event-ID' and 'after'.",
      );
    }
    const numbers = new EventNumbers(terms.after);
    const { now } = this.#options;
    // A client that reads on has seen that the answer has begun.
    const streamHeadMs = terms.isReplayed
      ? this.#options.streamHeadMs
      : KEPT_LIMITS.headMs;
    const { exchange: { response: out, onClose, socket } } = call;
    const answer = answerOf(record, {
      out,
      lease: this.#leaseOf(record, terms),
      now,
      streamHeadMs,
      numbers: record.facts.stream ? numbers : undefined,
    });
    const { keptLog, records, schedule } = this.#options;
    const reading = new KeptReading({
      record,
      log: keptLog,
      records,
      now,
      schedule,
    });
    onClose.push(() => reading.close());
    if (socket.destroyed) reading.close();
    const ticker = setInterval(
      () => answer.onTick(now()),
      STREAM_LIMITS.tickMs,
    );
    try {
      await pump(reading, answer, numbers);
    } catch (error) {
      answer.onError(this.#errorOf(error, requestId));
    } finally {
      clearInterval(ticker);
      reading.close();
    }
    return ANSWERED;
  }

  #errorOf(error: unknown, requestId: string): ApiError {
    if (error instanceof ApiError) return error;
    const line = { requestId: publicRequestId(requestId), error };
    this.#options.log.error("request_fault", line);
    return internalError(error);
  }

  /** What an answer says of the lease of its request, which has ended or is another's. */
  #leaseOf(
    { requestId, facts: { keepMs }, terms }: KeptRecord,
    { isReplayed }: ReplayTerms,
  ) {
    const headers = {
      ...keptHeaders(requestId, keepMs),
      ...isReplayed && { "idempotent-replayed": "true" },
    };
    const { showsCost } = this.#options;
    const rate = terms?.reservation.rate ?? null;
    if (!showsCost || rate === null || terms === null) return { headers };
    const { bounds } = terms.estimate;
    const nanosOf = (usage: Usage) => nanosOfUsage(usage, rate, bounds);
    return { headers, nanosOf };
  }
}

/** Hands over an answer, no faster than its client takes it. */
async function pump(
  reading: Pick<KeptReading, "next" | "close" | "onClosed">,
  answer: Answer,
  numbers: Pick<EventNumbers, "isBehind" | "count">,
): Promise<void> {
  const taken = new TakenParts(reading, answer);
  answer.attach(taken);
  for (;;) {
    const part = await reading.next();
    if (part === null) return answer.onAbandoned();
    if (part.type === "end") break;
    answer.onPayload(part.payload, part.number);
    await taken.upTo(part.number - KEPT_LIMITS.aheadMax);
  }
  if (numbers.isBehind) throw beyondEnd(numbers.count);
  answer.onEnd();
}

/** The parts that a client has taken, as an answer tells its run. */
class TakenParts implements StartedRun {
  readonly #reading: Pick<KeptReading, "close">;
  readonly #answer: Answer;
  #last = 0;
  #isOver = false;
  #waiting: PromiseWithResolvers<void> | null = null;

  constructor(
    reading: Pick<KeptReading, "close" | "onClosed">,
    answer: Answer,
  ) {
    this.#reading = reading;
    this.#answer = answer;
    reading.onClosed(() => this.#end());
  }

  delivered(number: number): void {
    this.#last = Math.max(this.#last, number);
    this.#waiting?.resolve();
    this.#waiting = null;
  }

  cancel(_reason: unknown, error: ApiError | null = null): void {
    if (error === null) this.#answer.onAbandoned();
    else this.#answer.onError(error);
    this.#reading.close();
  }

  /** Resolves when the client has taken everything up to this part, or has left. */
  async upTo(number: number): Promise<void> {
    while (this.#last < number && !this.#isOver) {
      this.#waiting ??= Promise.withResolvers();
      await this.#waiting.promise;
    }
  }

  #end(): void {
    this.#isOver = true;
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}

function beyondEnd(count: number): ApiError {
  return new ApiError(
    "invalid_value",
    `The answer has ended with event ${count}: there is none after the one ` +
      "that 'Last-Event-ID' or 'after' names.",
  );
}
