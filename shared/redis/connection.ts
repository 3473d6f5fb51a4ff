import type { MonotonicNow } from "../process/clock.ts";
import {
  type Client,
  connectInTime,
  makeClient,
  type RedisReply,
  type ServerAddress,
} from "./client.ts";
import { assertMaster, findMaster, type SentinelGroup } from "./sentinel.ts";

export type { RedisReply } from "./client.ts";

/** Where Redis is and as whom to sign in. */
export interface RedisAddress extends ServerAddress {
  /**
   * Asked for the master with every attempt to connect. The host of `url` does
   * not count then; its protocol, user and database do.
   */
  sentinels?: SentinelGroup;
}

export interface ConnectionOptions {
  address: RedisAddress;
  now: MonotonicNow;
  /** 0 ≤ x < 1, for the jitter between attempts. */
  random: () => number;
  /** Time for TCP, TLS, sign-in and the greeting together, and as much for asking sentinels. */
  connectTimeoutMs: number;
  /** Commands that must work before the connection counts as up. At least one: a frozen server accepts connections. */
  greeting: readonly (readonly string[])[];
  /** Connected, signed in, and the greeting was answered. */
  onUp: () => void;
  /** The connection broke, or an attempt failed. Called once per attempt. */
  onDown: (cause: unknown) => void;
}

/** One connection that is made again for as long as it takes. */
export interface Connection {
  readonly isUp: boolean;
  /** Sends a command behind those already sent. Only while `isUp`; rejects when the connection breaks. */
  send(args: readonly string[]): Promise<RedisReply>;
  /** Breaks the present connection, fails what waits on it, and starts anew. */
  drop(cause: Error): void;
  /** Asks the sentinels, where there are any, and drops the connection when they name another server. Once a second at most. */
  reconsider(): void;
  /** Breaks the connection for good. Resolves when nothing of it is left. */
  close(): Promise<void>;
}

const BACKOFF_FIRST_MS = 25;
/** Short enough that a restarted server is found again well within a second. */
const BACKOFF_MAX_MS = 500;
/** A connection that held this long was a good one: the next attempt starts without delay. */
const STABLE_MS = 1_000;
/** Sentinels are asked no more often than this by a connection that stands. */
const RECONSIDER_MS = 1_000;

/**
 * Keeps one connection to Redis. The client library's own reconnecting is off: a
 * fresh client per attempt makes every attempt the same, lets `close` end a wait,
 * and bounds the sign-in, which the library leaves without a deadline.
 */
export function openConnection(options: ConnectionOptions): Connection {
  const { address, now, random, onUp, onDown } = options;
  const closing = Promise.withResolvers<void>();
  const leftovers = new Set<Promise<void>>();
  let current: Connected | null = null;
  let lost = Promise.withResolvers<unknown>();
  let isClosed = false;
  let isAsking = false;
  let askedAtMs = -Infinity;

  const run = async () => {
    let failures = 0;
    while (!isClosed) {
      lost = Promise.withResolvers<unknown>();
      let connected: Connected;
      try {
        connected = await connect(options, lost.resolve, leftovers);
      } catch (error) {
        if (isClosed) break;
        onDown(error);
        await pause(backoffMs(failures++, random), closing.promise);
        continue;
      }
      if (isClosed) {
        connected.client.destroy();
        break;
      }
      const upAtMs = now();
      current = connected;
      onUp();
      const cause = await lost.promise;
      current = null;
      connected.client.destroy();
      if (isClosed) break;
      onDown(cause);
      if (now() - upAtMs >= STABLE_MS) failures = 0;
      await pause(backoffMs(failures++, random), closing.promise);
    }
  };
  const running = run();

  return {
    get isUp() {
      return current !== null && current.client.isReady;
    },
    send(args) {
      if (current === null) return Promise.reject(new Error("Not connected"));
      return current.client.sendCommand<RedisReply>(args);
    },
    drop(cause) {
      if (current !== null) lost.resolve(cause);
    },
    reconsider() {
      const { sentinels: group, ...rest } = address;
      if (group === undefined || current === null || isAsking) return;
      if (now() - askedAtMs < RECONSIDER_MS) return;
      askedAtMs = now();
      isAsking = true;
      const { url } = current;
      const { connectTimeoutMs: timeoutMs } = options;
      const asking = findMaster({ group, address: rest, timeoutMs, leftovers })
        .then((master) => {
          if (current?.url !== url || master.url === url) return;
          lost.resolve(new Error("The sentinels name another master"));
        }, () => {
          // Nobody knows of another one, which is a reason to stay.
        }).finally(() => {
          isAsking = false;
          leftovers.delete(asking);
        });
      leftovers.add(asking);
    },
    async close() {
      isClosed = true;
      closing.resolve();
      lost.resolve(null);
      await running;
      await Promise.all(leftovers);
    },
  };
}

/** A connection that stands, and where it leads. */
interface Connected {
  client: Client;
  url: string;
}

/** One attempt, from the question who is master to the answered greeting. */
async function connect(
  options: ConnectionOptions,
  onLost: (cause: unknown) => void,
  leftovers: Set<Promise<void>>,
): Promise<Connected> {
  const { address, greeting, connectTimeoutMs: timeoutMs } = options;
  const { sentinels: group } = address;
  const server = group === undefined
    ? address
    : await findMaster({ group, address, timeoutMs, leftovers });
  const client = makeClient(server, timeoutMs, onLost);
  await connectInTime(client, {
    timeoutMs,
    leftovers,
    greet: async () => {
      if (group !== undefined) assertMaster(await client.sendCommand(["ROLE"]));
      await Promise.all(greeting.map((args) => client.sendCommand(args)));
    },
  });
  return { client, url: server.url };
}

/** 25, 50, 100 … 500 ms, each shortened by up to half so that edges do not return in step. */
function backoffMs(failures: number, random: () => number): number {
  const fullMs = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** failures);
  return fullMs * (1 - random() / 2);
}

async function pause(ms: number, until: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const elapsed = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([elapsed, until]);
  clearTimeout(timer);
}
