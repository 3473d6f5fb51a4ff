import { integerBetween, pick, type Random } from "../sampling/random.ts";

/** One value of JSON Schema's `format`. */
export interface StringFormat {
  /** A new text in this format. Never the time of the clock: the same seed gives the same text. */
  write(random: Random): string;
  /** Whether a text has it. */
  matches(text: string): boolean;
}

const NAMES = ["ada", "noor", "lin", "marta", "jonas", "sofia", "ravi"];
const HEX = "0123456789abcdef";

const DATE = /^(\d{4})-(\d{2})-(\d{2})$/;
const TIME =
  /^([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;
const EMAIL = /^[^\s@"<>]{1,64}@[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){1,8}$/i;
const HOST =
  /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?){0,20}$/i;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const DURATION =
  /^P(?=[\dT])(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?$/;
const IPV4 = /^((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}$/;
const IPV6 = /^[0-9a-f:]{2,39}$/i;

/** The format of a name; undefined for one that is unknown and so holds for every text. */
export function formatOf(name: unknown): StringFormat | undefined {
  return typeof name === "string" ? FORMATS.get(name) : undefined;
}

const URI: StringFormat = {
  write: (random) => `https://example.com/${pick(random, NAMES) ?? "page"}`,
  matches: (text) => /^[a-z][a-z0-9+.-]*:[^\s<>"]+$/i.test(text),
};
const EMAIL_FORMAT: StringFormat = {
  write: (random) => `${pick(random, NAMES) ?? "ada"}@example.com`,
  matches: (text) => EMAIL.test(text),
};

const FORMATS: ReadonlyMap<string, StringFormat> = new Map([
  ["date", { write: writeDate, matches: isDate }],
  ["time", { write: writeTime, matches: (text: string) => TIME.test(text) }],
  ["date-time", {
    write: (random: Random) => `${writeDate(random)}T${writeTime(random)}`,
    matches: isDateTime,
  }],
  ["duration", {
    write: (random: Random) => `PT${integerBetween(random, 1, 59)}M`,
    matches: (text: string) => DURATION.test(text),
  }],
  ["email", EMAIL_FORMAT],
  ["idn-email", EMAIL_FORMAT],
  ["uri", URI],
  ["url", URI],
  ["iri", URI],
  ["uri-reference", {
    write: (random: Random) => URI.write(random),
    matches: (text: string) => /^[^\s<>"]*$/.test(text),
  }],
  ["uuid", { write: writeUuid, matches: (text: string) => UUID.test(text) }],
  ["hostname", {
    write: (random: Random) => `${pick(random, NAMES) ?? "www"}.example.com`,
    matches: (text: string) => text.length <= 253 && HOST.test(text),
  }],
  ["ipv4", {
    write: (random: Random) => `192.0.2.${integerBetween(random, 1, 254)}`,
    matches: (text: string) => IPV4.test(text),
  }],
  ["ipv6", {
    write: (random: Random) => `2001:db8::${integerBetween(random, 1, 9999)}`,
    matches: isIpv6,
  }],
]);

function writeDate(random: Random): string {
  const year = integerBetween(random, 2024, 2027);
  const month = twoDigits(integerBetween(random, 1, 12));
  return `${year}-${month}-${twoDigits(integerBetween(random, 1, 28))}`;
}

function writeTime(random: Random): string {
  const hour = twoDigits(integerBetween(random, 7, 21));
  return `${hour}:${twoDigits(5 * integerBetween(random, 0, 11))}:00Z`;
}

function writeUuid(random: Random): string {
  const digits = (count: number) =>
    Array.from({ length: count }, () => pick(random, [...HEX]) ?? "0").join("");
  const variant = pick(random, ["8", "9", "a", "b"]) ?? "8";
  return `${digits(8)}-${digits(4)}-4${digits(3)}-${variant}${digits(3)}-${
    digits(12)
  }`;
}

function isDate(text: string): boolean {
  const parts = DATE.exec(text);
  if (!parts) return false;
  const day = new Date(`${text}T00:00:00Z`);
  // An impossible day such as 30 February becomes another one or none.
  return !Number.isNaN(day.getTime()) &&
    day.toISOString().slice(0, 10) === text;
}

function isDateTime(text: string): boolean {
  const [date, time] = [text.slice(0, 10), text.slice(11)];
  return /^[t ]$/i.test(text.slice(10, 11)) && isDate(date) && TIME.test(time);
}

function isIpv6(text: string): boolean {
  if (!IPV6.test(text) || text.includes(":::")) return false;
  const groups = text.split("::");
  if (groups.length > 2) return false;
  const parts = groups.flatMap((group) => group === "" ? [] : group.split(":"));
  const count = parts.length;
  return parts.every((part) => /^[0-9a-f]{1,4}$/i.test(part)) &&
    (groups.length === 2 ? count <= 7 : count === 8);
}

function twoDigits(value: number): string {
  return String(value).padStart(2, "0");
}
