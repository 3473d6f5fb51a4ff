/** The running calls of one link to Redis: every one of them ends in time. */
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "../process/clock.ts";
import { Deadlines, type Timed } from "../process/deadlines.ts";
import type { RedisReply } from "./connection.ts";
import { classifyRedisError, RedisUnavailableError } from "./errors.ts";

/** How long a call may take, and what becomes of a reply that comes too late. */
export interface CallOptions {
  /**
   * How long the server may be silent, up to five times as long while it answers
   * others. Default: the link's.
   */
  deadlineMs?: number;
  /**
   * Gets the late reply to an abandoned call; null if the connection was lost. Not
   * called if the server refused it.
   */
  onAbandoned?: ((reply: RedisReply | null) => void) | undefined;
}

/** What {@link Calls} needs of the link that they belong to. */
export interface CallsOptions {
  now: MonotonicNow;
  /**
   * Rejects with the library's error if the server refuses, or the connection is lost.
   */
  send: (args: readonly string[]) => Promise<RedisReply>;
  /** A call was answered, refused, or lost with its connection, before its deadline. */
  onAnswer: (error: Error | null) => void;
  /** A call had no reply within its deadline. */
  onSilence: () => void;
}

/** How often {@link Calls.close} checks whether calls are running. */
const CLOSING_CHECK_MS = 5;
/** A call with a longer deadline may block the server, as WAIT does. */
const PATIENT_MS = 1_000;
/**
 * A burst is answered in order, and on a busy machine its last calls take longer than
 * the deadline. Refusing them would turn load into an outage: while replies arrive in
 * time, these calls wait for up to this many deadlines.
 */
const QUEUED_DEADLINES_MAX = 5;

/** Makes calls, and ends each of them at its deadline if the server does not answer. */
export class Calls {
  readonly #options: CallsOptions;
  readonly #now: MonotonicNow;
  readonly #deadlines: Deadlines;
  #patientCalls = 0;
  #receivedAtMs: number;
  /**
   * The last reply within a deadline. Late replies do not extend the deadlines of later
   * calls.
   */
  #answeredAtMs = -Infinity;

  constructor(options: CallsOptions) {
    this.#options = options;
    this.#now = options.now;
    this.#deadlines = new Deadlines(options.now);
    this.#receivedAtMs = options.now();
  }

  /** How long the server has been silent; 0 during a call that may block it. */
  get silentForMs(): number {
    return this.#patientCalls > 0 ? 0 : this.#now() - this.#receivedAtMs;
  }

  /**
   * Sends a command. Rejects with `RedisUnavailableError`, or `RedisReplyError` if the
   * server refused it.
   */
  make(
    args: readonly string[],
    { deadlineMs, onAbandoned }: CallOptions & { deadlineMs: number },
  ): Promise<RedisReply> {
    const call = new RunningCall(this, this.#now(), deadlineMs);
    if (call.isPatient) this.#patientCalls += 1;
    this.#deadlines.add(call);
    this.#options.send(args).then((reply) => {
      this.#receivedAtMs = this.#now();
      if (call.isAbandoned) return onAbandoned?.(reply);
      this.#answeredAtMs = this.#receivedAtMs;
      this.#settle(call, null);
      call.resolve(reply);
    }, (cause) => {
      const error = classifyRedisError(cause);
      const isLost = "mayHaveRun" in error && error.mayHaveRun;
      if (!isLost) this.#receivedAtMs = this.#now();
      if (call.isAbandoned) return isLost ? onAbandoned?.(null) : undefined;
      this.#settle(call, error);
      call.reject(error);
    });
    return call.promise;
  }

  /** Notes that the server has answered outside of a call. */
  noteAnswer(): void {
    this.#receivedAtMs = this.#now();
  }

  /**
   * For a call whose deadline has passed: gives it more time while the server answers
   * others, or abandons it.
   */
  abandonOrExtend(call: RunningCall): void {
    const { sentAtMs, deadlineMs } = call;
    call.expiresAtMs = Math.min(
      this.#answeredAtMs + deadlineMs,
      sentAtMs + deadlineMs * QUEUED_DEADLINES_MAX,
    );
    if (call.expiresAtMs > this.#now()) return this.#deadlines.add(call);
    call.isAbandoned = true;
    if (call.isPatient) this.#patientCalls -= 1;
    this.#options.onSilence();
    const detail = `no answer within ${deadlineMs} ms`;
    call.reject(new RedisUnavailableError("deadline", detail));
  }

  /** Waits until every running call is answered or out of time. */
  async close(): Promise<void> {
    while (this.#deadlines.size > 0) await delay(CLOSING_CHECK_MS);
    this.#deadlines.close();
  }

  #settle(call: RunningCall, error: Error | null): void {
    this.#deadlines.remove(call);
    if (call.isPatient) this.#patientCalls -= 1;
    this.#options.onAnswer(error);
  }
}

/** What a call needs of those that it belongs to. */
interface CallOwner {
  abandonOrExtend(call: RunningCall): void;
}

/** A call that was sent, with the promise that its caller has. */
class RunningCall implements Timed {
  /** Whether it may block the server. */
  readonly isPatient: boolean;
  readonly promise: Promise<RedisReply>;
  readonly resolve: (reply: RedisReply) => void;
  readonly reject: (error: Error) => void;
  expiresAtMs: number;
  /** Whether its deadline has passed, and its caller no longer waits. */
  isAbandoned = false;
  livePlace: number | undefined = undefined;
  stalledBeforeMs: number | undefined = undefined;

  constructor(
    readonly owner: CallOwner,
    readonly sentAtMs: number,
    readonly deadlineMs: number,
  ) {
    const { promise, resolve, reject } = Promise.withResolvers<RedisReply>();
    this.promise = promise;
    this.resolve = resolve;
    this.reject = reject;
    this.isPatient = deadlineMs > PATIENT_MS;
    this.expiresAtMs = sentAtMs + deadlineMs;
  }

  expire(): void {
    this.owner.abandonOrExtend(this);
  }
}
