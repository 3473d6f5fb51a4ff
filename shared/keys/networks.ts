/**
 * The networks from which a key may be used. As people write them: `10.0.0.0/8`,
 * `2001:db8::/32`, or one address. In the record of a key, and for the script that
 * compares them: 32 hexadecimal digits and a number of bits, IPv4 as IPv6 has it
 * (`::ffff:10.0.0.0`), so that an address is in a network however it is written.
 */

/** How many networks a key may have: the script looks at each. */
export const NETWORKS_MAX = 50;

const DIGITS = 32;
const BITS = 128;
/** The digits and the bits before those of an IPv4 address. */
const MAPPED = "00000000000000000000ffff";
const MAPPED_BITS = 96;
const BITS_PER_DIGIT = 4;
const GROUPS = 8;
const OCTET = /^(?:0|[1-9]\d{0,2})$/;
const GROUP = /^[0-9a-f]{1,4}$/i;
const LENGTH = /^(?:0|[1-9]\d{0,2})$/;
const ZONE = /%[\w.-]+$/;

/** Eight digits of an IPv4 address; null if it is none. */
function ipv4Digits(text: string): string | null {
  const octets = text.split(".");
  const areOctets = octets.length === 4 &&
    octets.every((octet) => OCTET.test(octet) && Number(octet) <= 255);
  return areOctets
    ? octets.map((octet) => Number(octet).toString(16).padStart(2, "0"))
      .join("")
    : null;
}

/** The groups of one side of `::`; null if it cannot be read. */
function groupsIn(text: string): string[] | null {
  if (text === "") return [];
  const parts = text.split(":");
  const last = parts.at(-1) ?? "";
  if (last.includes(".")) {
    const digits = ipv4Digits(last);
    if (digits === null) return null;
    parts.splice(-1, 1, digits.slice(0, 4), digits.slice(4));
  }
  return parts.every((part) => GROUP.test(part))
    ? parts.map((part) => part.toLowerCase().padStart(4, "0"))
    : null;
}

function ipv6Digits(text: string): string | null {
  const sides = text.split("::");
  const [head = "", tail] = sides;
  const [first, last] = [groupsIn(head), groupsIn(tail ?? "")];
  if (sides.length > 2 || first === null || last === null) return null;
  const missing = GROUPS - first.length - last.length;
  // "::" stands for at least one group.
  if (tail === undefined ? missing !== 0 : missing < 1) return null;
  return [...first, ...Array<string>(missing).fill("0000"), ...last].join("");
}

/** An IPv4 or IPv6 address as 32 hexadecimal digits; null if it is none. */
export function addressDigits(text: string): string | null {
  if (text.includes(":")) return ipv6Digits(text.replace(ZONE, ""));
  const digits = ipv4Digits(text);
  return digits && MAPPED + digits;
}

/** The digits with all bits behind the first ones cleared. */
function masked(digits: string, bits: number): string {
  return Array.from(digits, (digit, at) => {
    const left = Math.min(
      Math.max(bits - at * BITS_PER_DIGIT, 0),
      BITS_PER_DIGIT,
    );
    const mask = 0xf << (BITS_PER_DIGIT - left) & 0xf;
    return (Number.parseInt(digit, 16) & mask).toString(16);
  }).join("");
}

/** A network as the record has it, or what is wrong with it: a sentence without `.` */
export type ParsedNetwork = { stored: string } | { fault: string };

/** Reads a network as people write it: an address, or an address, `/` and a length. */
export function parseKeyNetwork(text: string): ParsedNetwork {
  const [address = "", length, ...rest] = text.split("/");
  const digits = ZONE.test(address) ? null : addressDigits(address);
  if (digits === null || rest.length > 0) {
    return { fault: "Not an IP address or a network such as 10.0.0.0/8" };
  }
  const isIPv4 = !address.includes(":");
  const bitsMax = isIPv4 ? BITS - MAPPED_BITS : BITS;
  if (length !== undefined && !(LENGTH.test(length) && +length <= bitsMax)) {
    return { fault: `After the / comes a number from 0 to ${bitsMax}` };
  }
  const bits = (isIPv4 ? MAPPED_BITS : 0) + Number(length ?? bitsMax);
  const first = masked(digits, bits);
  return first === digits ? { stored: `${digits}/${bits}` } : {
    fault: `Its address is not the first of the network: ${
      networkText(`${first}/${bits}`)
    }`,
  };
}

/** A network of a record as people write it. */
export function networkText(stored: string): string {
  const [digits = "", length = ""] = stored.split("/");
  const bits = Number(length);
  if (digits.startsWith(MAPPED) && bits >= MAPPED_BITS) {
    const octets = digits.slice(MAPPED.length).match(/../g) ?? [];
    const address = octets.map((octet) => Number.parseInt(octet, 16)).join(".");
    return bits === BITS ? address : `${address}/${bits - MAPPED_BITS}`;
  }
  // `URL` writes an address in its shortest form.
  const groups = digits.slice(0, DIGITS).match(/.{4}/g) ?? [];
  const { hostname } = new URL(`http://[${groups.join(":")}]`);
  const address = hostname.slice(1, -1);
  return bits === BITS ? address : `${address}/${bits}`;
}
