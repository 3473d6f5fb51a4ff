/**
 * The client address: the peer's, or the one that the operator's proxies wrote into
 * `X-Forwarded-For`.
 */
import { BlockList, isIP, isIPv4 } from "node:net";
import { remember } from "./maps.ts";

/** Hops that are examined; a header of 8 kB could have a thousand addresses. */
const HOPS_MAX = 16;
/** How many verdicts about addresses are remembered, with 100 bytes each. */
const ADDRESSES_MAX = 10_000;
const IPV6_GROUPS = 8;
/** A customer usually has all addresses of a /64. */
const SITE_GROUPS = 4;
/** The prefix of an IPv4-mapped IPv6 address, as servers and proxies write it. */
const MAPPED = /^::ffff:(?=[\d.]+$)/i;
const ZONE = /%[\w.-]+$/;
/** Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
const WITH_PORT = /^(?:\[([^\]]*)\]|([\d.]+))(?::\d+)?$/;

/** An address, or all addresses that begin with the same bits. */
export interface Network {
  address: string;
  bits: number;
}

/**
 * Returns the address of a client: the peer's, or the one that trusted proxies wrote
 * into `X-Forwarded-For`. The header is null if it is absent.
 */
export type ClientAddress = (
  peer: string,
  forwardedFor: string | null,
) => string;

/**
 * Reads `X-Forwarded-For` from the right as long as a trusted proxy wrote it (ASVS
 * 4.1.3).
 */
export function createClientAddress(
  trusted: readonly Network[],
): ClientAddress {
  const proxies = new BlockList();
  for (const { address, bits } of trusted) {
    proxies.addSubnet(address, bits, familyOf(address));
  }
  // A check takes 3 us, and a few clients send most requests.
  const verdicts = new Map<string, boolean>();
  const isProxy = (address: string): boolean => {
    let isTrusted = verdicts.get(address);
    if (isTrusted === undefined) {
      isTrusted = isIP(address) > 0 &&
        proxies.check(address, familyOf(address));
      remember(verdicts, {
        key: address,
        value: isTrusted,
        sizeMax: ADDRESSES_MAX,
      });
    }
    return isTrusted;
  };
  return (peer, forwardedFor) => {
    let client = parseAddress(peer) ?? peer;
    if (trusted.length === 0) return client;
    const hops = forwardedFor?.split(",").slice(-HOPS_MAX) ?? [];
    while (isProxy(client)) {
      // A trusted proxy writes addresses only.
      const hop = (hops.pop() ?? "").trim();
      const [, ipv6, ipv4] = WITH_PORT.exec(hop) ?? [];
      const before = parseAddress(ipv6 ?? ipv4 ?? hop);
      if (before === null) break;
      client = before;
    }
    return client;
  };
}

/**
 * What the requests of an address are counted by: an IPv4 address, or the /64 of an
 * IPv6 address.
 */
export function siteOf(text: string): string {
  const address = parseAddress(text);
  if (address === null || isIPv4(address)) return address ?? text;
  // `URL` writes an address in its shortest form, zeros as "::".
  const short = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const zeros = IPV6_GROUPS - short.split(":").filter(Boolean).length;
  const site = short.replace("::", `:${"0:".repeat(zeros)}`).split(":")
    .filter(Boolean).slice(0, SITE_GROUPS)
    .map((group) => group.padStart(4, "0"));
  return `${site.join("")}/64`;
}

/** `10.0.0.0/8`, `fd00::/8`, or one address. Null for anything else. */
export function parseNetwork(text: string): Network | null {
  const [address = "", length, ...rest] = text.split("/");
  if (isIP(address) === 0 || rest.length > 0) return null;
  const bitsMax = isIPv4(address) ? 32 : 128;
  if (length === undefined) return { address, bits: bitsMax };
  const bits = /^\d{1,3}$/.test(length) ? Number(length) : Infinity;
  return bits > bitsMax ? null : { address, bits };
}

/**
 * An address without its zone, IPv4-mapped IPv6 as IPv4; null if it is not an address.
 */
function parseAddress(text: string): string | null {
  const isIPv6 = text.includes(":");
  const address = isIPv6 ? text.replace(ZONE, "").replace(MAPPED, "") : text;
  return isIP(address) === 0 ? null : address;
}

const familyOf = (address: string) => isIPv4(address) ? "ipv4" : "ipv6";
