/** Members with the name `__proto__`, which zod leaves out of the objects it copies. */
import { isJsonObject } from "@gateway/shared/process/error_text";

const NAME = "__proto__";

/**
 * Gives the objects of a parsed body the members `__proto__` that they have in the body
 * as it came, as members of their own: no object gets another prototype. Values that
 * zod has not copied still have theirs.
 */
export function keepProtoMembers(original: unknown, parsed: unknown): void {
  if (original === parsed) return;
  if (Array.isArray(original) && Array.isArray(parsed)) {
    for (let index = 0; index < parsed.length; index++) {
      keepProtoMembers(original[index], parsed[index]);
    }
  } else if (isJsonObject(original) && isJsonObject(parsed)) {
    for (const name in parsed) keepProtoMembers(original[name], parsed[name]);
    if (!Object.hasOwn(original, NAME)) return;
    Object.defineProperty(parsed, NAME, {
      value: original[NAME],
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
}
