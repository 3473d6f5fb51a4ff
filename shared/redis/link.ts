import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "../process/clock.ts";
import { Deadlines, type Timed } from "../process/deadlines.ts";
import type { Log } from "../process/log.ts";
import { settlesWithin } from "../process/serve.ts";
import {
  type ConnectionOptions,
  openConnection,
  type RedisReply,
} from "./connection.ts";
import * as errors from "./errors.ts";

export type { RedisAddress, RedisReply } from "./connection.ts";

/** A Lua script and the hash under which Redis caches it. */
export type RedisScript = Readonly<ReturnType<typeof defineScript>>;

/**
 * Identifies a script by its content, so that edges of two versions can share a server.
 */
export function defineScript(name: string, source: string) {
  /** SHA-1 in lower-case hex, for EVALSHA. */
  const sha = createHash("sha1").update(source).digest("hex");
  return { name, source, sha };
}

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
  onAbandoned?: (reply: RedisReply | null) => void;
}

export interface RedisLinkOptions
  extends Pick<ConnectionOptions, "address" | "now" | "random"> {
  log: Log;
  deadlineMs?: number;
  /** Loaded with every connection, so that they are not missing in the first burst. */
  scripts?: readonly RedisScript[];
  /**
   * A command that succeeds only if the server is fully usable, such as a write.
   * Default: `PING`.
   */
  probe?: readonly string[];
}

/**
 * The states, and what they mean to those who ask the service. Each change is logged as
 * `redis_state`, with its reason.
 */
const STATES = {
  connecting: "Redis has not been reached yet",
  ready: "Redis is available",
  refusing: "Redis refuses commands; requests get 503 until it accepts them",
  stalled: "Redis does not answer; requests get 503 until it does",
  /** Also while only a replica is connected. */
  offline: "No connection to Redis; requests get 503 until there is one",
  closed: "The service is stopping",
};
export type RedisLinkState = keyof typeof STATES;

const DEADLINE_MS = 100;
/**
 * The circuit opens after so many calls without a reply, and closes with the first one.
 * One miss means nothing.
 */
const SILENT_CALLS_MAX = 5;
/** How often the server is probed while the link is not ready. */
const PROBE_EVERY_MS = 200;
/** How often a link that is closing checks whether calls are running. */
const CLOSING_CHECK_MS = 5;
/**
 * An idle connection is probed after this long. A socket timeout would not do: writing
 * counts as activity.
 */
const SILENT_MS = 1_000;

/**
 * The connection to Redis of every service. Every call ends in time: within its
 * deadline if the server does not answer, at once if that is known. Calls of one turn
 * of the event loop are sent in one write.
 */
export type RedisLink = ReturnType<typeof createRedisLink>;

/**
 * Opens a link, which reconnects by itself until it is closed: within a second after
 * the server is back.
 */
export function createRedisLink(options: RedisLinkOptions) {
  const { address, log, now, random, scripts = [] } = options;
  const probeLine = options.probe ?? ["PING"];
  const defaultDeadlineMs = options.deadlineMs ?? DEADLINE_MS;
  const answered = Promise.withResolvers<void>();
  let state: RedisLinkState = "connecting";
  let silentCalls = 0;
  let isProbing = false;
  let downCause: unknown;

  const enter = (next: RedisLinkState, fields: Record<string, unknown>) => {
    if (state === next || state === "closed") return;
    const message = STATES[next];
    const change = { from: state, to: next, message, ...fields };
    state = next;
    if (next === "ready" || next === "closed") log.info("redis_state", change);
    else log.warn("redis_state", change);
    if (next === "ready" || next === "refusing") answered.resolve();
  };

  const connection = openConnection({
    address,
    now,
    random,
    greeting: [["PING"], ...scripts.map(loadLine)],
    onUp() {
      calls.received();
      silentCalls = 0;
      probe();
    },
    onDown(cause) {
      downCause = cause;
      enter("offline", { error: cause });
    },
  });

  const calls = createCalls({
    now,
    send: (args) => connection.send(args),
    onAnswer(error) {
      const reason = unavailableReason(error);
      if (reason === "connection_lost") return;
      const wasOpen = isCircuitOpen();
      silentCalls = 0;
      // By now the address may lead to the new master, or the sentinels may name it.
      if (reason === "read_only") connection.drop(error);
      else if (reason !== null || wasOpen) probe();
    },
    onSilence() {
      if (calls.silentForMs() === 0) return;
      silentCalls += 1;
      if (!isCircuitOpen()) return;
      enter("stalled", { silentCalls });
      probe();
    },
  });
  const isCircuitOpen = () => silentCalls >= SILENT_CALLS_MAX;

  const probe = () => {
    if (isProbing || !connection.isUp) return;
    isProbing = true;
    // A server that is just back may be slow at first; one that stalled must be fast.
    const isSuspected = state === "ready" || isCircuitOpen();
    const deadlineMs = isSuspected ? PROBE_EVERY_MS : SILENT_MS;
    calls.make(probeLine, { deadlineMs }).then(
      () => enter("ready", {}),
      (error) => {
        const reason = unavailableReason(error);
        if (reason === "refused" || reason === "denied") {
          enter("refusing", { reason, error });
        } else if (calls.silentForMs() >= SILENT_MS) connection.drop(error);
      },
    ).finally(() => isProbing = false);
  };
  const heartbeat = setInterval(() => {
    if (state !== "ready" || calls.silentForMs() >= SILENT_MS) probe();
    // A master that has lost its replicas refuses writes, but still claims to be the
    // master.
    if (state === "refusing") connection.reconsider();
  }, PROBE_EVERY_MS);

  const command = (
    args: readonly string[],
    callOptions: CallOptions = {},
  ): Promise<RedisReply> => {
    if (state === "closed") return refused("closed", "the link is closed");
    if (!connection.isUp) return refused("offline", "not connected");
    if (isCircuitOpen()) return refused("circuit_open", "it stopped answering");
    return calls.make(args, { deadlineMs: defaultDeadlineMs, ...callOptions });
  };

  return {
    get state() {
      return state;
    },
    /**
     * Runs any command. A blocking one (WAIT) delays the calls after it, so it needs a
     * link of its own.
     */
    command,
    /** Runs a script by its hash, and loads it first if the server does not have it. */
    evalScript(
      script: RedisScript,
      keys: readonly string[],
      args: readonly string[],
      callOptions: CallOptions = {},
    ): Promise<RedisReply> {
      const sentAtMs = now();
      const { length } = keys;
      const line = ["EVALSHA", script.sha, String(length), ...keys, ...args];
      return command(line, callOptions).catch(async (error) => {
        const isMissing = error instanceof errors.RedisReplyError &&
          error.message.startsWith("NOSCRIPT");
        if (!isMissing) throw error;
        log.info("redis_script_load", { script: script.name });
        const wholeMs = callOptions.deadlineMs ?? defaultDeadlineMs;
        const deadlineMs = Math.max(1, wholeMs - (now() - sentAtMs));
        const loading = command(loadLine(script), { deadlineMs });
        // Executed in this order.
        const again = command(line, { ...callOptions, deadlineMs });
        return (await Promise.all([again, loading]))[0];
      });
    },
    /**
     * Resolves when the server has replied, even with an error; rejects after
     * `timeoutMs` with `RedisUnavailableError`, whose cause is the error of the last
     * attempt.
     */
    async ready(timeoutMs: number): Promise<void> {
      if (await settlesWithin(answered.promise, timeoutMs)) return;
      const detail = `not ready after ${timeoutMs} ms`;
      throw new errors.RedisUnavailableError("offline", detail, downCause);
    },
    /**
     * Waits until every running call is answered or out of time, then closes the
     * connection.
     */
    async close(): Promise<void> {
      if (state === "closed") return;
      enter("closed", {});
      clearInterval(heartbeat);
      await calls.close();
      await connection.close();
    },
  };
}

const refused = (reason: errors.UnavailableReason, detail: string) =>
  Promise.reject(new errors.RedisUnavailableError(reason, detail));

/** Why the server is unavailable according to a call's result; null if it is not. */
function unavailableReason(error: unknown) {
  if (error instanceof errors.RedisUnavailableError) return error.reason;
  return errors.isDenied(error) ? "denied" : null;
}

const loadLine = ({ source }: RedisScript) => ["SCRIPT", "LOAD", source];

/** A call with a longer deadline may block the server, as WAIT does. */
const PATIENT_MS = 1_000;
/**
 * A burst is answered in order, and on a busy machine its last calls take longer than
 * the deadline. Refusing them would turn load into an outage: while replies arrive in
 * time, these calls wait for up to this many deadlines.
 */
const QUEUED_DEADLINES_MAX = 5;

function createCalls({ now, send, onAnswer, onSilence }: {
  now: MonotonicNow;
  send: (args: readonly string[]) => Promise<RedisReply>;
  /** A call was answered, refused, or lost with its connection, before its deadline. */
  onAnswer: (error: Error | null) => void;
  onSilence: () => void;
}) {
  const deadlines = new Deadlines(now);
  let patientCalls = 0;
  let receivedAtMs = now();
  /**
   * The last reply within a deadline. Late replies do not extend the deadlines of later
   * calls.
   */
  let answeredAtMs = -Infinity;

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
          if (isPatient) patientCalls -= 1;
          onSilence();
          const detail = `no answer within ${deadlineMs} ms`;
          reject(new errors.RedisUnavailableError("deadline", detail));
        },
      };
      if (isPatient) patientCalls += 1;
      deadlines.add(timed);
      const settle = (error: Error | null) => {
        deadlines.remove(timed);
        if (isPatient) patientCalls -= 1;
        onAnswer(error);
      };
      send(args).then((reply) => {
        receivedAtMs = now();
        if (isAbandoned) return onAbandoned?.(reply);
        answeredAtMs = receivedAtMs;
        settle(null);
        resolve(reply);
      }, (cause) => {
        const error = errors.classifyRedisError(cause);
        const isLost = "mayHaveRun" in error && error.mayHaveRun;
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
    async close() {
      while (deadlines.size > 0) await delay(CLOSING_CHECK_MS);
      deadlines.close();
    },
  };
}
