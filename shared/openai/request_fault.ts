import type * as z from "zod";
import { ApiError } from "./error.ts";
import {
  clip,
  formatPath,
  listOfValues,
  nameOfType,
  type PathStep,
  valueAt,
} from "../process/error_text.ts";

type Issue = z.core.$ZodIssue;

/**
 * Turns the first fault that zod found in a request into the error that OpenAI
 * answers with: code, `param` path and sentence. Only for the refused path, so
 * it may look the offending value up again in `body`. Numbers and the values of
 * enumerations are repeated to the caller, cut short; other text never is.
 */
export function requestFault(
  body: unknown,
  issues: readonly Issue[],
): ApiError {
  const first = issues[0];
  if (first === undefined) {
    return new ApiError("invalid_request", "The request body is not valid.");
  }
  return faultOf(body, first, []);
}

/** The same for an issue whose path begins at `base`. */
function faultOf(
  body: unknown,
  issue: Issue,
  base: readonly PathStep[],
): ApiError {
  const path = [...base, ...issue.path];
  const found: Found = {
    param: formatPath(path),
    value: valueAt(body, path),
    message: issue.message,
  };
  if (found.value === undefined) return missing(found);
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
      const branch = issue.errors.find(([inner]) =>
        inner !== undefined && !isOtherType(inner, found.value)
      );
      const inner = branch?.[0];
      return inner === undefined
        ? wrongType(found)
        : faultOf(body, inner, path);
    }
    case "too_small":
      return tooSmall(found, issue);
    case "too_big":
      return tooBig(found, issue);
    default:
      return invalid("invalid_value", found, found.message);
  }
}

/** What is wrong, where. */
interface Found {
  param: string;
  value: unknown;
  /** The schema's part of the sentence, see `fields.ts`. */
  message: string;
}

/** Whether a branch of a union failed because the value is of another kind altogether. */
function isOtherType(issue: Issue, value: unknown): boolean {
  if (issue.path.length > 0) return false;
  return issue.code === "invalid_type" ||
    (issue.code === "invalid_value" && typeof value !== "string");
}

function missing({ param }: Found): ApiError {
  return new ApiError(
    "missing_required_parameter",
    `Missing required parameter: '${param}'.`,
    { param },
  );
}

function wrongType({ param, value, message }: Found): ApiError {
  // JSON has no infinity, but a parser makes one of `1e400`.
  if (typeof value === "number" && !Number.isFinite(value)) {
    return invalid(
      "invalid_value",
      { param },
      "number out of range. Expected a finite number",
    );
  }
  return new ApiError(
    "invalid_type",
    `Invalid type for '${param}': ${message}, but got ${
      nameOfType(value)
    } instead.`,
    { param },
  );
}

function wrongValue(
  { param, value }: Found,
  supported: readonly unknown[],
): ApiError {
  if (typeof value !== "string") {
    const message = supported.length === 1
      ? `expected ${listOfValues(supported, "or")}`
      : `expected one of ${listOfValues(supported, "or")}`;
    return wrongType({ param, value, message });
  }
  const listed = supported.length === 1
    ? "Supported value is:"
    : "Supported values are:";
  return new ApiError(
    "invalid_value",
    `Invalid value: '${clip(value)}'. ${listed} ${
      listOfValues(supported, "and")
    }.`,
    { param },
  );
}

type TooSmall = Extract<Issue, { code: "too_small" }>;
type TooBig = Extract<Issue, { code: "too_big" }>;

function tooSmall(found: Found, issue: TooSmall): ApiError {
  if (issue.origin === "array") {
    return invalid(
      "empty_array",
      found,
      `empty array. Expected an array with minimum length ${issue.minimum}, ` +
        "but got an empty array instead",
    );
  }
  if (issue.origin === "string") {
    return invalid(
      "empty_string",
      found,
      `empty string. Expected a string with minimum length ${issue.minimum}, ` +
        "but got an empty string instead",
    );
  }
  const kind = kindOfNumber(found);
  const sign = issue.inclusive === false ? ">" : ">=";
  return invalid(
    `${kind}_below_min_value`,
    found,
    `${kind} below minimum value. Expected a value ${sign} ${issue.minimum}, ` +
      `but got ${String(found.value)} instead`,
  );
}

function tooBig(found: Found, issue: TooBig): ApiError {
  const most = String(issue.maximum);
  if (issue.origin === "array") {
    return invalid(
      "array_above_max_length",
      found,
      `array too long. Expected an array with maximum length ${most}, ` +
        `but got an array with length ${lengthOf(found.value)} instead`,
    );
  }
  if (issue.origin === "string") {
    return invalid(
      "string_above_max_length",
      found,
      `string too long. Expected a string with maximum length ${most}, ` +
        `but got a string with length ${lengthOf(found.value)} instead`,
    );
  }
  const kind = kindOfNumber(found);
  return invalid(
    `${kind}_above_max_value`,
    found,
    `${kind} above maximum value. Expected a value <= ${most}, ` +
      `but got ${String(found.value)} instead`,
  );
}

/** The field's kind, not the value's: 200 is a wrong decimal where a decimal is expected. */
function kindOfNumber({ message }: Found): "integer" | "decimal" {
  return message === "decimal" ? "decimal" : "integer";
}

function lengthOf(value: unknown): number {
  return typeof value === "string" || Array.isArray(value) ? value.length : 0;
}

type InvalidCode =
  | "invalid_value"
  | "empty_array"
  | "empty_string"
  | "array_above_max_length"
  | "string_above_max_length"
  | "integer_below_min_value"
  | "integer_above_max_value"
  | "decimal_below_min_value"
  | "decimal_above_max_value";

function invalid(
  code: InvalidCode,
  { param }: { param: string },
  what: string,
): ApiError {
  return new ApiError(code, `Invalid '${param}': ${what}.`, { param });
}
