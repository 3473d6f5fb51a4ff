/** Members with the name `__proto__`, which zod leaves out of the objects it copies. */
import { isJsonObject } from "@gateway/shared/process/error_text";

const NAME = "__proto__";

/**
 * Gives the objects of a parsed body the members `__proto__` that they have in the body
 * as it came, as members of their own: no object gets another prototype. Values that
 * zod has not copied still have theirs.
 */
export function keepProtoMembers(given: unknown, parsed: unknown): void {
  if (given === parsed) return;
  if (Array.isArray(given) && Array.isArray(parsed)) {
    for (let index = 0; index < parsed.length; index++) {
      keepProtoMembers(given[index], parsed[index]);
    }
  } else if (isJsonObject(given) && isJsonObject(parsed)) {
    for (const name in parsed) keepProtoMembers(given[name], parsed[name]);
    if (!Object.hasOwn(given, NAME)) return;
    Object.defineProperty(parsed, NAME, {
      value: given[NAME],
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
}
