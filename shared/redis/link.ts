/** The link of a service to Redis: calls that end in time, whatever the server does. */
import { createHash } from "node:crypto";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { settlesWithin } from "../process/lifecycle/serve.ts";
import { type CallOptions, Calls } from "./calls.ts";
import {
  Connection,
  type RedisAddress,
  type RedisReply,
} from "./connection.ts";
import {
  isDenied,
  RedisReplyError,
  RedisUnavailableError,
  type UnavailableReason,
} from "./errors.ts";

/** A Lua script and the hash under which Redis caches it. */
export interface RedisScript {
  /** The name of the script in the log. */
  readonly name: string;
  readonly source: string;
  /** SHA-1 of the source in lower-case hex, for EVALSHA. */
  readonly sha: string;
}

/** The constants of a script: numbers and words. */
export type ScriptConstants = Readonly<Record<string, number | string>>;

/** Words need no escapes in Lua. */
const WORD = /^\w+$/;
/** What may be a name: not a field, nor a part of a longer name. */
const NAME = /(?<![.\w])[A-Z]\w*/g;

/**
 * A script in which the names of `constants` stand for their values, as if a
 * preprocessor had run: `LEASE_MS` becomes `30000` with `{ LEASE_MS: 30_000 }`. Local
 * variables would be made for each call. Scripts are identified by their content, so
 * edges of two versions can share a server.
 */
export function defineScript(
  name: string,
  text: string,
  constants: ScriptConstants = {},
): RedisScript {
  const values = new Map(
    Object.entries(constants).map(([constant, value]) => {
      if (typeof value === "number") return [constant, String(value)];
      if (WORD.test(value)) return [constant, `'${value}'`];
      throw new TypeError(
        `Not a word: "${value}" of "${constant}" in "${name}"`,
      );
    }),
  );
  const source = text.replace(NAME, (word) => values.get(word) ?? word);
  const sha = createHash("sha1").update(source).digest("hex");
  return { name, source, sha };
}

/** What {@link createRedisLink} takes. */
export interface RedisLinkOptions {
  address: RedisAddress;
  log: Log;
  now: MonotonicNow;
  /** From 0 to 1, for the pauses between attempts to connect. */
  random: () => number;
  /** The deadline of calls without one of their own. Default: 100. */
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
 * The states, and what they mean to those who send requests. Each change is logged as
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

/** What a link knows about its server; only `ready` means that calls work. */
export type RedisLinkState = keyof typeof STATES;

const DEADLINE_MS = 100;
/**
 * The circuit opens after `SILENT_CALLS_MAX` calls without a reply, and closes at the
 * first reply. A single missing reply means nothing.
 */
const SILENT_CALLS_MAX = 5;
/** How often the server is probed while the link is not ready. */
const PROBE_EVERY_MS = 200;
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
export interface RedisLink {
  readonly state: RedisLinkState;
  /**
   * Runs any command. A blocking one (WAIT) delays the calls after it, so it needs a
   * link of its own. Rejects with `RedisUnavailableError`, or with `RedisReplyError` if
   * the server refuses the command.
   */
  command(
    args: readonly string[],
    options?: CallOptions,
  ): Promise<RedisReply>;
  /**
   * Runs a script by its hash, and loads it first if the server does not have it.
   * Rejects as `command` does.
   */
  evalScript(
    script: RedisScript,
    input: ScriptInput,
    options?: CallOptions,
  ): Promise<RedisReply>;
  /**
   * Resolves when the server has replied, even with an error; rejects after
   * `timeoutMs` with `RedisUnavailableError`, whose cause is the error of the last
   * attempt.
   */
  ready(timeoutMs: number): Promise<void>;
  /**
   * Waits until every running call is answered or out of time, then closes the
   * connection.
   */
  close(): Promise<void>;
}

/** What a script gets: `KEYS`, which name all keys that it uses, and `ARGV`. */
export interface ScriptInput {
  keys?: readonly string[];
  args?: readonly string[];
}

/**
 * Opens a link, which reconnects by itself until it is closed: within a second after
 * the server is back.
 */
export function createRedisLink(options: RedisLinkOptions): RedisLink {
  return new ReconnectingLink(options);
}

class ReconnectingLink implements RedisLink {
  readonly #log: Log;
  readonly #now: MonotonicNow;
  readonly #deadlineMs: number;
  readonly #probeLine: readonly string[];
  readonly #connection: Connection;
  readonly #calls: Calls;
  readonly #heartbeat: ReturnType<typeof setInterval>;
  /** Settles when the server has replied for the first time. */
  readonly #firstReply = Promise.withResolvers<void>();
  #state: RedisLinkState = "connecting";
  #silentCalls = 0;
  #isProbing = false;
  /** Why the last attempt to connect failed. */
  #downCause: unknown;

  constructor(options: RedisLinkOptions) {
    const { address, log, now, random, scripts = [] } = options;
    this.#log = log;
    this.#now = now;
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
    this.#probeLine = options.probe ?? ["PING"];
    this.#connection = new Connection({
      address,
      now,
      random,
      greeting: [["PING"], ...scripts.map(loadLine)],
      onUp: () => this.#connected(),
      onDown: (cause) => this.#disconnected(cause),
    });
    this.#calls = new Calls({
      now,
      send: (args) => this.#connection.send(args),
      onAnswer: (error) => this.#noteAnswer(error),
      onSilence: () => this.#noteSilence(),
    });
    this.#heartbeat = setInterval(() => this.#beat(), PROBE_EVERY_MS);
  }

  get state(): RedisLinkState {
    return this.#state;
  }

  command(
    args: readonly string[],
    options: CallOptions = {},
  ): Promise<RedisReply> {
    if (this.#state === "closed") {
      return refused("closed", "the link is closed");
    }
    if (!this.#connection.isUp) return refused("offline", "not connected");
    if (this.#isCircuitOpen) {
      return refused("circuit_open", "it stopped answering");
    }
    const { deadlineMs = this.#deadlineMs, onAbandoned } = options;
    return this.#calls.make(args, { deadlineMs, onAbandoned });
  }

  evalScript(
    script: RedisScript,
    { keys = [], args = [] }: ScriptInput,
    options: CallOptions = {},
  ): Promise<RedisReply> {
    const sentAtMs = this.#now();
    const line = ["EVALSHA", script.sha, String(keys.length)]
      .concat(keys, args);
    return this.command(line, options).catch(async (error) => {
      const isMissing = error instanceof RedisReplyError &&
        error.message.startsWith("NOSCRIPT");
      if (!isMissing) throw error;
      this.#log.info("redis_script_load", { script: script.name });
      const wholeMs = options.deadlineMs ?? this.#deadlineMs;
      const deadlineMs = Math.max(1, wholeMs - (this.#now() - sentAtMs));
      const loading = this.command(loadLine(script), { deadlineMs });
      // Executed in this order.
      const again = this.command(line, { ...options, deadlineMs });
      const [reply] = await Promise.all([again, loading]);
      return reply;
    });
  }

  async ready(timeoutMs: number): Promise<void> {
    if (await settlesWithin(this.#firstReply.promise, timeoutMs)) return;
    const detail = `not ready after ${timeoutMs} ms`;
    const cause = this.#downCause;
    throw new RedisUnavailableError("offline", detail, cause);
  }

  async close(): Promise<void> {
    if (this.#state === "closed") return;
    this.#enter("closed");
    clearInterval(this.#heartbeat);
    await this.#calls.close();
    await this.#connection.close();
  }

  get #isCircuitOpen(): boolean {
    return this.#silentCalls >= SILENT_CALLS_MAX;
  }

  #enter(next: RedisLinkState, fields: Record<string, unknown> = {}): void {
    if (this.#state === next || this.#state === "closed") return;
    const message = STATES[next];
    const change = { from: this.#state, to: next, message, ...fields };
    this.#state = next;
    const isExpected = next === "ready" || next === "closed";
    if (isExpected) this.#log.info("redis_state", change);
    else this.#log.warn("redis_state", change);
    if (next === "ready" || next === "refusing") this.#firstReply.resolve();
  }

  #connected(): void {
    this.#calls.noteAnswer();
    this.#silentCalls = 0;
    this.#probe();
  }

  #disconnected(cause: unknown): void {
    this.#downCause = cause;
    this.#enter("offline", { error: cause });
  }

  #noteAnswer(error: Error | null): void {
    const reason = unavailableReason(error);
    if (reason === "connection_lost") return;
    const wasOpen = this.#isCircuitOpen;
    this.#silentCalls = 0;
    // By now the address may lead to the new master, or the sentinels may name it.
    if (reason === "read_only") this.#connection.drop(error);
    else if (reason !== null || wasOpen) this.#probe();
  }

  #noteSilence(): void {
    if (this.#calls.silentForMs === 0) return;
    this.#silentCalls += 1;
    if (!this.#isCircuitOpen) return;
    this.#enter("stalled", { silentCalls: this.#silentCalls });
    this.#probe();
  }

  #beat(): void {
    const isSilent = this.#calls.silentForMs >= SILENT_MS;
    if (this.#state !== "ready" || isSilent) this.#probe();
    // A master that has lost its replicas refuses writes, but still claims to be the
    // master.
    if (this.#state === "refusing") this.#connection.reconsider();
  }

  /** Finds out whether the server is usable, unless that is already being done. */
  async #probe(): Promise<void> {
    if (this.#isProbing || !this.#connection.isUp) return;
    this.#isProbing = true;
    // A server that is just back may be slow at first; one that stalled must be fast.
    const isSuspected = this.#state === "ready" || this.#isCircuitOpen;
    const deadlineMs = isSuspected ? PROBE_EVERY_MS : SILENT_MS;
    try {
      await this.#calls.make(this.#probeLine, { deadlineMs });
      this.#enter("ready");
    } catch (error) {
      const reason = unavailableReason(error);
      if (reason === "refused" || reason === "denied") {
        this.#enter("refusing", { reason, error });
      } else if (this.#calls.silentForMs >= SILENT_MS) {
        this.#connection.drop(error);
      }
    }
    this.#isProbing = false;
  }
}

const refused = (reason: UnavailableReason, detail: string) =>
  Promise.reject(new RedisUnavailableError(reason, detail));

/** Why the server is unavailable according to a call's result; null if it is not. */
function unavailableReason(
  error: unknown,
): UnavailableReason | "denied" | null {
  if (error instanceof RedisUnavailableError) return error.reason;
  return isDenied(error) ? "denied" : null;
}

const loadLine = ({ source }: RedisScript) => ["SCRIPT", "LOAD", source];
