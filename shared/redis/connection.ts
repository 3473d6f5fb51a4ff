/** One connection to Redis, which is made again whenever it is lost. */
import { createClient } from "redis";
import type { MonotonicNow } from "../process/clock.ts";
import { settlesWithin } from "../process/serve.ts";

/** What Redis answers in protocol version 2: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** Where one server is and the credentials for it. */
export interface ServerAddress {
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

/** The sentinels that watch one master and its replicas. */
export interface SentinelGroup {
  /** The name of the master in the sentinels' configuration: `sentinel monitor <name> …`. */
  name: string;
  /** `host:port` of each. */
  servers: readonly string[];
  /** Credentials for the sentinels, which have users of their own. */
  username?: string;
  password?: string;
}

/** Where Redis is and the credentials for it. */
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

const BACKOFF_FIRST_MS = 25;
/** Short enough that a restarted server is found again well within a second. */
const BACKOFF_MAX_MS = 500;
/** A connection that held this long was a good one: the next attempt starts without delay. */
const STABLE_MS = 1_000;
/** An established connection asks the sentinels no more often than this. */
const RECONSIDER_MS = 1_000;

/**
 * Keeps one connection to Redis. The client library's own reconnecting is off: a
 * fresh client per attempt makes every attempt the same, lets `close` end a wait,
 * and bounds the sign-in, which the library leaves without a deadline.
 */
export function openConnection(options: ConnectionOptions) {
  const { now, random, onUp, onDown } = options;
  /** Ends the wait between two attempts. */
  let retry = Promise.withResolvers<void>();
  /** Sockets that were given up and are not closed yet. */
  const leftovers = new Set<Promise<void>>();
  let current: { client: Client; url: string } | null = null;
  let lost = Promise.withResolvers<unknown>();
  let isClosed = false;
  let askedAtMs = -Infinity;

  const run = async () => {
    for (let failures = 0; !isClosed; failures += 1) {
      lost = Promise.withResolvers<unknown>();
      let cause: unknown;
      try {
        current = await connect(options, lost.resolve, leftovers);
        const upAtMs = now();
        if (isClosed) lost.resolve(null);
        else onUp();
        cause = await lost.promise;
        if (now() - upAtMs >= STABLE_MS) failures = 0;
      } catch (error) {
        cause = error;
      }
      current?.client.destroy();
      current = null;
      if (isClosed) return;
      onDown(cause);
      retry = Promise.withResolvers<void>();
      await settlesWithin(retry.promise, backoffMs(failures, random));
    }
  };
  const running = run();

  return {
    get isUp(): boolean {
      return current !== null && current.client.isReady;
    },
    /** Sends a command behind those already sent. Only while `isUp`; rejects when the connection breaks. */
    send(args: readonly string[]): Promise<RedisReply> {
      if (current === null) return Promise.reject(new Error("Not connected"));
      return current.client.sendCommand<RedisReply>(args);
    },
    /** Closes the present connection, fails what waits on it, and connects again. */
    drop(cause: unknown): void {
      if (current !== null) lost.resolve(cause);
    },
    /** Asks the sentinels, where there are any, and drops the connection when they name another server. Once a second at most. */
    reconsider(): void {
      if (options.address.sentinels === undefined || current === null) return;
      if (now() - askedAtMs < RECONSIDER_MS) return;
      askedAtMs = now();
      const { url } = current;
      const asking = findMaster(options, leftovers).then((master) => {
        if (current?.url !== url || master.url === url) return;
        lost.resolve(new Error("The sentinels name another master"));
      }, () => {
        // No sentinel names another one: stay.
      }).finally(() => leftovers.delete(asking));
      leftovers.add(asking);
    },
    /** Closes the connection for good. Resolves when nothing of it is left. */
    async close(): Promise<void> {
      isClosed = true;
      retry.resolve();
      lost.resolve(null);
      await running;
      await Promise.all(leftovers);
    },
  };
}

/** One attempt, from finding the master to the answered greeting. */
async function connect(
  options: ConnectionOptions,
  onLost: (cause: unknown) => void,
  leftovers: Set<Promise<void>>,
): Promise<{ client: Client; url: string }> {
  const { address, greeting, connectTimeoutMs: timeoutMs } = options;
  const hasSentinels = address.sentinels !== undefined;
  const server = hasSentinels ? await findMaster(options, leftovers) : address;
  const client = makeClient(server, timeoutMs, onLost);
  await connectInTime(client, {
    timeoutMs,
    leftovers,
    greet: async () => {
      if (hasSentinels) assertMaster(await client.sendCommand(["ROLE"]));
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

/** A client of the library, connected or not. */
type Client = ReturnType<typeof makeClient>;

/** How one client is connected. */
interface ConnectOptions<T> {
  /** Time for TCP, TLS, sign-in and the greeting together. */
  timeoutMs: number;
  /** The first commands. A frozen server accepts connections, but answers nothing. */
  greet: (client: Client) => Promise<T>;
  /** Attempts that were given up and still hold a socket; each removes itself. */
  leftovers: Set<Promise<void>>;
}

/** Makes a client that does not connect by itself. `onLost` is told every error of its socket. */
function makeClient(
  address: ServerAddress,
  connectTimeoutMs: number,
  onLost: (cause: unknown) => void,
) {
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

function tlsOf({ url, tlsCa, tlsCert, tlsKey }: ServerAddress) {
  if (!url.startsWith("rediss:")) return {};
  return {
    tls: true as const,
    // Never aborted: it makes node listen for errors of the socket from the start.
    // With TLS 1.3 a server refuses a certificate after it has connected, in a
    // moment when the library does not listen, and that would end the process.
    signal: new AbortController().signal,
    ...(tlsCa === undefined ? {} : { ca: tlsCa }),
    ...(tlsCert === undefined ? {} : { cert: tlsCert }),
    ...(tlsKey === undefined ? {} : { key: tlsKey }),
  };
}

/** Connects and greets, and returns what the greeting brought. Rejects after `timeoutMs`; the client is destroyed then. */
async function connectInTime<T>(
  client: Client,
  { timeoutMs, greet, leftovers }: ConnectOptions<T>,
): Promise<T> {
  const connecting = client.connect().then(() => greet(client));
  try {
    if (await settlesWithin(connecting, timeoutMs)) return await connecting;
    throw new Error(`Not connected after ${timeoutMs} ms`);
  } catch (error) {
    client.destroy();
    // Destroyed while TCP was connecting, the library finishes connecting and
    // leaves the socket open: it has to be destroyed once more.
    const ended = connecting.then(() => {}, () => {}).then(() => {
      client.destroy();
      leftovers.delete(ended);
    });
    leftovers.add(ended);
    throw error;
  }
}

/**
 * Returns the address of the master. All sentinels are asked at once, and the answer
 * of a majority is used as soon as there is one, so that a lost sentinel costs no time
 * and one that was partitioned with an old master is not followed. Without a majority,
 * the most frequent answer is used. During a failover that may still be the old master,
 * so the caller checks with {@link assertMaster} and asks again. Rejects when no
 * sentinel knows the master.
 */
export async function findMaster(
  { address, connectTimeoutMs: timeoutMs }: Pick<
    ConnectionOptions,
    "address" | "connectTimeoutMs"
  >,
  leftovers: Set<Promise<void>>,
): Promise<ServerAddress> {
  const { sentinels, username: _user, password: _password, ...rest } = address;
  const { name, servers = [], username, password } = sentinels ?? {};
  const answers = servers.map(async (server) => {
    const client = makeClient(
      {
        ...rest,
        url: `${new URL(address.url).protocol}//${server}`,
        ...(username === undefined ? {} : { username }),
        ...(password === undefined ? {} : { password }),
      },
      timeoutMs,
      () => {}, // A lost connection fails the question that is on its way.
    );
    const question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name ?? ""];
    const reply = await connectInTime<RedisReply>(client, {
      timeoutMs,
      leftovers,
      greet: () => client.sendCommand(question),
    });
    client.destroy();
    return masterUrl(address.url, reply, server);
  });
  try {
    const { sentinels: _, ...server } = address;
    return { ...server, url: await agreed(answers) };
  } catch (cause) {
    const detail = `no sentinel of ${servers.length} names it`;
    throw new Error(`Cannot find the master "${name}": ${detail}`, { cause });
  }
}

/** The answer of a majority at once, otherwise the most frequent one when all have ended. */
async function agreed(answers: readonly Promise<string>[]): Promise<string> {
  const votes = new Map<string, number>();
  const majority = Promise.withResolvers<string>();
  const counted = answers.map(async (answer) => {
    const url = await answer;
    const count = (votes.get(url) ?? 0) + 1;
    votes.set(url, count);
    if (count > answers.length / 2) majority.resolve(url);
  });
  const all = Promise.allSettled(counted).then(() => {
    const [most] = [...votes].toSorted(([, a], [, b]) => b - a);
    return most?.[0] ?? Promise.any(answers);
  });
  return await Promise.race([majority.promise, all]);
}

/** `["10.0.0.5", "6379"]`, or nil for a name that this sentinel does not watch. */
function masterUrl(url: string, reply: RedisReply, server: string): string {
  const [host, port] = Array.isArray(reply) ? reply : [];
  if (typeof host !== "string" || typeof port !== "string") {
    throw new Error(`The sentinel at ${server} does not know this master`);
  }
  const master = new URL(url);
  master.hostname = host.includes(":") ? `[${host}]` : host;
  master.port = port;
  return master.href;
}

/** Throws unless the answer to `ROLE` is a master's. */
export function assertMaster(role: RedisReply): void {
  const [word] = Array.isArray(role) ? role : [role];
  if (word !== "master") {
    throw new Error(`The server that was named as master says "${word}"`);
  }
}
