import type { MonotonicNow } from "../clock.ts";
import type { Log } from "../log.ts";
import { createBreaker } from "./breaker.ts";
import {
  openConnection,
  type RedisAddress,
  type RedisReply,
} from "./connection.ts";
import { createDeadlines, type Timed } from "./deadlines.ts";
import {
  classifyRedisError,
  isNoScript,
  RedisUnavailableError,
} from "./errors.ts";
import type { RedisScript } from "./script.ts";

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
}

/**
 * `connecting` until the first answer, then `ready`; `stalled` when the server
 * has stopped answering; `offline` while there is no connection; `closed` at the end.
 */
export type RedisLinkState =
  | "connecting"
  | "ready"
  | "stalled"
  | "offline"
  | "closed";

export interface CallOptions {
  /**
   * How long the server may be silent before the call is given up. Default: the
   * link's. While it answers other calls in time, this one waits its turn behind
   * them, up to five times as long.
   */
  deadlineMs?: number;
  /**
   * Called once for a call that was given up at its deadline, as soon as its fate
   * is known: with the late answer, or with null when it will never be known
   * because the connection broke. Not called when the server refused the call.
   */
  onAbandoned?: (reply: RedisReply | null) => void;
}

/**
 * The only way this product talks to Redis. Every call ends in time, with an
 * answer, a {@link RedisUnavailableError} or a `RedisReplyError`: within its
 * deadline when the server has fallen silent, at once when that is known already.
 * The server is found again without a restart, within a second of its return.
 * Calls made in one turn of the event loop travel together.
 */
export interface RedisLink {
  readonly state: RedisLinkState;
  /** Resolves when the link is ready; rejects with `RedisUnavailableError` after `timeoutMs`. */
  ready(timeoutMs: number): Promise<void>;
  /** Runs any command: `command(["GET", "a"])`. A blocking one holds up the calls behind it. */
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
/**
 * A burst is answered in order, and on a busy machine its tail takes longer than
 * the deadline. Refusing it would turn load into an outage: as long as answers
 * come in time, the tail waits, up to this many deadlines.
 */
const QUEUED_DEADLINES_MAX = 5;
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
const SILENT_MS = 1_000;

/** A call whose answer is awaited. */
interface Pending extends Timed {
  expiresAtMs: number;
  /** Given up at its deadline; the answer may still come. */
  isAbandoned: boolean;
}

/** Opens a link. It connects by itself and stays at it until it is closed. */
export function createRedisLink(options: RedisLinkOptions): RedisLink {
  const { address, log, now, random } = options;
  const defaultDeadlineMs = options.deadlineMs ?? DEADLINE_MS;
  const deadlines = createDeadlines(now);
  const breaker = createBreaker({
    now,
    failuresMax: FAILURES_MAX,
    windowMs: FAILURE_WINDOW_MS,
  });
  const readyWaiters = new Set<() => void>();
  const emptyWaiters = new Set<() => void>();
  const loads = new Map<string, Promise<RedisReply>>();
  let state: RedisLinkState = "connecting";
  let heardAtMs = now();
  /** Last answer to a call that was still waited for. Late ones prove nothing to those behind. */
  let answeredAtMs = -Infinity;
  let isProbing = false;
  /** Calls that may be silent for long, such as WAITAOF: no verdict while one runs. */
  let patientCalls = 0;

  const enter = (next: RedisLinkState, fields: Record<string, unknown>) => {
    if (state === next || state === "closed") return;
    const change = { from: state, to: next, ...fields };
    state = next;
    if (next === "ready" || next === "closed") log.info("redis_state", change);
    else log.warn("redis_state", change);
    if (next !== "ready") return;
    for (const wake of readyWaiters) wake();
  };

  const connection = openConnection({
    address,
    now,
    random,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    greeting: [
      ["PING"],
      ...(options.scripts ?? []).map((each) => loadLine(each)),
    ],
    onUp() {
      heardAtMs = now();
      breaker.succeeded();
      enter("ready", {});
    },
    onDown: (cause) => enter("offline", { cause }),
  });

  const succeeded = () => {
    heardAtMs = now();
    answeredAtMs = heardAtMs;
    if (breaker.succeeded()) enter("ready", {});
  };
  const failed = () => {
    if (!breaker.failed()) return;
    enter("stalled", { failures: FAILURES_MAX });
    probe();
  };

  const send = (
    args: readonly string[],
    deadlineMs: number,
    onAbandoned: CallOptions["onAbandoned"],
  ): Promise<RedisReply> =>
    new Promise((resolve, reject) => {
      const isPatient = deadlineMs > SILENT_MS;
      const sentAtMs = now();
      const pending: Pending = {
        expiresAtMs: sentAtMs + deadlineMs,
        isAbandoned: false,
        expire() {
          const quietAtMs = Math.min(
            answeredAtMs + deadlineMs,
            sentAtMs + deadlineMs * QUEUED_DEADLINES_MAX,
          );
          if (quietAtMs > now()) {
            pending.expiresAtMs = quietAtMs;
            deadlines.add(pending);
            return;
          }
          pending.isAbandoned = true;
          finish();
          failed();
          const detail = `no answer within ${deadlineMs} ms`;
          reject(new RedisUnavailableError("deadline", detail));
        },
      };
      const finish = () => {
        if (isPatient) patientCalls -= 1;
        if (deadlines.size > 0) return;
        for (const wake of emptyWaiters) wake();
      };
      const settle = () => {
        deadlines.remove(pending);
        finish();
      };
      if (isPatient) patientCalls += 1;
      deadlines.add(pending);
      connection.send(args).then((reply) => {
        if (pending.isAbandoned) {
          heardAtMs = now();
          onAbandoned?.(reply);
          return;
        }
        settle();
        succeeded();
        resolve(reply);
      }, (error) => {
        const typed = classifyRedisError(error);
        const isLost = typed instanceof RedisUnavailableError &&
          typed.mayHaveRun;
        if (!isLost) heardAtMs = now();
        if (pending.isAbandoned) {
          if (isLost) onAbandoned?.(null);
          return;
        }
        settle();
        judge(typed);
        reject(typed);
      });
    });

  const judge = (error: ReturnType<typeof classifyRedisError>) => {
    if (!(error instanceof RedisUnavailableError)) return succeeded();
    if (error.reason === "connection_lost") return failed();
    // A replica stays one; the address may lead to the new master by now.
    if (error.reason === "read_only") connection.drop(error);
  };

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
    return send(args, deadlineMs, callOptions?.onAbandoned);
  };

  const probe = () => {
    if (isProbing || !connection.isUp) return;
    isProbing = true;
    void send(["PING"], PROBE_EVERY_MS, undefined).catch((error) => {
      if (!(error instanceof RedisUnavailableError)) return;
      const silentMs = now() - heardAtMs;
      if (silentMs >= SILENT_MS && patientCalls === 0) connection.drop(error);
    }).finally(() => {
      isProbing = false;
    });
  };
  const heartbeat = setInterval(() => {
    if (patientCalls > 0) return;
    if (breaker.isOpen || now() - heardAtMs >= IDLE_MS) probe();
  }, PROBE_EVERY_MS);

  /** Many calls may miss a script at once: it is loaded for all of them together. */
  const load = (script: RedisScript, deadlineMs: number) => {
    const running = loads.get(script.sha);
    if (running !== undefined) return running;
    log.info("redis_script_load", { script: script.name });
    const loading = command(loadLine(script), { deadlineMs }).finally(() => {
      loads.delete(script.sha);
    });
    loads.set(script.sha, loading);
    return loading;
  };

  return {
    get state() {
      return state;
    },
    command,
    evalScript(script, keys, args, callOptions) {
      const startedAtMs = now();
      const line = [
        "EVALSHA",
        script.sha,
        String(keys.length),
        ...keys,
        ...args,
      ];
      const deadlineMs = callOptions?.deadlineMs ?? defaultDeadlineMs;
      const leftMs = () => Math.max(1, deadlineMs - (now() - startedAtMs));
      return command(line, callOptions).catch(async (error) => {
        if (!isNoScript(error)) throw error;
        await load(script, leftMs());
        return await command(line, { ...callOptions, deadlineMs: leftMs() });
      });
    },
    async ready(timeoutMs) {
      if (state === "ready") return;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const timer = setTimeout(() => {
        const detail = `not ready after ${timeoutMs} ms`;
        reject(new RedisUnavailableError("offline", detail));
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
      if (deadlines.size > 0) {
        await new Promise<void>((resolve) => emptyWaiters.add(resolve));
      }
      deadlines.close();
      await connection.close();
    },
  };
}

function loadLine(script: RedisScript): readonly string[] {
  return ["SCRIPT", "LOAD", script.source];
}
