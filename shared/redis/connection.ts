/** One connection to Redis, which is re-established whenever it is lost. */
import { RedisClient } from "redis";
import type { MonotonicNow } from "../process/clock.ts";
import { defined } from "../process/env.ts";
import { settlesWithin } from "../process/lifecycle/serve.ts";
import type { RedisAccess } from "../process/service_variables.ts";

/** A reply in protocol version 2: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** How to reach Redis, and the name to show there. */
export interface RedisAddress extends RedisAccess {
  /** Shown by `CLIENT LIST`. Letters, digits, `-`, `_`. */
  clientName?: string;
}
type ServerAddress = Omit<RedisAddress, "sentinels">;

/** Where a {@link Connection} goes, and who wants to know how it fares. */
export interface ConnectionOptions {
  address: RedisAddress;
  now: MonotonicNow;
  /** From 0 to 1: shortens the pauses between attempts. */
  random: () => number;
  /**
   * Commands that must work before the connection counts as up. At least one: a frozen
   * server accepts connections.
   */
  greeting: readonly (readonly string[])[];
  /** Connected, signed in, and the greeting was answered. */
  onUp: () => void;
  /** The connection broke, or an attempt failed. Called once per attempt. */
  onDown: (cause: unknown) => void;
}

/**
 * How long TCP, TLS, sign-in and the greeting may take together. Asking the sentinels
 * may take as long again.
 */
const CONNECT_TIMEOUT_MS = 1_000;
const BACKOFF_FIRST_MS = 25;
/** Short enough to reconnect to a restarted server well within a second. */
const BACKOFF_MAX_MS = 500;
/** After a connection that lasted this long, the back-off starts over. */
const STABLE_MS = 1_000;
/** An established connection asks the sentinels at most once in this time. */
const RECONSIDER_MS = 1_000;

/**
 * Keeps one connection, from its creation until it is closed. A new client per attempt
 * gives the sign-in a deadline, which the library does not set.
 */
export class Connection {
  readonly #options: ConnectionOptions;
  /** Settles when no further attempt follows. */
  readonly #running: Promise<void>;
  #current: { client: Client; url: string } | null = null;
  /** Ends the current connection, with its cause, or the wait for the next attempt. */
  #ending = Promise.withResolvers<unknown>();
  #isClosed = false;
  /** When the sentinels were last asked about the current connection. */
  #askedAtMs = -Infinity;
  #asking = Promise.resolve();

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#running = this.#run();
  }

  /** Whether commands can be sent. */
  get isUp(): boolean {
    return this.#current !== null && this.#current.client.isReady;
  }

  /**
   * Sends a command after those already sent. Only while `isUp`; rejects if the
   * connection is lost.
   */
  send(args: readonly string[]): Promise<RedisReply> {
    if (this.#current === null) {
      return Promise.reject(new Error("Not connected"));
    }
    return this.#current.client.sendCommand<RedisReply>(args);
  }

  /**
   * Closes the current connection, fails the calls that wait on it, and connects
   * again.
   */
  drop(cause: unknown): void {
    if (this.#current !== null) this.#ending.resolve(cause);
  }

  /**
   * Asks the sentinels, if any, and drops the connection if they name another server.
   * At most once a second.
   */
  reconsider(): void {
    const { address, now } = this.#options;
    if (address.sentinels === undefined || this.#current === null) return;
    if (now() - this.#askedAtMs < RECONSIDER_MS) return;
    this.#askedAtMs = now();
    const { resolve } = this.#ending;
    const { url } = this.#current;
    this.#asking = findMaster(address).then((master) => {
      if (master !== url) resolve(new Error("The sentinels name another"));
    }, () => {}); // No sentinel answered: keep the connection.
  }

  /** Ends the connection and resolves when nothing of it is left. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#ending.resolve(null);
    await this.#running;
    await this.#asking;
  }

  async #run(): Promise<void> {
    const { random, onDown } = this.#options;
    for (let failures = 0; !this.#isClosed; failures += 1) {
      const { cause, lastedMs } = await this.#connectOnce();
      if (this.#isClosed) return;
      onDown(cause);
      if (lastedMs >= STABLE_MS) failures = 0;
      this.#ending = Promise.withResolvers<unknown>();
      const fullMs = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** failures);
      // Shortened by up to half, so that edges do not return in step.
      const pauseMs = fullMs * (1 - random() / 2);
      await settlesWithin(this.#ending.promise, pauseMs);
    }
  }

  /** One connection, from the attempt to its end: why it ended, and after how long. */
  async #connectOnce(): Promise<{ cause: unknown; lastedMs: number }> {
    const { now, onUp } = this.#options;
    const ending = Promise.withResolvers<unknown>();
    this.#ending = ending;
    try {
      this.#current = await this.#connect(ending.resolve);
      const upAtMs = now();
      if (!this.#isClosed) onUp();
      const cause = await ending.promise;
      return { cause, lastedMs: now() - upAtMs };
    } catch (cause) {
      return { cause, lastedMs: 0 };
    } finally {
      this.#current?.client.destroy();
      this.#current = null;
    }
  }

  /** One attempt, from finding the master to the answered greeting. */
  async #connect(
    onLost: (cause: unknown) => void,
  ): Promise<{ client: Client; url: string }> {
    const { address, greeting } = this.#options;
    const { sentinels, ...server } = address;
    const url = sentinels ? await findMaster(address) : server.url;
    const client = await dial({ ...server, url }, async (client) => {
      if (sentinels) await requireMaster(client);
      await Promise.all(greeting.map((args) => client.sendCommand(args)));
      return client;
    }, onLost);
    return { client, url };
  }
}

/**
 * Connects and sends the first commands: a frozen server accepts connections, but
 * answers nothing. `onLost` is called with every error of the socket. If anything
 * fails or takes too long, destroys the client and rejects.
 */
async function dial<T>(
  server: ServerAddress,
  greet: (client: Client) => Promise<T>,
  onLost: (cause: unknown) => void,
): Promise<T> {
  const client = makeClient(server);
  client.on("error", onLost);
  const greeted = client.connect().then(() => greet(client));
  try {
    if (await settlesWithin(greeted, CONNECT_TIMEOUT_MS)) return await greeted;
    throw new Error(`Not connected after ${CONNECT_TIMEOUT_MS} ms`);
  } catch (error) {
    client.destroy();
    // If destroyed while TCP is connecting, the library still connects and leaves the
    // socket open, so the client has to be destroyed once more.
    await greeted.catch(() => {}).finally(() => client.destroy());
    throw error;
  }
}

/**
 * Asks all sentinels at once for the master, and uses the answer of a majority as soon
 * as there is one: a lost sentinel costs no time, and one that is partitioned with an
 * old master is not followed. Without a majority, uses the most frequent answer; the
 * caller checks the server's role. Rejects if no sentinel knows the master.
 */
export async function findMaster(
  { sentinels, username: _user, password: _password, ...rest }: RedisAddress,
): Promise<string> {
  const { name = "", servers = [], ...login } = sentinels ?? {};
  const question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
  const answers = servers.map(async (server) => {
    const url = `${new URL(rest.url).protocol}//${server}`;
    const reply = await dial(
      { ...rest, ...login, url },
      (client) =>
        client.sendCommand<RedisReply>(question)
          .finally(() => client.destroy()),
      () => {}, // A lost connection fails the question.
    );
    return masterUrl(rest.url, reply, server);
  });
  return await agreed(answers).catch((cause) => {
    const detail = `none of ${servers.length} sentinels names it`;
    const text = `Cannot find the master "${name}": ${detail}`;
    throw new Error(text, { cause });
  });
}

/** What a connection uses of the client of the library. */
interface Client {
  /** Whether commands can be sent. */
  readonly isReady: boolean;
  connect(): Promise<unknown>;
  sendCommand<T>(args: readonly string[]): Promise<T>;
  on(event: "error", onError: (cause: unknown) => void): unknown;
  destroy(): void;
}

const PROTOCOL = { RESP: 2 } as const;

/**
 * Makes a client of the class for {@link PROTOCOL}. `createClient()` makes a class with
 * all commands for each other set of options, which takes 25 ms.
 */
function makeClient(
  { url, username, password, clientName, ...tls }: ServerAddress,
): Client {
  return RedisClient.factory(PROTOCOL)({
    ...PROTOCOL,
    url,
    ...defined({ username, password, name: clientName }),
    socket: {
      connectTimeout: CONNECT_TIMEOUT_MS,
      reconnectStrategy: false,
      ...url.startsWith("rediss:") && tlsOptions(tls),
    },
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: "disabled",
    // The library's timeout ends when a command is written, so it is useless against a
    // frozen server, and it costs an AbortSignal per command.
    commandOptions: { timeout: 0 },
  });
}

function tlsOptions({ tlsCa, tlsCert, tlsKey }: Partial<ServerAddress>) {
  return {
    tls: true as const,
    // Never aborted. It makes Node listen for errors of the socket from the start: with
    // TLS 1.3 a server refuses a certificate only after the handshake, when the library
    // has no listener yet, and the error would end the process.
    signal: new AbortController().signal,
    ...defined({ ca: tlsCa, cert: tlsCert, key: tlsKey }),
  };
}

/**
 * The answer of a majority at once, otherwise the most frequent one when all have
 * ended.
 */
export function agreed(answers: readonly Promise<string>[]): Promise<string> {
  const votes = new Map<string, number>();
  const { promise, resolve } = Promise.withResolvers<string>();
  const counts = answers.map(async (answer) => {
    const url = await answer;
    const count = (votes.get(url) ?? 0) + 1;
    votes.set(url, count);
    if (count > answers.length / 2) resolve(url);
  });
  void Promise.allSettled(counts).then(() => {
    const [most] = [...votes].toSorted(([, a], [, b]) => b - a);
    resolve(most?.[0] ?? Promise.any(answers));
  });
  return promise;
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

async function requireMaster(client: Client): Promise<void> {
  const role = await client.sendCommand<RedisReply>(["ROLE"]);
  const [word] = Array.isArray(role) ? role : [];
  if (word !== "master") {
    throw new Error(`The server named as master has the role "${word}"`);
  }
}
