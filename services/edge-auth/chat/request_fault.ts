import type * as z from "zod";
import {
  ApiError,
  type ErrorCode,
  fieldError,
} from "@gateway/shared/openai/error";
import {
  clip,
  formatPath,
  listOfValues,
  nameOfType,
  type PathStep,
  valueAt,
} from "@gateway/shared/process/error_text";
import { INTEGER } from "./request_schema.ts";

type Issue = z.core.$ZodIssue;

/**
 * Turns the first issue that zod found in a request into an error with OpenAI's
 * code and `param` path. Looks the offending value up again in `body`. The message
 * shows numbers and (clipped) the values of enumerations, but no other text.
 */
export function requestFault(
  body: unknown,
  issue: Issue | undefined,
): ApiError {
  return issue === undefined
    ? new ApiError("invalid_request", "The request body is not valid.")
    : faultOf(body, issue, []);
}

/** The same for an issue whose path begins at `base`. */
function faultOf(
  body: unknown,
  issue: Issue,
  base: readonly PathStep[],
): ApiError {
  const path = [...base, ...issue.path];
  const value = valueAt(body, path);
  const param = formatPath(path);
  if (value === undefined) {
    const message = `Missing required parameter: '${param}'.`;
    return fieldError("missing_required_parameter", param, message);
  }
  if (issue.code === "invalid_union" && issue.discriminator === undefined) {
    // Only the first issue of a branch counts: zod may go on to measure an array as
    // if it were a string.
    const inner = issue.errors.map(([first]) => first)
      .find((first) => first !== undefined && !isOtherType(first, value));
    if (inner !== undefined) return faultOf(body, inner, path);
  }
  const { code, expected, got = shown(value) } = describe(issue, value);
  const message = `Invalid '${param}': expected ${expected}, but got ${got}.`;
  return fieldError(code, param, message);
}

/** Whether a branch of a union failed because the value has another type. */
function isOtherType(issue: Issue, value: unknown): boolean {
  if (issue.path.length > 0) return false;
  return issue.code === "invalid_type" ||
    (issue.code === "invalid_value" && typeof value !== "string");
}

interface Description {
  code: ErrorCode;
  expected: string;
  got?: string;
}

/** What was expected: by the kind of the issue, or in the schema's words. */
function describe(issue: Issue, value: unknown): Description {
  switch (issue.code) {
    case "invalid_type":
      return { code: "invalid_type", expected: nameOf(issue.expected) };
    case "invalid_value":
      return oneOf(issue.values, value);
    case "invalid_union":
      return issue.discriminator !== undefined && "options" in issue
        ? oneOf(issue.options ?? [], value)
        : { code: "invalid_type", expected: issue.message };
    case "too_small":
    case "too_big":
      return bounds(issue);
    default:
      return { code: "invalid_value", expected: issue.message };
  }
}

function nameOf(type: string): string {
  if (type === "int") return INTEGER;
  if (type === "array") return "an array";
  return type === "object" || type === "record" ? "an object" : `a ${type}`;
}

function oneOf(supported: readonly unknown[], value: unknown): Description {
  const expected = listOfValues(supported);
  return typeof value === "string"
    ? { code: "invalid_value", expected, got: `'${clip(value)}'` }
    : { code: "invalid_type", expected };
}

function bounds(
  issue: Extract<Issue, { code: "too_small" | "too_big" }>,
): Description {
  const isSmall = issue.code === "too_small";
  const bound = isSmall ? issue.minimum : issue.maximum;
  if (issue.origin === "array" || issue.origin === "string") {
    const what = issue.origin === "array" ? "array" : "string";
    const units = what === "array" ? "elements" : "characters";
    return {
      code: isSmall ? `empty_${what}` : `${what}_above_max_length`,
      expected: `at ${isSmall ? "least" : "most"} ${bound} ${units}`,
    };
  }
  // The field decides, not the value: for a decimal field, 200 is too large a decimal.
  const isInteger = issue.origin === "int" || issue.message === INTEGER;
  const kind = isInteger ? "integer" : "decimal";
  const sign = isSmall ? (issue.inclusive === false ? ">" : ">=") : "<=";
  return {
    code: isSmall ? `${kind}_below_min_value` : `${kind}_above_max_value`,
    expected: `a value ${sign} ${bound}`,
  };
}

/** The description of a value that is safe to show in a message. */
function shown(value: unknown): string {
  if (typeof value === "number") return String(value);
  if (typeof value === "string" || Array.isArray(value)) {
    return `${nameOfType(value)} of length ${value.length}`;
  }
  return nameOfType(value);
}
