/** One connection to Redis, which is re-established whenever it is lost. */
import { createClient } from "redis";
import type { MonotonicNow } from "../process/clock.ts";
import { settlesWithin } from "../process/serve.ts";

/** A reply in protocol version 2: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** The address of one server and the credentials for it. */
export interface ServerAddress {
  /** `redis://host:port/db`, or `rediss:` for TLS. A user and password in it are used. */
  url: string;
  username?: string;
  password?: string;
  /** PEM text of the authority to trust with `rediss:`. Default: the system's. */
  tlsCa?: string;
  /** PEM text of the client's certificate and key, for a server that requires one. */
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

/** The address of Redis and the credentials for it. */
export interface RedisAddress extends ServerAddress {
  /**
   * If set, they are asked for the master with every attempt to connect. The host of
   * `url` is then ignored, but not its protocol, user and database.
   */
  sentinels?: SentinelGroup;
}

export interface ConnectionOptions {
  address: RedisAddress;
  now: MonotonicNow;
  /** 0 ≤ x < 1, for the jitter between attempts. */
  random: () => number;
  /** Time for TCP, TLS, sign-in and the greeting in total, and the same again for the sentinels. */
  connectTimeoutMs: number;
  /** Commands that must work before the connection counts as up. At least one: a frozen server accepts connections. */
  greeting: readonly (readonly string[])[];
  /** Connected, signed in, and the greeting was answered. */
  onUp: () => void;
  /** The connection broke, or an attempt failed. Called once per attempt. */
  onDown: (cause: unknown) => void;
}

const BACKOFF_FIRST_MS = 25;
/** Short enough to reconnect to a restarted server well within a second. */
const BACKOFF_MAX_MS = 500;
/** After a connection that lasted this long, the back-off starts anew. */
const STABLE_MS = 1_000;
/** An established connection asks the sentinels at most once in this time. */
const RECONSIDER_MS = 1_000;

/**
 * Keeps one connection to Redis. The client library's own reconnect is disabled: with
 * a new client per attempt, all attempts are alike, `close` can end a wait, and the
 * sign-in has a deadline, which the library does not set.
 */
export function openConnection(options: ConnectionOptions) {
  const { now, random, onUp, onDown } = options;
  /** Ends the wait between two attempts. */
  let retry = Promise.withResolvers<void>();
  /** Sockets that were abandoned but are not closed yet. */
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
    /** Sends a command after those already sent. Only while `isUp`; rejects if the connection is lost. */
    send(args: readonly string[]): Promise<RedisReply> {
      if (current === null) return Promise.reject(new Error("Not connected"));
      return current.client.sendCommand<RedisReply>(args);
    },
    /** Closes the current connection, fails the calls that wait on it, and connects again. */
    drop(cause: unknown): void {
      if (current !== null) lost.resolve(cause);
    },
    /** Asks the sentinels, if any, and drops the connection if they name another server. At most once a second. */
    reconsider(): void {
      if (options.address.sentinels === undefined || current === null) return;
      if (now() - askedAtMs < RECONSIDER_MS) return;
      askedAtMs = now();
      const { url } = current;
      const asking = findMaster(options, leftovers).then((master) => {
        if (current?.url !== url || master.url === url) return;
        lost.resolve(new Error("The sentinels name another master"));
      }, () => {
        // No sentinel answered: keep the connection.
      }).finally(() => leftovers.delete(asking));
      leftovers.add(asking);
    },
    /** Closes the connection for good. Resolves when all of its sockets are closed. */
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

/** Options of {@link connectInTime}. */
interface ConnectOptions<T> {
  /** Time for TCP, TLS, sign-in and the greeting in total. */
  timeoutMs: number;
  /** The first commands. A frozen server accepts connections, but answers nothing. */
  greet: (client: Client) => Promise<T>;
  /** Abandoned attempts that still hold a socket; each removes itself. */
  leftovers: Set<Promise<void>>;
}

/** Creates a client that does not connect by itself. `onLost` is called with every error of its socket. */
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
    // The library's timeout ends when a command is written, so it is useless against a
    // frozen server, and it costs an AbortSignal per command.
    commandOptions: { timeout: 0 },
  });
  client.on("error", onLost);
  return client;
}

function tlsOf({ url, tlsCa, tlsCert, tlsKey }: ServerAddress) {
  if (!url.startsWith("rediss:")) return {};
  return {
    tls: true as const,
    // Never aborted. It makes Node listen for errors of the socket from the start: with
    // TLS 1.3 a server refuses a certificate only after the handshake, when the library
    // has no listener yet, and the error would end the process.
    signal: new AbortController().signal,
    ...(tlsCa === undefined ? {} : { ca: tlsCa }),
    ...(tlsCert === undefined ? {} : { cert: tlsCert }),
    ...(tlsKey === undefined ? {} : { key: tlsKey }),
  };
}

/** Connects, and returns the result of `greet`. If it fails or takes more than `timeoutMs`, destroys the client and rejects. */
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
    // If destroyed while TCP is connecting, the library still connects and leaves the
    // socket open, so the client has to be destroyed once more.
    const ended = connecting.then(() => {}, () => {}).then(() => {
      client.destroy();
      leftovers.delete(ended);
    });
    leftovers.add(ended);
    throw error;
  }
}

/**
 * Returns the address of the master. Asks all sentinels at once and uses the answer of
 * a majority as soon as there is one, so that a lost sentinel costs no time and one
 * that was partitioned with an old master is not followed. Without a majority, uses
 * the most frequent answer. During a failover that may still be the old master, so the
 * caller checks with {@link assertMaster} and asks again. Rejects if no sentinel knows
 * the master.
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
      () => {}, // A lost connection fails the pending command.
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
    const detail = `none of ${servers.length} sentinels names it`;
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

/** Throws unless the reply to `ROLE` is that of a master. */
export function assertMaster(role: RedisReply): void {
  const [word] = Array.isArray(role) ? role : [role];
  if (word !== "master") {
    throw new Error(`The server named as master has the role "${word}"`);
  }
}
