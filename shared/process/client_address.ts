/**
 * Whose address a request comes from: the peer's, or what proxies of the operator
 * say in `X-Forwarded-For`. What anybody else writes into that header is ignored.
 */

const BYTES = 16;
const IPV4_BYTES = 4;
const IPV4_BITS = 32;
const IPV6_BITS = 128;
/** `::ffff:0:0/96`: an IPv4 address in the form of IPv6. */
const MAPPED_PREFIX_BITS = IPV6_BITS - IPV4_BITS;
/** A site gets at least this much; one customer has all addresses of it. */
const SITE_BYTES = 8;
/** A chain is no longer than this; a header of 8 kB could hold a thousand addresses. */
const HOPS_MAX = 16;

/** An address, or all that begin with the same bits. */
export interface Network {
  bytes: Uint8Array;
  bits: number;
}

/** The client's address, given the peer's and `X-Forwarded-For`. */
export type ClientAddress = (
  peer: string,
  forwardedFor: string | null,
) => string;

/**
 * Believes the operator's proxies only (ASVS 4.1.3): reads addresses from the right of `X-Forwarded-For` as long as the one that
 * wrote them is trusted: the first one that is not is the client. IPv4 addresses in
 * the form of IPv6 come out as IPv4.
 */
export function createClientAddress(
  trusted: readonly Network[],
): ClientAddress {
  const isTrusted = (address: Uint8Array) =>
    trusted.some((network) => isIn(address, network));
  return (peer, forwardedFor) => {
    let [client, text] = [parseAddress(peer), peer];
    if (client === null) return peer;
    const hops = trusted.length === 0 || forwardedFor === null
      ? []
      : forwardedFor.split(",").slice(-HOPS_MAX);
    while (isTrusted(client)) {
      const hop = withoutPort(hops.pop() ?? "");
      const before = parseAddress(hop);
      // What follows from here is not an address, so it is no proxy's word.
      if (before === null) break;
      [client, text] = [before, hop];
    }
    return isMapped(client) ? dotted(client) : text;
  };
}

/**
 * The name under which failures of an address are counted: itself if it is IPv4,
 * or the /64 of an IPv6 address.
 */
export function siteOf(address: string): string {
  const bytes = parseAddress(address);
  if (bytes === null) return address;
  if (isMapped(bytes)) return dotted(bytes);
  return `${bytes.subarray(0, SITE_BYTES).toHex()}/64`;
}

/** `10.0.0.0/8`, `fd00::/8`, or one address. Null for anything else. */
export function parseNetwork(text: string): Network | null {
  const [address = "", length, ...rest] = text.split("/");
  const bytes = parseAddress(address);
  if (bytes === null || rest.length > 0) return null;
  if (length === undefined) return { bytes, bits: IPV6_BITS };
  const isIpv4 = !address.includes(":");
  const bits = /^\d{1,3}$/.test(length) ? Number(length) : Infinity;
  if (bits > (isIpv4 ? IPV4_BITS : IPV6_BITS)) return null;
  return { bytes, bits: isIpv4 ? bits + MAPPED_PREFIX_BITS : bits };
}

/** Those of `texts` that are networks; the configuration has refused others. */
export function networksOf(texts: readonly string[]): Network[] {
  return texts.map(parseNetwork).filter((network) => network !== null);
}

function isIn(address: Uint8Array, { bytes, bits }: Network): boolean {
  const whole = bits >> 3;
  for (let at = 0; at < whole; at += 1) {
    if (address[at] !== bytes[at]) return false;
  }
  const rest = bits & 7;
  if (rest === 0) return true;
  const mask = 0xff << (8 - rest) & 0xff;
  return ((address[whole] ?? 0) & mask) === ((bytes[whole] ?? 0) & mask);
}

function dotted(address: Uint8Array): string {
  return address.subarray(BYTES - IPV4_BYTES).join(".");
}

function isMapped(address: Uint8Array): boolean {
  return address[10] === 0xff && address[11] === 0xff &&
    address.subarray(0, 10).every((byte) => byte === 0);
}

/** Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
function withoutPort(text: string): string {
  const hop = text.trim();
  const bracketed = /^\[([^\]]*)\](?::\d+)?$/.exec(hop)?.[1];
  if (bracketed !== undefined) return bracketed;
  return /^([\d.]+):\d+$/.exec(hop)?.[1] ?? hop;
}

/** Sixteen bytes, IPv4 in its mapped form; null for what is no address. */
function parseAddress(text: string): Uint8Array | null {
  const ipv4 = parseIpv4(text);
  if (ipv4 !== null) {
    const bytes = new Uint8Array(BYTES);
    bytes.set([0xff, 0xff, ...ipv4], 10);
    return bytes;
  }
  return parseIpv6(text.replace(/%[\w.-]+$/, ""));
}

function parseIpv4(text: string): number[] | null {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text);
  if (match === null) return null;
  const parts = match.slice(1).map(Number);
  return parts.every((part) => part <= 255) ? parts : null;
}

function parseIpv6(text: string): Uint8Array | null {
  const [head = "", tail, ...rest] = text.split("::");
  if (rest.length > 0 || !text.includes(":")) return null;
  const before = parseGroups(head);
  const after = tail === undefined ? [] : parseGroups(tail);
  if (before === null || after === null) return null;
  const missing = BYTES - before.length - after.length;
  // `::` stands for at least one group; without it none may be missing.
  if (tail === undefined ? missing !== 0 : missing < 2) return null;
  const bytes = new Uint8Array(BYTES);
  bytes.set(before);
  bytes.set(after, BYTES - after.length);
  return bytes;
}

/** Groups of four hex digits; the last may be an IPv4 address. */
function parseGroups(text: string): number[] | null {
  if (text === "") return [];
  const bytes: number[] = [];
  const groups = text.split(":");
  for (const [at, group] of groups.entries()) {
    const ipv4 = at === groups.length - 1 ? parseIpv4(group) : null;
    if (ipv4 !== null) {
      bytes.push(...ipv4);
    } else if (/^[0-9a-f]{1,4}$/i.test(group)) {
      const value = parseInt(group, 16);
      bytes.push(value >> 8, value & 0xff);
    } else return null;
  }
  return bytes.length <= BYTES ? bytes : null;
}
