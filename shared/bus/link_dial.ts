/**
 * Reaches one server of the bus: addresses, credentials, TLS, and the sockets below the
 * NATS client, whose errors must not end the process.
 */
import { createConnection, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import * as nats from "nats";
import { nodeResolveHost, NodeTransport } from "nats/lib/node_transport.js";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { defined, errorMessage } from "../process/env.ts";
import { BusUnavailableError } from "./link.ts";

/** Which servers to connect to, and as whom. */
export interface BusOptions {
  /**
   * All servers of one cluster: `host:port`, `nats://…`, `tls://…`; credentials in one
   * of them are for all.
   */
  servers: readonly string[];
  /** Service and instance, as shown by the server's monitoring. */
  name: string;
  /** First tokens of reply subjects, for permissions per service. Default: `_INBOX`. */
  inboxPrefix?: string;
  /**
   * A password given as a function is read for each connection, because it may change.
   */
  credentials?: { user: string; password: string | (() => string) };
  /**
   * Paths of PEM files, read for each connection. If it is set, even empty, TLS is
   * required. Default of `caFile`: the system's.
   */
  tls?: { caFile?: string; certFile?: string; keyFile?: string };
  log: Log;
  now: MonotonicNow;
  /** From 0 to below 1: spreads clients over servers and over time. */
  random: () => number;
  /** Replaces some of {@link BUS_TIMING}. */
  timing?: Partial<BusTiming>;
}

/** How long a link waits, and how often it acts. All in milliseconds. */
export const BUS_TIMING = {
  /**
   * Reaching one server: TCP, TLS and login. One that drops packets must not delay the
   * connection to the next.
   */
  dialMs: 2_000,
  /**
   * If no server was reached, the pause before the next round, doubled each time up to
   * the maximum. Two dials may fail before a worker without a subscription counts as
   * lost; a server that is back is used within a second, with fifty processes spread
   * out.
   */
  retryMs: 25,
  retryMaxMs: 500,
  /**
   * `connectBus()` must have reached a server within this time. The services and the
   * bus may be started in any order.
   */
  firstConnectMs: 30_000,
  /** The server must confirm within this time that it has received everything. */
  flushMs: 5_000,
  /** How often a link sends a message to itself, which shows that messages arrive. */
  echoMs: 100,
  /**
   * The link leaves a server that has delivered nothing for this long: early enough for
   * its clients to send beats again before they count as lost, a worker after 2 s, an
   * edge after 3 s.
   */
  silentMs: 1_200,
};

/** The members of {@link BUS_TIMING}. */
export type BusTiming = typeof BUS_TIMING;

const DEFAULT_PORT = 4222;

/**
 * Returns the options with the servers as `host:port`, in random order, so that the
 * clients of a lost one spread over the others. Credentials and TLS that are written
 * into a server hold for all, unless the options have their own.
 */
export function readServers(options: BusOptions): BusOptions {
  let { credentials, tls } = options;
  const ranked = options.servers.map((server) => {
    const url = new URL(server.includes("://") ? server : `nats://${server}`);
    if (url.protocol === "tls:") tls ??= {};
    if (url.username !== "") {
      credentials ??= {
        user: decodeURIComponent(url.username),
        password: decodeURIComponent(url.password),
      };
    }
    const address = `${url.hostname}:${url.port || DEFAULT_PORT}`;
    return { address, rank: options.random() };
  });
  const servers = ranked.sort((a, b) => a.rank - b.rank)
    .map(({ address }) => address);
  return { ...options, servers, ...defined({ credentials, tls }) };
}

/**
 * Connects to one server, once, with a socket that `sockets` guards. Throws
 * {@link BusUnavailableError} with the reason.
 */
export async function dial(
  address: string,
  options: BusOptions,
  { timeoutMs, sockets }: { timeoutMs: number; sockets: SocketGuard },
): Promise<nats.NatsConnection> {
  const { name, inboxPrefix, credentials, tls } = options;
  const guarded: nats.ConnectionOptions & { sockets: SocketGuard } = {
    servers: [address],
    name,
    timeout: timeoutMs,
    reconnect: false,
    ignoreClusterUpdates: true,
    // Otherwise the client creates a stack trace for every request.
    noAsyncTraces: true,
    sockets,
    ...defined({
      inboxPrefix,
      tls: tls && { ...tls },
      authenticator: credentials &&
        nats.usernamePasswordAuthenticator(
          credentials.user,
          credentials.password,
        ),
    }),
  };
  nats.setTransportFactory({
    factory: () => new LinkTransport(),
    dnsResolveFn: nodeResolveHost,
  });
  try {
    return await nats.NatsConnectionImpl.connect(guarded);
  } catch (error) {
    sockets.destroy();
    const reason = error instanceof nats.TimeoutError
      ? sockets.error?.message ?? `no answer within ${timeoutMs} ms`
      : errorMessage(error);
    // A server that refuses a certificate closes the connection and may not say why.
    const hint = tls && " (it may require a client certificate that it trusts)";
    const text = `Cannot reach the bus at "${address}": ${reason}${hint ?? ""}`;
    throw new BusUnavailableError(text, { cause: error });
  }
}

/**
 * The sockets of one connection: TCP and, if required, TLS over it. The client removes
 * all listeners while it dials or closes, and an `error` event without one, for
 * example for a refused certificate, would end the process.
 */
export class SocketGuard {
  #sockets: Socket[] = [];
  #isDestroyed = false;
  /** The first error, which is more informative than the client's timeouts. */
  error: Error | undefined;

  /** The socket that the client uses. */
  get last(): Socket | undefined {
    return this.#sockets.at(-1);
  }

  /** Listens for errors of a socket from now on, whatever the client removes. */
  add(socket: Socket): void {
    const onError = (error: Error) => {
      this.error ??= error;
    };
    const removeAllListeners = socket.removeAllListeners.bind(socket);
    socket.removeAllListeners = (...events) =>
      removeAllListeners(...events).on("error", onError);
    socket.on("error", onError);
    this.#sockets.push(socket);
    if (this.#isDestroyed) this.destroy();
  }

  /** Destroys all sockets, also those that are added later. */
  destroy(): void {
    this.#isDestroyed = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}

/**
 * The client's transport; registers its sockets with the {@link SocketGuard} in the
 * options.
 */
class LinkTransport extends NodeTransport {
  override dial(
    { hostname, port }: { hostname: string; port: number },
  ): Promise<Socket> {
    const socket = createConnection(port, hostname).setNoDelay(true);
    return this.#opened(socket, "connect");
  }

  override peekInfo(): Promise<nats.ServerInfo> {
    return super.peekInfo().catch((error) => {
      throw error ?? new Error("the server closed it without an INFO");
    });
  }

  override async startTLS(): Promise<TLSSocket> {
    const { ca, cert, key } = await this.loadClientCerts() ?? {};
    const socket = connectTls({
      socket: this.socket,
      servername: this.tlsName,
      rejectUnauthorized: true,
      ...defined({ ca, cert, key }),
    });
    return this.#opened(socket, "secureConnect");
  }

  #opened<S extends Socket>(socket: S, event: string): Promise<S> {
    // The client passes on all of its options, including ours.
    const { options } = this;
    if ("sockets" in options && options.sockets instanceof SocketGuard) {
      options.sockets.add(socket);
    }
    const { promise, resolve, reject } = Promise.withResolvers<S>();
    socket.once(event, () => resolve(socket));
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("the server closed it")));
    return promise;
  }
}
