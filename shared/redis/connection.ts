import { createClient } from "redis";
import type { MonotonicNow } from "../clock.ts";

/** What Redis answers in protocol version 2: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** Where a server is and as whom to sign in. */
export interface RedisAddress {
  /** `redis://host:port/db`, or `rediss:` for TLS. A user and password in it are used. */
  url: string;
  username?: string;
  password?: string;
  /** PEM text of the authority to trust with `rediss:`; absent: the system's. */
  tlsCa?: string;
  /** PEM text of this client's own certificate and key, for a server that asks for one. */
  tlsCert?: string;
  tlsKey?: string;
  /** Shown by `CLIENT LIST`. Letters, digits, `-`, `_`. */
  clientName?: string;
}

export interface ConnectionOptions {
  address: RedisAddress;
  now: MonotonicNow;
  /** 0 ≤ x < 1, for the jitter between attempts. */
  random: () => number;
  /** Time for TCP, TLS, sign-in and the greeting together. */
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
  /** Breaks the connection for good. Resolves when nothing of it is left. */
  close(): Promise<void>;
}

const BACKOFF_FIRST_MS = 25;
/** Short enough that a restarted server is found again well within a second. */
const BACKOFF_MAX_MS = 500;
/** A connection that held this long was a good one: the next attempt starts without delay. */
const STABLE_MS = 1_000;

type Client = ReturnType<typeof makeClient>;

/**
 * Keeps one connection to Redis. The client library's own reconnecting is off: a
 * fresh client per attempt makes every attempt the same, lets `close` end a wait,
 * and bounds the sign-in, which the library leaves without a deadline.
 */
export function openConnection(options: ConnectionOptions): Connection {
  const { now, random, onUp, onDown } = options;
  const closing = Promise.withResolvers<void>();
  const attempts = new Set<Promise<void>>();
  let current: Client | null = null;
  let lost = Promise.withResolvers<unknown>();
  let isClosed = false;

  const run = async () => {
    let failures = 0;
    while (!isClosed) {
      lost = Promise.withResolvers<unknown>();
      const client = makeClient(options, lost.resolve);
      try {
        await connectInTime(client, options, attempts);
      } catch (error) {
        if (isClosed) break;
        onDown(error);
        await pause(backoffMs(failures++, random), closing.promise);
        continue;
      }
      if (isClosed) {
        client.destroy();
        break;
      }
      const upAtMs = now();
      current = client;
      onUp();
      const cause = await lost.promise;
      current = null;
      client.destroy();
      if (isClosed) break;
      onDown(cause);
      if (now() - upAtMs >= STABLE_MS) failures = 0;
      await pause(backoffMs(failures++, random), closing.promise);
    }
  };
  const running = run();

  return {
    get isUp() {
      return current !== null && current.isReady;
    },
    send(args) {
      if (current === null) return Promise.reject(new Error("Not connected"));
      return current.sendCommand<RedisReply>(args);
    },
    drop(cause) {
      if (current !== null) lost.resolve(cause);
    },
    async close() {
      isClosed = true;
      closing.resolve();
      lost.resolve(null);
      await running;
      await Promise.all(attempts);
    },
  };
}

function makeClient(
  options: ConnectionOptions,
  onLost: (cause: unknown) => void,
) {
  const { address, connectTimeoutMs } = options;
  const client = createClient({
    url: address.url,
    ...(address.username === undefined ? {} : { username: address.username }),
    ...(address.password === undefined ? {} : { password: address.password }),
    ...(address.clientName === undefined ? {} : { name: address.clientName }),
    socket: {
      connectTimeout: connectTimeoutMs,
      reconnectStrategy: false,
      ...tlsOf(address),
    },
    RESP: 2,
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: "disabled",
    // The library's time-out ends when a command is written, so it does not help
    // against a frozen server, and it costs an AbortSignal per command.
    commandOptions: { timeout: 0 },
  });
  client.on("error", onLost);
  return client;
}

function tlsOf({ tlsCa, tlsCert, tlsKey }: RedisAddress) {
  if (tlsCa === undefined && tlsCert === undefined) return {};
  return {
    tls: true as const,
    ...(tlsCa === undefined ? {} : { ca: tlsCa }),
    ...(tlsCert === undefined ? {} : { cert: tlsCert }),
    ...(tlsKey === undefined ? {} : { key: tlsKey }),
  };
}

async function connectInTime(
  client: Client,
  options: ConnectionOptions,
  attempts: Set<Promise<void>>,
): Promise<void> {
  const timeoutMs = options.connectTimeoutMs;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new Error(`Not connected after ${timeoutMs} ms`)),
      timeoutMs,
    );
  });
  const connecting = connectAndGreet(client, options.greeting);
  try {
    await Promise.race([connecting, late]);
  } catch (error) {
    client.destroy();
    // Destroyed while TCP was connecting, the library finishes connecting and
    // leaves the socket open: it has to be destroyed once more.
    const ended = connecting.catch(() => {}).then(() => {
      client.destroy();
      attempts.delete(ended);
    });
    attempts.add(ended);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

async function connectAndGreet(
  client: Client,
  greeting: ConnectionOptions["greeting"],
): Promise<void> {
  await client.connect();
  await Promise.all(greeting.map((args) => client.sendCommand(args)));
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
