import type * as z from "zod";
import {
  clip,
  formatPath,
  listOfValues,
  nameOfType,
  type PathStep,
  valueAt,
} from "../process/error_text.ts";
import { ApiError, fieldError } from "./error.ts";

type Issue = z.core.$ZodIssue;

/**
 * Turns the first fault that zod found in a request into the error that OpenAI
 * answers with: code, `param` path and sentence. Only for the refused path, so
 * it may look the offending value up again in `body`. Numbers and the values of
 * enumerations are repeated to the caller, cut short; other text never is.
 */
export function requestFault(
  body: unknown,
  [first]: readonly Issue[],
): ApiError {
  return first === undefined
    ? new ApiError("invalid_request", "The request body is not valid.")
    : faultOf(body, first, []);
}

/** What is wrong, where. */
interface Found {
  param: string;
  value: unknown;
  /** The schema's part of the sentence, see `request_schema.ts`. */
  message: string;
}

/** The same for an issue whose path begins at `base`. */
function faultOf(
  body: unknown,
  issue: Issue,
  base: readonly PathStep[],
): ApiError {
  const path = [...base, ...issue.path];
  const param = formatPath(path);
  const value = valueAt(body, path);
  const found: Found = { param, value, message: issue.message };
  if (value === undefined) {
    const message = `Missing required parameter: '${param}'.`;
    return fieldError("missing_required_parameter", param, message);
  }
  switch (issue.code) {
    case "invalid_type":
      return wrongType(found);
    case "invalid_value":
      return wrongValue(found, issue.values);
    case "invalid_union": {
      if (issue.discriminator !== undefined) {
        const options = "options" in issue ? issue.options ?? [] : [];
        return wrongValue(found, options);
      }
      // Only the first issue of a branch tells: after it, zod may go on to measure
      // the length of an array as if it were a string.
      const inner = issue.errors
        .map(([first]) => first)
        .find((first) => first !== undefined && !isOtherType(first, value));
      return inner === undefined
        ? wrongType(found)
        : faultOf(body, inner, path);
    }
    case "too_small":
    case "too_big":
      return outOfBounds(found, issue);
    default:
      return invalid("invalid_value", found, issue.message);
  }
}

/** Whether a branch of a union failed because the value is of another kind altogether. */
function isOtherType(issue: Issue, value: unknown): boolean {
  if (issue.path.length > 0) return false;
  return issue.code === "invalid_type" ||
    (issue.code === "invalid_value" && typeof value !== "string");
}

function wrongType({ param, value, message }: Found): ApiError {
  // JSON has no infinity, but a parser makes one of `1e400`.
  if (typeof value === "number" && !Number.isFinite(value)) {
    const what = "number out of range. Expected a finite number";
    return invalid("invalid_value", { param }, what);
  }
  return fieldError(
    "invalid_type",
    param,
    `Invalid type for '${param}': ${message}, but got ${
      nameOfType(value)
    } instead.`,
  );
}

function wrongValue(
  { param, value }: Found,
  supported: readonly unknown[],
): ApiError {
  const isOne = supported.length === 1;
  if (typeof value !== "string") {
    const one = isOne ? "expected" : "expected one of";
    const message = `${one} ${listOfValues(supported, "or")}`;
    return wrongType({ param, value, message });
  }
  const listed = isOne ? "Supported value is:" : "Supported values are:";
  return fieldError(
    "invalid_value",
    param,
    `Invalid value: '${clip(value)}'. ${listed} ${
      listOfValues(supported, "and")
    }.`,
  );
}

type BoundsIssue = Extract<Issue, { code: "too_small" | "too_big" }>;

function outOfBounds(found: Found, issue: BoundsIssue): ApiError {
  const origin = issue.origin === "array"
    ? "array"
    : issue.origin === "string"
    ? "string"
    : null;
  const isSmall = issue.code === "too_small";
  const bound = String(isSmall ? issue.minimum : issue.maximum);
  if (origin !== null) {
    const a = origin === "array" ? "an array" : "a string";
    return isSmall
      ? invalid(
        `empty_${origin}`,
        found,
        `empty ${origin}. Expected ${a} with minimum length ${bound}, ` +
          `but got an empty ${origin} instead`,
      )
      : invalid(
        `${origin}_above_max_length`,
        found,
        `${origin} too long. Expected ${a} with maximum length ${bound}, ` +
          `but got ${a} with length ${lengthOf(found.value)} instead`,
      );
  }
  // The field's kind, not the value's: 200 is a wrong decimal where a decimal is expected.
  const kind = found.message === "decimal" ? "decimal" : "integer";
  const sign = isSmall ? (issue.inclusive === false ? ">" : ">=") : "<=";
  return invalid(
    isSmall ? `${kind}_below_min_value` : `${kind}_above_max_value`,
    found,
    `${kind} ${isSmall ? "below minimum" : "above maximum"} value. Expected ` +
      `a value ${sign} ${bound}, but got ${String(found.value)} instead`,
  );
}

function lengthOf(value: unknown): number {
  return typeof value === "string" || Array.isArray(value) ? value.length : 0;
}

function invalid(
  code: Parameters<typeof fieldError>[0],
  { param }: { param: string },
  what: string,
): ApiError {
  return fieldError(code, param, `Invalid '${param}': ${what}.`);
}
