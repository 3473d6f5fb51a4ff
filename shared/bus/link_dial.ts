import type { Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import {
  type NatsConnection,
  NatsConnectionImpl,
  type ServerInfo,
  setTransportFactory,
  TimeoutError,
} from "nats";
import { nodeResolveHost, NodeTransport } from "nats/lib/node_transport.js";
import type { MonotonicNow } from "../process/clock.ts";
import { BusUnavailableError } from "./link.ts";
import {
  type BusAddress,
  type BusOptions,
  type BusPlan,
  type BusTiming,
  clientOptions,
  formatAddress,
} from "./link_options.ts";

/** Errors of sockets are logged once in this time, with a count of the others. */
const SOCKET_LOG_INTERVAL_MS = 1_000;

/**
 * Makes the first connection, trying every server again and again until one takes
 * it or the start-up deadline has passed. The client has such a loop too, but one
 * that never ends and tells nobody why it goes on.
 *
 * @throws BusUnavailableError after the deadline, with the reason of each server.
 */
export async function dialFirst(
  options: BusOptions,
  plan: BusPlan,
  redial: Redial,
): Promise<NatsConnection> {
  const { timing } = plan;
  const giveUpAt = options.now() + timing.firstConnectMs;
  for (let attempt = 1;; attempt++) {
    const reasons: string[] = [];
    for (const address of shuffle(plan.addresses, options.random)) {
      try {
        return await dial(address, options, plan, redial);
      } catch (error) {
        if (!(error instanceof BusUnavailableError)) throw error;
        reasons.push(error.message);
      }
    }
    const remainingMs = giveUpAt - options.now();
    if (remainingMs <= 0) throw new BusUnavailableError(reasons.join("; "));
    options.log.warn("bus_not_reached", { attempt, reasons });
    const waitMs = timing.reconnectWaitMs +
      options.random() * timing.reconnectJitterMs;
    await sleep(Math.min(waitMs, remainingMs));
  }
}

async function dial(
  address: BusAddress,
  options: BusOptions,
  plan: BusPlan,
  redial: Redial,
): Promise<NatsConnection> {
  const where = formatAddress(address);
  let socketError: Error | undefined;
  const report = throttledReport(options);
  setTransportFactory({
    factory: () => new LinkTransport(),
    dnsResolveFn: nodeResolveHost,
  });
  try {
    const transportOptions: TransportOptions = {
      onSocketError: (error) => {
        socketError ??= error;
        report(error);
      },
    };
    // As the client's own `connect()`, which sets a transport of its own.
    const client = await NatsConnectionImpl.connect({
      ...clientOptions(options, plan, redial),
      ...transportOptions,
      servers: [where],
    });
    // Only this server was dialled so far; from now on all of them may be.
    if (plan.addresses.length > 1) {
      client.setServers(plan.addresses.map(formatAddress));
    }
    return client;
  } catch (error) {
    throw new BusUnavailableError(
      `Cannot reach the bus at "${where}": ${
        reasonOf(error, socketError, plan)
      }`,
      { cause: error },
    );
  }
}

function throttledReport({ log, now }: BusOptions): (error: Error) => void {
  const mayLog = createThrottle(now, SOCKET_LOG_INTERVAL_MS);
  return (error) => {
    const heldBack = mayLog();
    if (heldBack === undefined) return;
    log.warn("bus_socket_error", { error, heldBack });
  };
}

/** The client calls all that happens after the server's greeting a timeout. */
function reasonOf(
  error: unknown,
  socketError: Error | undefined,
  { tls, timing }: BusPlan,
): string {
  if (!(error instanceof TimeoutError)) {
    return error instanceof Error ? error.message : String(error);
  }
  const reason = socketError?.message ?? `no answer within ${timing.dialMs} ms`;
  // A server that refuses one hangs up, and its reason may or may not arrive.
  return tls?.certFile === undefined
    ? reason
    : `${reason}; it may not accept the client certificate`;
}

function shuffle<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, rank: random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A server of the pool. */
export interface DialledServer {
  /** When it was last dialled; 0: never. */
  readonly lastConnect: number;
}

/** What redialling depends on. */
export interface RedialDeps {
  timing: Pick<
    BusTiming,
    | "reconnectSoonMs"
    | "reconnectSoonForMs"
    | "reconnectWaitMs"
    | "reconnectJitterMs"
  >;
  now: MonotonicNow;
  /** Uniform in [0, 1). */
  random: () => number;
}

/** How soon and in which order servers are dialled that could not be reached. */
export interface Redial {
  /** What must have passed since a server was last dialled; asked before every dial. */
  waitMs(): number;
  /** Which one is next; null when there is none. */
  next<S extends DialledServer>(servers: readonly S[]): S | null;
  /** There is a connection: the next wait belongs to another outage. */
  onConnected(): void;
}

/**
 * Dials often while an outage is young, and seldom after: a hiccup ends before
 * anybody takes this process for lost, and a bus that is away for long does not
 * come back to a crowd. With the timing of production: every 50 to 100 ms for
 * half a second, then every 250 to 500 ms.
 *
 * The server that was dialled longest ago is next, so never the one just lost
 * while there is another: a frozen one would take a dial's whole deadline. Of
 * several it is any, so that those of a lost server spread over the others.
 */
export function createRedial(deps: RedialDeps): Redial {
  const { timing, now, random } = deps;
  let outageSinceMs: number | null = null;
  return {
    waitMs() {
      const nowMs = now();
      outageSinceMs ??= nowMs;
      const isYoung = nowMs - outageSinceMs < timing.reconnectSoonForMs;
      return isYoung
        ? timing.reconnectSoonMs * (1 + random())
        : timing.reconnectWaitMs + random() * timing.reconnectJitterMs;
    },
    next(servers) {
      const oldest = Math.min(...servers.map(({ lastConnect }) => lastConnect));
      const oldestOnes = servers.filter(({ lastConnect }) =>
        lastConnect === oldest
      );
      return oldestOnes[Math.floor(random() * oldestOnes.length)] ?? null;
    },
    onConnected: () => void (outageSinceMs = null),
  };
}

/** The client hands its options down, so one of ours can be among them. */
export interface TransportOptions {
  /** Hears every error of a socket: they say more than the client's timeouts. */
  onSocketError: (error: Error) => void;
}

/**
 * The socket below the NATS client, with three faults of the client's own mended:
 *
 * - It leaves a stale connection only after it has written out what it still has to
 *   send. To a server that reads nothing this never ends, even with a healthy second
 *   server in the pool. Here the socket is destroyed at once.
 * - At moments while it dials or closes nobody listens for errors of the socket. One
 *   that comes then, say of a refused login or certificate, ends the whole process.
 * - It leaves the socket open when a server accepts the connection and says nothing.
 */
export class LinkTransport extends NodeTransport {
  /** Bytes that the operating system has not taken yet. */
  get pendingBytes(): number {
    return this.#currentSocket()?.writableLength ?? 0;
  }

  override async peekInfo(): Promise<ServerInfo> {
    const info = await this.#readInfo();
    this.#listenForErrors(this.socket);
    if (info.tls_verify === true && this.options.tls?.certFile === undefined) {
      throw new Error(
        "the server demands a client certificate, and none is configured",
      );
    }
    return info;
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
    this.#listenForErrors(socket);
    const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
    socket.once("secureConnect", () => resolve(socket));
    socket.once("error", reject);
    socket.once(
      "close",
      () => reject(new Error("the server hung up during TLS")),
    );
    return promise;
  }

  override disconnect(): void {
    this.#currentSocket()?.destroy();
  }

  override close(error?: Error): Promise<void> {
    const socket = this.#currentSocket();
    if (!this.connected) this.discard();
    const closed = super.close(error);
    this.#listenForErrors(socket);
    return closed;
  }

  override discard(): void {
    const socket = this.#currentSocket();
    super.discard();
    this.#listenForErrors(socket);
  }

  async #readInfo(): Promise<ServerInfo> {
    try {
      return await super.peekInfo();
    } catch (error) {
      throw error ?? new Error("the server hung up without a greeting");
    }
  }

  /** To be called again after the client has removed all listeners. */
  #listenForErrors(socket: Socket | undefined): void {
    socket?.on("error", (error) => onSocketErrorIn(this.options)(error));
  }

  /** There is none before a dial has got through and after the end. */
  #currentSocket(): Socket | undefined {
    return this.socket;
  }
}

function onSocketErrorIn(options: object): (error: Error) => unknown {
  if (
    "onSocketError" in options && typeof options.onSocketError === "function"
  ) {
    const listener = options.onSocketError;
    return (error) => listener(error);
  }
  return () => {};
}

/**
 * Lets at most one log line through per interval, so that a fault in what happens
 * per token does not become a flood of lines.
 *
 * The returned function answers `undefined` when the line must not be written,
 * else how many were held back since the last one that was.
 */
export function createThrottle(
  now: MonotonicNow,
  intervalMs: number,
): () => number | undefined {
  let nextAt = -Infinity;
  let heldBack = 0;
  return () => {
    if (now() < nextAt) {
      heldBack++;
      return undefined;
    }
    const result = heldBack;
    heldBack = 0;
    nextAt = now() + intervalMs;
    return result;
  };
}
