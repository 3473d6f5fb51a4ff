import { createConnection, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import {
  type ConnectionOptions,
  type NatsConnection,
  NatsConnectionImpl,
  nkeyAuthenticator,
  type ServerInfo,
  setTransportFactory,
  TimeoutError,
  usernamePasswordAuthenticator,
} from "nats";
import { nodeResolveHost, NodeTransport } from "nats/lib/node_transport.js";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { errorMessage } from "../process/env.ts";
import { settlesWithin } from "../process/serve.ts";
import { BusUnavailableError } from "./link.ts";

/** The identity of this connection at the server. */
export type BusCredentials =
  /** A password given as a function is read for each connection, because it may change. */
  | { user: string; password: string | (() => string) }
  /** The seed of an nkey user, `SU…`; the server has only its public key. */
  | { nkeySeed: string };

/** Paths of PEM files, read for each connection. If it is set, even empty, TLS is required. */
export interface BusTls {
  /** Authorities that may sign the server's certificate. Default: the system's. */
  caFile?: string;
  /** The client's certificate and key, for a server that requires one. */
  certFile?: string;
  keyFile?: string;
}

/** The servers of the bus, and how to connect to them. */
export interface BusOptions {
  /**
   * All servers of one cluster: `host:port`, `nats://host:port` or, where TLS is
   * required, `tls://host:port`. `nats://user:password@host` carries credentials
   * for all of them.
   */
  servers: readonly string[];
  /** Service and instance, as shown by the server's monitoring. */
  name: string;
  /** First tokens of reply subjects, for permissions per service. Default: `_INBOX`. */
  inboxPrefix?: string;
  credentials?: BusCredentials;
  tls?: BusTls;
  log: Log;
  now: MonotonicNow;
  /** 0 ≤ x < 1. Spreads reconnects. */
  random: () => number;
  timing?: Partial<BusTiming>;
}

/** Durations of the connection. */
export interface BusTiming {
  /** Reaching one server: TCP, TLS, login, and the first message to itself. */
  dialMs: number;
  /** If no server was reached, the pause before the next round, doubled each time up to the maximum. */
  retryMs: number;
  retryMaxMs: number;
  /** `connectBus()` must have reached a server within this time. */
  firstConnectMs: number;
  flushMs: number;
  /** How often the link sends itself a message. */
  echoMs: number;
  /** The link leaves a server that has delivered nothing for this long. */
  silentMs: number;
}

/** The timing of production. */
export const BUS_TIMING: BusTiming = {
  // A server that drops packets must not delay the connection to the next one.
  dialMs: 2_000,
  // Two dials may fail before a worker without a subscription counts as lost.
  retryMs: 25,
  // A server that is back is used within a second, with fifty processes spread out.
  retryMaxMs: 500,
  // The services and the bus may be started in any order.
  firstConnectMs: 30_000,
  flushMs: 5_000,
  echoMs: 100,
  // A frozen server, or a half-open connection, is left early enough for its clients
  // to send beats again before they count as lost: a worker after 2 s, an edge
  // after 3 s.
  silentMs: 1_200,
};

const DEFAULT_PORT = 4222;

/**
 * The servers as `host:port`, and what their addresses say about access to all of
 * them, unless the options say it.
 *
 * @throws TypeError, without the text, which may hold a password.
 */
export function readServers(
  { servers, ...access }: Pick<BusOptions, "servers" | "credentials" | "tls">,
): Pick<BusOptions, "credentials" | "tls"> & { addresses: string[] } {
  const urls = servers.map((server) =>
    URL.parse(server.includes("://") ? server : `nats://${server}`)
  );
  const addresses: string[] = [];
  let { credentials, tls } = access;
  for (const url of urls) {
    const protocol = url?.protocol;
    if (!url?.hostname || (protocol !== "nats:" && protocol !== "tls:")) {
      throw new TypeError(
        "Cannot connect to the bus: a server is written host:port, nats://host:port or tls://host:port",
      );
    }
    addresses.push(`${url.hostname}:${url.port || DEFAULT_PORT}`);
    if (protocol === "tls:") tls ??= {};
    if (url.username === "") continue;
    credentials ??= {
      user: decodeURIComponent(url.username),
      password: decodeURIComponent(url.password),
    };
  }
  return {
    addresses,
    ...(credentials === undefined ? {} : { credentials }),
    ...(tls === undefined ? {} : { tls }),
  };
}

/** A connection to one server, from its login until it is lost. */
export class Connection {
  readonly client: NatsConnection;
  readonly server: string;
  readonly #lost = Promise.withResolvers<string>();

  constructor(client: NatsConnection, server: string) {
    this.client = client;
    this.server = server;
    void client.closed().then(() => this.lose("it was cut"));
  }

  /** Resolves with the reason when it is lost. */
  get lost(): Promise<string> {
    return this.#lost.promise;
  }

  lose(reason: string): void {
    this.#lost.resolve(reason);
  }

  /** Awaits a promise of the client until a deadline or the loss of the connection. */
  async inTime(work: Promise<void>, timeoutMs: number): Promise<void> {
    const lost = this.lost.then((reason) => {
      throw unavailable(reason);
    });
    if (await settlesWithin(Promise.race([work, lost]), timeoutMs)) return;
    throw unavailable(`no answer within ${timeoutMs} ms`);
  }
}

/** The error of a link that cannot be used. */
export function unavailable(reason: string): BusUnavailableError {
  return new BusUnavailableError(`Cannot use the bus: ${reason}`);
}

/**
 * Connects to one server, once, without reconnecting.
 *
 * @throws BusUnavailableError with the reason.
 */
export async function dial(
  address: string,
  options: BusOptions,
  { timeoutMs, sockets }: { timeoutMs: number; sockets: SocketGuard },
): Promise<Connection> {
  const { name, inboxPrefix, credentials, tls } = options;
  const guarded: ConnectionOptions & { sockets: SocketGuard } = {
    servers: [address],
    name,
    timeout: timeoutMs,
    reconnect: false,
    ignoreClusterUpdates: true,
    // Otherwise the client creates a stack trace for every request.
    noAsyncTraces: true,
    sockets,
    ...(inboxPrefix === undefined ? {} : { inboxPrefix }),
    ...(tls === undefined ? {} : { tls: { ...tls } }),
    ...(credentials === undefined ? {} : login(credentials)),
  };
  setTransportFactory({
    factory: () => new LinkTransport(),
    dnsResolveFn: nodeResolveHost,
  });
  try {
    return new Connection(await NatsConnectionImpl.connect(guarded), address);
  } catch (error) {
    sockets.destroy();
    const reason = error instanceof TimeoutError
      ? sockets.error?.message ?? `no answer within ${timeoutMs} ms`
      : errorMessage(error);
    // A server that refuses a certificate closes the connection and may not say why.
    const hint = tls === undefined
      ? ""
      : " (it may require a client certificate that it trusts)";
    throw new BusUnavailableError(
      `Cannot reach the bus at "${address}": ${reason}${hint}`,
      { cause: error },
    );
  }
}

function login(credentials: BusCredentials): ConnectionOptions {
  const authenticator = "nkeySeed" in credentials
    ? nkeyAuthenticator(new TextEncoder().encode(credentials.nkeySeed))
    : usernamePasswordAuthenticator(credentials.user, credentials.password);
  return { authenticator };
}

/**
 * The sockets of one connection: TCP and, if required, TLS over it. The client removes
 * all listeners while it dials or closes, and an `error` event without a listener,
 * for example for a refused certificate, would end the process.
 */
export class SocketGuard {
  #sockets: Socket[] = [];
  #isDestroyed = false;
  /** The first error, which is more informative than the client's timeouts. */
  error: Error | undefined;

  get isOpen(): boolean {
    return this.#sockets.at(-1)?.destroyed === false;
  }

  /** Bytes that the operating system has not accepted yet. */
  get pendingBytes(): number {
    return this.#sockets.at(-1)?.writableLength ?? 0;
  }

  add(socket: Socket): void {
    const onError = (error: Error) => void (this.error ??= error);
    const removeAllListeners = socket.removeAllListeners.bind(socket);
    socket.removeAllListeners = (...events) =>
      removeAllListeners(...events).on("error", onError);
    socket.on("error", onError);
    this.#sockets.push(socket);
    if (this.#isDestroyed) this.destroy();
  }

  destroy(): void {
    this.#isDestroyed = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** The client's transport; registers its sockets with the {@link SocketGuard} in the options. */
class LinkTransport extends NodeTransport {
  override dial(
    { hostname, port }: { hostname: string; port: number },
  ): Promise<Socket> {
    const socket = createConnection(port, hostname);
    socket.setNoDelay(true);
    this.#guard(socket);
    return opened(socket, "connect");
  }

  override async peekInfo(): Promise<ServerInfo> {
    try {
      return await super.peekInfo();
    } catch (error) {
      throw error ?? new Error("the server closed it without an INFO");
    }
  }

  override async startTLS(): Promise<TLSSocket> {
    const { ca, cert, key } = await this.loadClientCerts() ?? {};
    const socket = connectTls({
      socket: this.socket,
      servername: this.tlsName,
      rejectUnauthorized: true,
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    });
    this.#guard(socket);
    return opened(socket, "secureConnect");
  }

  #guard(socket: Socket): void {
    // The client passes on all of its options, including ours.
    const { options } = this;
    if ("sockets" in options && options.sockets instanceof SocketGuard) {
      options.sockets.add(socket);
    }
  }
}

function opened<S extends Socket>(
  socket: S,
  event: "connect" | "secureConnect",
): Promise<S> {
  const { promise, resolve, reject } = Promise.withResolvers<S>();
  socket.once(event, () => resolve(socket));
  socket.once("error", reject);
  socket.once("close", () => reject(new Error("the server closed it")));
  return promise;
}
