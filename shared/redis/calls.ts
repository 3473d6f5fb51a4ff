import type { MonotonicNow } from "../process/clock.ts";
import { createDeadlines, type Timed } from "../process/deadlines.ts";
import type { RedisReply } from "./connection.ts";
import {
  classifyRedisError,
  type RedisReplyError,
  RedisUnavailableError,
} from "./errors.ts";

export interface CallOptions {
  /** How long the server may be silent, up to five times as long while it answers others. Default: the link's. */
  deadlineMs?: number;
  /** Gets the late reply to an abandoned call; null if the connection was lost. Not called if the server refused it. */
  onAbandoned?: (reply: RedisReply | null) => void;
}

/** A call with a longer deadline may block the server, as WAITAOF does. */
const PATIENT_MS = 1_000;
/**
 * A burst is answered in order, and on a busy machine its last calls take longer than
 * the deadline. Refusing them would turn load into an outage: while replies arrive in
 * time, these calls wait for up to this many deadlines.
 */
const QUEUED_DEADLINES_MAX = 5;

export function createCalls({ now, send, onAnswer, onSilence }: {
  now: MonotonicNow;
  send: (args: readonly string[]) => Promise<RedisReply>;
  /** A call was answered, refused, or lost with its connection, before its deadline. */
  onAnswer: (error: RedisUnavailableError | RedisReplyError | null) => void;
  onSilence: () => void;
}) {
  const deadlines = createDeadlines(now);
  const idle = Promise.withResolvers<void>();
  let isClosing = false;
  let patientCalls = 0;
  let receivedAtMs = now();
  /** The last reply within a deadline. Late replies do not extend the deadlines of later calls. */
  let answeredAtMs = -Infinity;

  const ended = (isPatient: boolean) => {
    if (isPatient) patientCalls -= 1;
    if (isClosing && deadlines.size === 0) idle.resolve();
  };

  const make = (
    args: readonly string[],
    { deadlineMs, onAbandoned }: CallOptions & { deadlineMs: number },
  ) =>
    new Promise<RedisReply>((resolve, reject) => {
      const isPatient = deadlineMs > PATIENT_MS;
      const sentAtMs = now();
      let isAbandoned = false;
      const timed: Timed & { expiresAtMs: number } = {
        expiresAtMs: sentAtMs + deadlineMs,
        expire() {
          timed.expiresAtMs = Math.min(
            answeredAtMs + deadlineMs,
            sentAtMs + deadlineMs * QUEUED_DEADLINES_MAX,
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
      const settle = (
        error: RedisUnavailableError | RedisReplyError | null,
      ): void => {
        deadlines.remove(timed);
        ended(isPatient);
        onAnswer(error);
      };
      send(args).then((reply) => {
        receivedAtMs = now();
        if (isAbandoned) return onAbandoned?.(reply);
        answeredAtMs = receivedAtMs;
        settle(null);
        resolve(reply);
      }, (cause) => {
        const error = classifyRedisError(cause);
        const isLost = error instanceof RedisUnavailableError &&
          error.mayHaveRun;
        if (!isLost) receivedAtMs = now();
        if (isAbandoned) return isLost ? onAbandoned?.(null) : undefined;
        settle(error);
        reject(error);
      });
    });

  return {
    make,
    /** How long the server has been silent; 0 during a call that may block it. */
    silentForMs: () => patientCalls > 0 ? 0 : now() - receivedAtMs,
    /** Notes that the server has answered outside of a call. */
    received: () => void (receivedAtMs = now()),
    /** Resolves when no call is pending, and stops the timer. */
    async close() {
      isClosing = true;
      if (deadlines.size > 0) await idle.promise;
      deadlines.close();
    },
  };
}
