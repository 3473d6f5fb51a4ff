/** One client of the Redis library, made anew for every attempt to connect. */
import { createClient } from "redis";

/** What Redis answers in protocol version 2: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** Where one server is and as whom to sign in. */
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

/** A client of the library, connected or not. */
export type Client = ReturnType<typeof makeClient>;

/** How one client is connected. */
export interface ConnectOptions<T> {
  /** Time for TCP, TLS, sign-in and the greeting together. */
  timeoutMs: number;
  /** First words over the connection: a frozen server accepts connections, but answers nothing. */
  greet: (client: Client) => Promise<T>;
  /** Attempts that were given up and still hold a socket; each removes itself. */
  leftovers: Set<Promise<void>>;
}

/** Makes a client that does not connect by itself. `onLost` is told every error of its socket. */
export function makeClient(
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
export async function connectInTime<T>(
  client: Client,
  { timeoutMs, greet, leftovers }: ConnectOptions<T>,
): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new Error(`Not connected after ${timeoutMs} ms`)),
      timeoutMs,
    );
  });
  const connecting = client.connect().then(() => greet(client));
  try {
    return await Promise.race([connecting, late]);
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
  } finally {
    clearTimeout(timer);
  }
}
