/** Reads the JSON of model servers, which nobody has checked. */
import { endOfString } from "../openai/json_body.ts";

export { isJsonObject } from "../process/error_text.ts";

/** An object of which only the server knows the members. */
export type JsonObject = { [name: string]: unknown };

/** The string, or `""` for anything else: null and absent mean "no change". */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/**
 * The members of an object whose names are not in `names`; undefined if there are none.
 */
export function membersBeside(
  object: JsonObject,
  names: ReadonlySet<string>,
): JsonObject | undefined {
  let members: JsonObject | undefined;
  for (const name in object) {
    if (names.has(name)) continue;
    members ??= {};
    setMember(members, name, object[name]);
  }
  return members;
}

/** Sets a member; by assignment, `__proto__` would be none. */
export function setMember(
  object: JsonObject,
  name: string,
  value: unknown,
): void {
  if (name !== "__proto__") object[name] = value;
  else {
    const descriptor = {
      value,
      writable: true,
      enumerable: true,
      configurable: true,
    };
    Object.defineProperty(object, name, descriptor);
  }
}

/** The members of two objects: of those with the same name, that of `later` counts. */
export function mergedMembers(
  earlier: JsonObject | undefined,
  later: JsonObject | undefined,
): JsonObject | undefined {
  if (earlier === undefined || later === undefined) return earlier ?? later;
  return { ...earlier, ...later };
}

/** Any text of this length is parsed within a millisecond. */
const UNGUARDED_CHARS_MAX = 16 * 1024;
/** Answers have up to ten levels, apart from log probabilities and schemas. */
const DEPTH_MAX = 64;
/**
 * Arrays and objects: about 0.3 us each. The log probabilities of 20 alternatives for
 * 8,000 tokens have 340,000.
 */
const CONTAINERS_MAX = 400_000;
/** Values that follow others: about 0.04 us each. */
const COMMAS_MAX = 2_000_000;

/**
 * The value, or undefined for invalid JSON and for JSON that would occupy the process
 * for long: two megabytes of brackets take half a second. The parser's error would
 * quote the answer.
 */
export function parseJson(text: string): unknown {
  if (text.length > UNGUARDED_CHARS_MAX && isTooComplex(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a text has too many levels or values; strings are skipped. */
function isTooComplex(text: string): boolean {
  let depth = 0;
  let containers = 0;
  let commas = 0;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at + 1);
        break;
      case 0x5b: // [
      case 0x7b: // {
        depth += 1;
        containers += 1;
        if (depth > DEPTH_MAX || containers > CONTAINERS_MAX) return true;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth -= 1;
        break;
      case 0x2c: // ,
        commas += 1;
        if (commas > COMMAS_MAX) return true;
    }
  }
  return false;
}
