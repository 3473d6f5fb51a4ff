import type { MonotonicNow } from "../process/clock.ts";
import { createDeadlines, type Timed } from "../process/deadlines.ts";
import type { RedisReply } from "./connection.ts";
import {
  classifyRedisError,
  type RedisReplyError,
  RedisUnavailableError,
} from "./errors.ts";

/** What a caller may say about a call. */
export interface CallOptions {
  /**
   * How long the server may be silent before the call is given up. Default: the
   * link's. While it answers other calls in time, this one waits its turn behind
   * them, up to five times as long.
   */
  deadlineMs?: number;
  /** False: the deadline holds for the wait behind other calls as well. Default true. */
  mayQueue?: boolean;
  /**
   * Called once for a call that was given up at its deadline, as soon as its fate
   * is known: with the late answer, or with null when it will never be known
   * because the connection broke. Not called when the server refused the call.
   */
  onAbandoned?: (reply: RedisReply | null) => void;
}

/** A call with a longer deadline says that the server may be silent. */
export const PATIENT_MS = 1_000;
/**
 * A burst is answered in order, and on a busy machine its tail takes longer than
 * the deadline. Refusing it would turn load into an outage: as long as answers
 * come in time, the tail waits, up to this many deadlines.
 */
const QUEUED_DEADLINES_MAX = 5;

/** Gives every call a deadline, and late answers to those who gave up. */
export function createCalls({ now, send, onAnswer, onSilence }: {
  now: MonotonicNow;
  send: (args: readonly string[]) => Promise<RedisReply>;
  /** A call was answered, or refused, in time. */
  onAnswer: (
    error: RedisUnavailableError | RedisReplyError | null,
    args: readonly string[],
  ) => void;
  /** A call was given up. */
  onSilence: () => void;
}) {
  const deadlines = createDeadlines(now);
  const emptyWaiters = new Set<() => void>();
  let patientCalls = 0;
  let heardAtMs = now();
  /** Last answer to a call that was still awaited. Late ones prove nothing to those behind. */
  let answeredAtMs = -Infinity;

  const ended = (isPatient: boolean) => {
    if (isPatient) patientCalls -= 1;
    if (deadlines.size > 0) return;
    for (const wake of emptyWaiters) wake();
  };

  const make = (
    args: readonly string[],
    { deadlineMs, mayQueue = true, onAbandoned }: CallOptions & {
      deadlineMs: number;
    },
  ) =>
    new Promise<RedisReply>((resolve, reject) => {
      const deadlinesMax = mayQueue ? QUEUED_DEADLINES_MAX : 1;
      const isPatient = deadlineMs > PATIENT_MS;
      const sentAtMs = now();
      let isAbandoned = false;
      const timed: Timed & { expiresAtMs: number } = {
        expiresAtMs: sentAtMs + deadlineMs,
        expire() {
          timed.expiresAtMs = Math.min(
            answeredAtMs + deadlineMs,
            sentAtMs + deadlineMs * deadlinesMax,
          );
          if (timed.expiresAtMs > now()) return deadlines.add(timed);
          isAbandoned = true;
          ended(isPatient);
          onSilence();
          const detail = `no answer within ${deadlineMs} ms`;
          reject(new RedisUnavailableError("deadline", detail));
        },
      };
      if (isPatient) patientCalls += 1;
      deadlines.add(timed);
      send(args).then((reply) => {
        heardAtMs = now();
        if (isAbandoned) return onAbandoned?.(reply);
        answeredAtMs = heardAtMs;
        deadlines.remove(timed);
        ended(isPatient);
        onAnswer(null, args);
        resolve(reply);
      }, (cause) => {
        const error = classifyRedisError(cause);
        const isLost = error instanceof RedisUnavailableError &&
          error.mayHaveRun;
        if (!isLost) heardAtMs = now();
        if (isAbandoned) return isLost ? onAbandoned?.(null) : undefined;
        deadlines.remove(timed);
        ended(isPatient);
        onAnswer(error, args);
        reject(error);
      });
    });

  return {
    /** Time of the last answer of any kind. */
    get heardAtMs() {
      return heardAtMs;
    },
    /** True while a call runs that may be silent for long, such as WAITAOF: no verdict meanwhile. */
    get isPatient() {
      return patientCalls > 0;
    },
    make,
    /** Tells that the server has been heard otherwise. */
    heard() {
      heardAtMs = now();
    },
    /** Resolves when no call is awaited, and stops the clock. */
    async close() {
      if (deadlines.size > 0) {
        await new Promise<void>((resolve) => emptyWaiters.add(resolve));
      }
      deadlines.close();
    },
  };
}
