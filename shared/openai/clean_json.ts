import { REQUEST_LIMITS } from "../limits.ts";
import { ApiError, type ErrorCode } from "./error.ts";
import {
  formatPath,
  isJsonObject,
  type PathStep,
} from "../process/error_text.ts";

/** Something that parses as JSON but cannot be sent on unchanged. */
interface Unclean {
  code: ErrorCode;
  what: string;
  /** From the innermost step outwards. */
  steps: PathStep[];
}

/**
 * Refuses values that would change when they are written as JSON again, so that
 * what was checked is what the model server gets: numbers too large for a double
 * (they would become null), unpaired surrogates (they would become U+FFFD), and
 * nesting beyond the limit (it would break recursive readers).
 *
 * `value` is JSON. Throws an {@link ApiError} with the path from the root.
 */
export function requireCleanJson(value: unknown): void {
  const found = findUnclean(value, 0);
  if (found === null) return;
  const param = formatPath(found.steps.reverse());
  throw new ApiError(found.code, `Invalid '${param}': ${found.what}.`, {
    param,
  });
}

function findUnclean(value: unknown, depth: number): Unclean | null {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? null : unpairedSurrogate();
    case "number":
      return Number.isFinite(value) ? null : outOfRange();
    case "object":
      if (value === null) return null;
      if (depth >= REQUEST_LIMITS.depthMax) return tooDeep();
      if (Array.isArray(value)) return findInArray(value, depth + 1);
      return isJsonObject(value) ? findInObject(value, depth + 1) : null;
    default:
      return null;
  }
}

function findInArray(values: unknown[], depth: number): Unclean | null {
  for (let index = 0; index < values.length; index++) {
    const found = findUnclean(values[index], depth);
    if (found !== null) {
      found.steps.push(index);
      return found;
    }
  }
  return null;
}

/** `for in` allocates nothing; the objects are JSON, so they inherit no members. */
function findInObject(
  object: { readonly [name: string]: unknown },
  depth: number,
): Unclean | null {
  for (const name in object) {
    const found = name.isWellFormed()
      ? findUnclean(object[name], depth)
      : unpairedSurrogate();
    if (found !== null) {
      found.steps.push(name);
      return found;
    }
  }
  return null;
}

function unpairedSurrogate(): Unclean {
  return {
    code: "invalid_value",
    what: "the text has an unpaired surrogate and is not valid Unicode",
    steps: [],
  };
}

function outOfRange(): Unclean {
  return {
    code: "invalid_value",
    what: "number out of range. Expected a finite number",
    steps: [],
  };
}

function tooDeep(): Unclean {
  return {
    code: "invalid_value",
    what: `nested deeper than ${REQUEST_LIMITS.depthMax} levels`,
    steps: [],
  };
}
