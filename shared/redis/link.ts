import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { type CallOptions, createCalls, PATIENT_MS } from "./calls.ts";
import {
  openConnection,
  type RedisAddress,
  type RedisReply,
} from "./connection.ts";
import {
  isDenied,
  isNoScript,
  isRefusal,
  type RedisReplyError,
  RedisUnavailableError,
} from "./errors.ts";
import type { RedisScript } from "./script.ts";

export type { CallOptions } from "./calls.ts";
export type { RedisAddress, RedisReply } from "./connection.ts";

/** What a link needs. */
export interface RedisLinkOptions {
  address: RedisAddress;
  log: Log;
  now: MonotonicNow;
  /** 0 ≤ x < 1, for the jitter between attempts to connect. */
  random: () => number;
  /** Deadline of a call that names none. Default 100 ms. */
  deadlineMs?: number;
  /** Loaded with every connection, so that the first burst does not find them missing. */
  scripts?: readonly RedisScript[];
  /**
   * A command that succeeds only where the server can do its work, such as a write.
   * Default: `PING`, which replicas and full servers answer as well.
   */
  probe?: readonly string[];
}

/**
 * `connecting` until the first answer, then `ready`; `refusing` while the server
 * answers that it does not do its work; `stalled` when it has stopped answering;
 * `offline` while there is no connection, or only one to a replica; `closed` at
 * the end. Each change is one line of the log, `redis_state`, with its reason.
 */
export type RedisLinkState =
  | "connecting"
  | "ready"
  | "refusing"
  | "stalled"
  | "offline"
  | "closed";

/**
 * The only way this product talks to Redis. Every call ends in time, with an
 * answer, a {@link RedisUnavailableError} or a `RedisReplyError`: within its
 * deadline when the server does not answer, at once when that is already known.
 * The server is found again without a restart, within a second of its return.
 * Calls made in one turn of the event loop are sent in one write.
 */
export interface RedisLink {
  readonly state: RedisLinkState;
  /** Resolves when the server answers, be it with refusals; rejects after `timeoutMs` with `RedisUnavailableError`, whose cause is why the last attempt failed. */
  ready(timeoutMs: number): Promise<void>;
  /**
   * Runs any command: `command(["GET", "a"])`. A blocking one (WAITAOF, BLPOP) delays
   * the calls behind it, so it needs a link of its own and a longer deadline.
   */
  command(args: readonly string[], options?: CallOptions): Promise<RedisReply>;
  /** Runs a script by its hash, and loads it first where the server does not know it. */
  evalScript(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    options?: CallOptions,
  ): Promise<RedisReply>;
  /** Lets running calls end (their deadlines bound the wait), then breaks the connection. */
  close(): Promise<void>;
}

const DEADLINE_MS = 100;
/** TCP, TLS, sign-in, PING and the loading of scripts. */
const CONNECT_TIMEOUT_MS = 1_000;
const FAILURES_MAX = 5;
const FAILURE_WINDOW_MS = 1_000;
/** While the circuit is open, the server is asked this often whether it is back. */
const PROBE_EVERY_MS = 200;
/** An idle connection is tried out after this long. */
const IDLE_MS = 1_000;
/**
 * A connection without any answer for this long is replaced. A socket time-out
 * cannot do this: writing to a frozen server counts as activity.
 */
const SILENT_MS = PATIENT_MS;
/**
 * The probe does not need every right that calls need. So a refusal for want of
 * rights is over when the same call works; where nobody makes it, after this long.
 */
const DENIED_MS = 10_000;

/** Opens a link. It connects by itself and stays at it until it is closed. */
export function createRedisLink(options: RedisLinkOptions): RedisLink {
  const { address, log, now, random, scripts = [] } = options;
  const probeLine = options.probe ?? ["PING"];
  const defaultDeadlineMs = options.deadlineMs ?? DEADLINE_MS;
  const breaker = createBreaker(now);
  const readyWaiters = new Set<() => void>();
  let state: RedisLinkState = "connecting";
  let isProbing = false;
  let downCause: unknown;

  const enter = (next: RedisLinkState, fields: Record<string, unknown>) => {
    if (state === next || state === "closed") return;
    const change = { from: state, to: next, ...fields };
    state = next;
    if (next === "ready" || next === "closed") log.info("redis_state", change);
    else log.warn("redis_state", change);
    if (next !== "ready" && next !== "refusing") return;
    for (const wake of readyWaiters) wake();
  };

  const connection = openConnection({
    address,
    now,
    random,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    greeting: [["PING"], ...scripts.map(loadLine)],
    onUp() {
      calls.heard();
      breaker.succeeded();
      trial.renew();
    },
    onDown(cause) {
      downCause = cause;
      enter("offline", { cause });
    },
  });

  const calls = createCalls({
    now,
    send: (args) => connection.send(args),
    onAnswer(error, args) {
      if (error === null || !isRefusal(error, args)) {
        if (error instanceof RedisUnavailableError) return;
        if (breaker.succeeded()) trial.probe();
        if (error === null) trial.worked(args);
      } else if (isReplica(error)) {
        // It stays one; the address may lead to the new master by now.
        connection.drop(error);
      } else {
        trial.refused(error, args);
      }
    },
    onSilence() {
      if (calls.isPatient || !breaker.failed()) return;
      enter("stalled", { failures: FAILURES_MAX });
      probe();
    },
  });

  const trial = createTrial(
    now,
    () => calls.make(probeLine, { deadlineMs: SILENT_MS, mayQueue: false }),
    (reason, cause) =>
      reason === null
        ? enter("ready", {})
        : enter("refusing", { reason, cause }),
  );

  const probe = () => {
    if (isProbing || !connection.isUp) return;
    isProbing = true;
    void calls.make(["PING"], { deadlineMs: PROBE_EVERY_MS }).catch((error) => {
      const isSilent = now() - calls.heardAtMs >= SILENT_MS;
      if (isSilent && !calls.isPatient) connection.drop(error);
    }).finally(() => {
      isProbing = false;
    });
  };
  const heartbeat = setInterval(() => {
    if (calls.isPatient) return;
    if (breaker.isOpen || now() - calls.heardAtMs >= IDLE_MS) probe();
    else if (state !== "ready" && connection.isUp) trial.probe();
    // A master that was cut off from the others refuses writes, and stays one.
    if (state === "refusing") connection.reconsider();
  }, PROBE_EVERY_MS);

  /** Why a call cannot even be sent, or null. */
  const refusal = (): RedisUnavailableError | null => {
    if (state === "closed") {
      return new RedisUnavailableError("closed", "the link is closed");
    }
    if (!connection.isUp) {
      return new RedisUnavailableError("offline", "not connected");
    }
    if (breaker.isOpen) {
      return new RedisUnavailableError("circuit_open", "it stopped answering");
    }
    return null;
  };

  const command: RedisLink["command"] = (args, callOptions) => {
    const refused = refusal();
    if (refused !== null) return Promise.reject(refused);
    const deadlineMs = callOptions?.deadlineMs ?? defaultDeadlineMs;
    return calls.make(args, { ...callOptions, deadlineMs });
  };
  const load = createLoader(command, log);

  return {
    get state() {
      return state;
    },
    command,
    evalScript(script, keys, args, callOptions) {
      const sentAtMs = now();
      const line = evalLine(script, keys, args);
      return command(line, callOptions).catch(async (error) => {
        if (!isNoScript(error)) throw error;
        const deadlineMs = callOptions?.deadlineMs ?? defaultDeadlineMs;
        const leftMs = () => Math.max(1, deadlineMs - (now() - sentAtMs));
        await load(script, leftMs());
        return await command(line, { ...callOptions, deadlineMs: leftMs() });
      });
    },
    async ready(timeoutMs) {
      if (state === "ready" || state === "refusing") return;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const timer = setTimeout(() => {
        const detail = `not ready after ${timeoutMs} ms`;
        reject(new RedisUnavailableError("offline", detail, downCause));
      }, timeoutMs);
      readyWaiters.add(resolve);
      try {
        await promise;
      } finally {
        clearTimeout(timer);
        readyWaiters.delete(resolve);
      }
    },
    async close() {
      if (state === "closed") return;
      enter("closed", {});
      clearInterval(heartbeat);
      await calls.close();
      await connection.close();
    },
  };
}

function isReplica(error: Error): boolean {
  return error instanceof RedisUnavailableError &&
    error.reason === "read_only";
}

/** Loads scripts; when many calls miss the same one at once, it is loaded for all of them together. */
function createLoader(
  command: RedisLink["command"],
  log: Log,
): (script: RedisScript, deadlineMs: number) => Promise<RedisReply> {
  const loads = new Map<string, Promise<RedisReply>>();
  return (script, deadlineMs) => {
    const running = loads.get(script.sha);
    if (running !== undefined) return running;
    log.info("redis_script_load", { script: script.name });
    const options = { deadlineMs, mayQueue: false };
    const loading = command(loadLine(script), options).finally(() => {
      loads.delete(script.sha);
    });
    loads.set(script.sha, loading);
    return loading;
  };
}

function loadLine(script: RedisScript): readonly string[] {
  return ["SCRIPT", "LOAD", script.source];
}

function evalLine(
  script: RedisScript,
  keys: readonly string[],
  args: readonly string[],
): readonly string[] {
  return ["EVALSHA", script.sha, String(keys.length), ...keys, ...args];
}

/**
 * Opens after five failures in a row within a second, closes at the first success.
 * In a row, because a busy server that misses one deadline in ten thousand is not
 * away. It has no timer: the link probes while it is open.
 */
function createBreaker(now: MonotonicNow) {
  const failedAtMs: number[] = [];
  let isOpen = false;
  return {
    get isOpen() {
      return isOpen;
    },
    /** Returns true when this opened it. */
    failed(): boolean {
      if (isOpen) return false;
      const nowMs = now();
      failedAtMs.push(nowMs);
      if (failedAtMs.length > FAILURES_MAX) failedAtMs.shift();
      const [firstMs = nowMs] = failedAtMs;
      isOpen = failedAtMs.length === FAILURES_MAX &&
        nowMs - firstMs <= FAILURE_WINDOW_MS;
      return isOpen;
    },
    /** Returns true when this closed it. */
    succeeded(): boolean {
      failedAtMs.length = 0;
      const wasOpen = isOpen;
      isOpen = false;
      return wasOpen;
    },
  };
}

/**
 * Tells whether a server that answers does its work, by `onVerdict`: null, or why
 * not. One refusal says that it does not; that it does again is not believed of the
 * next best answer (a full server still reads, and says PONG), but of the probe.
 */
function createTrial(
  now: MonotonicNow,
  tryOut: () => Promise<RedisReply>,
  onVerdict: (reason: string | null, cause?: unknown) => void,
) {
  let isProbing = false;
  let denied: { call: string; untilMs: number } | null = null;

  const probe = () => {
    if (isProbing) return;
    isProbing = true;
    tryOut().then(() => {
      if (denied !== null && now() < denied.untilMs) return;
      denied = null;
      onVerdict(null);
    }).catch((error) => {
      // Of other failures every call is told, this one included.
      if (isDenied(error)) onVerdict("denied", error);
    }).finally(() => {
      isProbing = false;
    });
  };

  return {
    probe,
    /** A call got what it asked for. */
    worked(args: readonly string[]): void {
      if (denied === null || callOf(args) !== denied.call) return;
      denied = null;
      probe();
    },
    /** A call was refused, see `isRefusal`. */
    refused(
      error: RedisUnavailableError | RedisReplyError,
      args: readonly string[],
    ): void {
      if (error instanceof RedisUnavailableError) {
        return onVerdict(error.reason, error);
      }
      denied = { call: callOf(args), untilMs: now() + DENIED_MS };
      onVerdict("denied", error);
    },
    /** Forgets what was refused: the connection is a new one. */
    renew(): void {
      denied = null;
      probe();
    },
  };
}

/** What a call asks for: a script, or a command. */
function callOf([command = "", script = ""]: readonly string[]): string {
  return command === "EVALSHA" ? script : command;
}
