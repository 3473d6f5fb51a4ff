import {
  type ConnectionOptions,
  nkeyAuthenticator,
  nkeys,
  usernamePasswordAuthenticator,
} from "nats";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { BusConfigError } from "./link.ts";
import type { Redial } from "./link_dial.ts";

/** Who this connection is to the server. */
export type BusCredentials =
  /** A password that may change is asked for at each connection. */
  | { user: string; password: string | (() => string) }
  /** The seed of an nkey user, `SU…`; the server knows only its public key. */
  | { nkeySeed: string };

/** Paths of PEM files. Given at all, even empty, TLS is required. */
export interface BusTls {
  /** Authorities that may sign the server's certificate; else the system's. */
  caFile?: string;
  /** This client's own certificate and key, for a server that asks for one. */
  certFile?: string;
  keyFile?: string;
}

/** Where the bus is and who connects. */
export interface BusOptions {
  /**
   * The servers of one cluster: `host:port`, `nats://host:port` or, where TLS is
   * required, `tls://host:port`. Port 4222 if left out. `nats://user:password@host`
   * carries credentials for all of them.
   */
  servers: readonly string[];
  /** Shown in the server's monitoring: service and instance. */
  name: string;
  /** First tokens of reply subjects, for permissions per service. `_INBOX` if left out. */
  inboxPrefix?: string;
  credentials?: BusCredentials;
  tls?: BusTls;
  log: Log;
  now: MonotonicNow;
  /** From 0 up to, but not including, 1. Spreads reconnects. */
  random: () => number;
  timing?: Partial<BusTiming>;
}

/** Durations and bounds of the connection. */
export interface BusTiming {
  /** The server is asked this often whether it lives. */
  pingIntervalMs: number;
  /** With this many questions open, the next interval ends the connection. */
  pingsOutMax: number;
  /** Reaching one server: TCP, TLS and the first exchange. */
  dialMs: number;
  /** A server is not dialled again sooner than this, plus up to as much again. */
  reconnectSoonMs: number;
  /** An outage of this age is no hiccup: from then on the next two count. */
  reconnectSoonForMs: number;
  /** A server is not dialled again sooner than this, plus up to the jitter. */
  reconnectWaitMs: number;
  reconnectJitterMs: number;
  /** Within this `connectBus()` must have reached a server. */
  firstConnectMs: number;
  /** A stale connection that has not ended after this ends the link. */
  staleEndMs: number;
  flushMs: number;
  /** The link sends itself a message this often, */
  echoMs: number;
  /** and a bus that has brought nothing for this long does not flow. */
  silentMs: number;
  /** With more bytes waiting to be sent than this, the link is not ready. */
  backlogBytesMax: number;
}

/** The timing of production. */
export const BUS_TIMING: BusTiming = {
  // A frozen server, or a half-open connection, is left after 1.2 s (the client's
  // defaults: 4 to 6 minutes), so that whoever was on it is heard again before
  // others count it as lost: a worker after 2 s, an edge after 3.
  pingIntervalMs: 400,
  pingsOutMax: 2,
  // A black-holed server must not hold up the dialling of the next one.
  dialMs: 2_000,
  // Two dials may fail before a worker that the bus does not find counts as lost.
  reconnectSoonMs: 50,
  reconnectSoonForMs: 500,
  // A server that comes back is used within a second, and fifty processes spread.
  reconnectWaitMs: 250,
  reconnectJitterMs: 250,
  // The services and the bus may be started in any order.
  firstConnectMs: 30_000,
  // It takes a few turns of the event loop; this is for a client gone wrong.
  staleEndMs: 5_000,
  flushMs: 5_000,
  echoMs: 100,
  silentMs: 1_000,
  backlogBytesMax: 8 * 1024 * 1024,
};

/** One server of the pool. */
export interface BusAddress {
  hostname: string;
  port: number;
}

/** Checked options, as the connection needs them. */
export interface BusPlan {
  addresses: BusAddress[];
  credentials: BusCredentials | undefined;
  tls: BusTls | undefined;
  timing: BusTiming;
}

const DEFAULT_PORT = 4222;

/**
 * Reads the options.
 *
 * @throws BusConfigError naming what cannot work.
 */
export function planConnection(options: BusOptions): BusPlan {
  if (options.servers.length === 0) {
    throw new BusConfigError("Cannot connect to the bus: no server is given");
  }
  const servers = options.servers.map(parseServer);
  const credentials = options.credentials ??
    servers.find((server) => server.credentials !== undefined)?.credentials;
  if (credentials !== undefined) checkCredentials(credentials);
  if (
    (options.tls?.certFile === undefined) !==
      (options.tls?.keyFile === undefined)
  ) {
    throw new BusConfigError(
      "Cannot connect to the bus: a client certificate needs both its file and its key's file",
    );
  }
  const isTls = servers.some((server) => server.isTls);
  return {
    addresses: servers.map(({ hostname, port }) => ({ hostname, port })),
    credentials,
    tls: options.tls ?? (isTls ? {} : undefined),
    timing: { ...BUS_TIMING, ...options.timing },
  };
}

interface ParsedServer extends BusAddress {
  isTls: boolean;
  credentials: BusCredentials | undefined;
}

function parseServer(text: string): ParsedServer {
  const url = parseUrl(text.includes("://") ? text : `nats://${text}`);
  const isKnown = url?.protocol === "nats:" || url?.protocol === "tls:";
  const isBare = url?.search === "" && url.hash === "" &&
    (url.pathname === "" || url.pathname === "/");
  if (url === undefined || !isKnown || !isBare || url.hostname === "") {
    // The text may hold a password, so it is not repeated.
    throw new BusConfigError(
      "Cannot connect to the bus: a server is written host:port, nats://host:port or tls://host:port",
    );
  }
  return {
    hostname: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: url.port === "" ? DEFAULT_PORT : Number(url.port),
    isTls: url.protocol === "tls:",
    credentials: url.username === "" ? undefined : {
      user: decodeURIComponent(url.username),
      password: decodeURIComponent(url.password),
    },
  };
}

function parseUrl(text: string): URL | undefined {
  return URL.canParse(text) ? new URL(text) : undefined;
}

/** The client reads a seed only while it connects, and then hangs on a bad one. */
function checkCredentials(credentials: BusCredentials): void {
  if (!("nkeySeed" in credentials)) return;
  try {
    nkeys.fromSeed(encode(credentials.nkeySeed));
  } catch (error) {
    throw new BusConfigError(
      "Cannot connect to the bus: the nkey seed is not valid",
      { cause: error },
    );
  }
}

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

/** `host:port`, with brackets around an IPv6 address. */
export function formatAddress({ hostname, port }: BusAddress): string {
  return hostname.includes(":")
    ? `[${hostname}]:${port}`
    : `${hostname}:${port}`;
}

/**
 * The options of the client, all of whose defaults would hurt here: it would ping
 * every two minutes, give up after ten attempts to reconnect or two refused
 * logins, and build a stack trace for every request.
 */
export function clientOptions(
  options: BusOptions,
  plan: BusPlan,
  redial: Redial,
): ConnectionOptions {
  const { timing, credentials, tls } = plan;
  return {
    name: options.name,
    pingInterval: timing.pingIntervalMs,
    maxPingOut: timing.pingsOutMax,
    timeout: timing.dialMs,
    maxReconnectAttempts: -1,
    reconnectDelayHandler: () => redial.waitMs(),
    reconnectToServer: (servers) => redial.next(servers),
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
    ...(tls === undefined ? {} : { tls: { ...tls } }),
    ...(credentials === undefined ? {} : login(credentials)),
  };
}

function login(credentials: BusCredentials): ConnectionOptions {
  return "nkeySeed" in credentials
    ? { authenticator: nkeyAuthenticator(encode(credentials.nkeySeed)) }
    : {
      authenticator: usernamePasswordAuthenticator(
        credentials.user,
        credentials.password,
      ),
    };
}
