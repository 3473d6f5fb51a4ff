/**
 * Which HTTP proxy leads to a model server, by the variables that other programs obey
 * too: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, and how a connection passes through
 * it: with CONNECT, also to servers without TLS (RFC 9110, section 9.3.6).
 */
import { findHeadEnd } from "./framing.ts";

/** The head of a proxy's answer; a longer one is no answer to CONNECT. */
const HEAD_BYTES_MAX = 16 * 1024;
const STATUS_LINE = /^HTTP\/1\.[01] (\d{3})/;
const IPV4 = /^\d{1,3}(\.\d{1,3}){3}$/;
const PORT_OF_SCHEME: { readonly [scheme: string]: string } = {
  "http:": "80",
  "https:": "443",
};

/** A byte stream in both directions; a TCP or TLS connection is one. */
export interface ByteConnection {
  /** Reads into a buffer; resolves with the number of bytes, or null at the end. */
  read(buffer: Uint8Array): Promise<number | null>;
  /** Writes some of the bytes; resolves with their number. */
  write(bytes: Uint8Array): Promise<number>;
  close(): void;
}

/** The variables, as the environment has them; absent ones are undefined. */
export interface ProxyVariables {
  /** Leads to servers with TLS. */
  httpsProxy: string | undefined;
  /** Leads to servers without TLS. */
  httpProxy: string | undefined;
  /**
   * Servers that are reached without a proxy, separated by commas: names, which include
   * all names below them, addresses, blocks of addresses such as `10.0.0.0/8`, each
   * perhaps with a port, or `*` for all.
   */
  noProxy: string | undefined;
}

/** A proxy that opens tunnels. */
export interface Proxy {
  hostname: string;
  port: number;
  /** The value of `Proxy-Authorization`, if the URL has a user. */
  authorization: string | null;
}

/**
 * The proxy to a server, or null if it is reached without one. The machine itself
 * never needs one. Throws a `TypeError` that names what a proxy's URL must look like.
 */
export function proxyOf(target: URL, variables: ProxyVariables): Proxy | null {
  const { httpsProxy, httpProxy, noProxy = "" } = variables;
  const text = target.protocol === "https:" ? httpsProxy : httpProxy;
  if (!text || isLoopback(hostOf(target))) return null;
  const port = target.port || PORT_OF_SCHEME[target.protocol] || "";
  const isExempt = noProxy.split(",").map((word) => word.trim().toLowerCase())
    .filter((word) => word !== "")
    .some((word) => isExemptBy(word, hostOf(target), port));
  return isExempt ? null : parseProxy(text);
}

/** Reads a proxy's URL. Throws a `TypeError` if it is of another kind. */
export function parseProxy(text: string): Proxy {
  const url = URL.parse(text);
  if (url === null || url.protocol !== "http:" || url.hostname === "") {
    throw new TypeError(
      "Cannot use the proxy: expected a URL like http://proxy.example:3128",
    );
  }
  const { username, password } = url;
  const credentials = `${decodeURIComponent(username)}:` +
    decodeURIComponent(password);
  return {
    hostname: hostOf(url),
    port: Number(url.port || PORT_OF_SCHEME["http:"]),
    authorization: username === "" && password === ""
      ? null
      : `Basic ${new TextEncoder().encode(credentials).toBase64()}`,
  };
}

/**
 * Asks a proxy to pass everything that follows on to a server. Rejects, with the status
 * in the message, if it refuses.
 */
export async function openTunnel(
  connection: ByteConnection,
  { authorization }: Proxy,
  target: { hostname: string; port: number },
): Promise<void> {
  const isIpv6 = target.hostname.includes(":");
  const name = isIpv6 ? `[${target.hostname}]` : target.hostname;
  const authority = `${name}:${target.port}`;
  const credentials = authorization === null
    ? ""
    : `Proxy-Authorization: ${authorization}\r\n`;
  const head = `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n` +
    `${credentials}\r\n`;
  await writeAll(connection, new TextEncoder().encode(head));
  const answer = await readHead(connection);
  const [, status] = STATUS_LINE.exec(answer) ?? [];
  if (status?.startsWith("2")) return;
  throw new Error(
    status === undefined
      ? "The proxy's answer to CONNECT is no HTTP"
      : `The proxy refused CONNECT to ${authority}: status ${status}`,
  );
}

async function writeAll(
  connection: ByteConnection,
  bytes: Uint8Array,
): Promise<void> {
  let at = 0;
  while (at < bytes.length) {
    at += await connection.write(bytes.subarray(at));
  }
}

/**
 * Reads a head and nothing after it. The server behind the proxy speaks only after it
 * was spoken to, so no byte of it can have arrived.
 */
async function readHead(connection: ByteConnection): Promise<string> {
  const buffer = new Uint8Array(HEAD_BYTES_MAX);
  let length = 0;
  while (length < HEAD_BYTES_MAX) {
    const count = await connection.read(buffer.subarray(length));
    if (count === null) throw new Error("The proxy closed the connection");
    length += count;
    if (findHeadEnd(buffer, 0, length) >= 0) {
      return new TextDecoder().decode(buffer.subarray(0, length));
    }
  }
  throw new Error(`The proxy's answer has over ${HEAD_BYTES_MAX} bytes`);
}

/** The host name in lower case; an IPv6 address without its brackets. */
function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[(.*)\]$/, "$1").toLowerCase();
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") ||
    host === "::1" || (IPV4.test(host) && host.startsWith("127."));
}

/** Whether a word of `NO_PROXY` is about this server. */
function isExemptBy(word: string, host: string, port: string): boolean {
  if (word === "*") return true;
  const [, name = word, wantedPort] = /^(\[[^\]]*\]|[^:]*):(\d+)$/.exec(word) ??
    [];
  if (wantedPort !== undefined && wantedPort !== port) return false;
  const bare = name.replace(/^\[(.*)\]$/, "$1");
  const [network = "", bits] = bare.split("/");
  if (bits !== undefined) return isInBlock(host, network, Number(bits));
  if (IPV4.test(bare)) return bare === host;
  const domain = bare.replace(/^\*?\./, "");
  return domain !== "" && (host === domain || host.endsWith(`.${domain}`));
}

function isInBlock(host: string, network: string, bits: number): boolean {
  if (!IPV4.test(host) || !IPV4.test(network)) return false;
  if (!Number.isInteger(bits) || bits < 0 || bits > 32) return false;
  const mask = bits === 0 ? 0 : -1 << (32 - bits);
  return (numberOf(host) & mask) === (numberOf(network) & mask);
}

/** An IPv4 address as a 32-bit number. */
function numberOf(address: string): number {
  return address.split(".").reduce(
    (sum, part) => (sum << 8) | Number(part),
    0,
  );
}
