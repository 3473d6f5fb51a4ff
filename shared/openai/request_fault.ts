/** Turns what zod finds into errors with OpenAI's codes, `param` paths and words. */
import type { z } from "zod";
import {
  clip,
  formatPath,
  nameOfType,
  valueAt,
} from "../process/error_text.ts";
import { ApiError, type ErrorCode, fieldError } from "./error.ts";
import { INTEGER } from "./fields.ts";

type Issue = z.core.$ZodIssue;

/**
 * The value as the schema converts it. Throws the {@link requestFault} of an invalid
 * one.
 */
export function checked<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
): z.output<Schema> {
  const { success, data, error } = schema.safeParse(value);
  if (!success) throw requestFault(value, error);
  return data;
}

/**
 * The first issue as an error with OpenAI's code and `param` path. The message shows
 * numbers and (clipped) the values of enumerations, but no other text.
 */
export function requestFault(
  body: unknown,
  error: z.ZodError | undefined,
): ApiError {
  const issue = error?.issues[0];
  const path = issue?.path ?? [];
  if (issue === undefined || path.length === 0) {
    const actual = nameOfType(body);
    const message =
      `Invalid request body: expected an object, but got ${actual}.`;
    return new ApiError("invalid_type", message);
  }
  const param = formatPath(path);
  const value = valueAt(body, path);
  if (value === undefined) {
    const message = `Missing required parameter: '${param}'.`;
    return fieldError("missing_required_parameter", param, message);
  }
  if (issue.code === "custom") {
    return fieldError("invalid_value", param, issue.message);
  }
  const { code, expected, actual = describeValue(value) } = expectationOf(
    issue,
    value,
  );
  const message =
    `Invalid '${param}': expected ${expected}, but got ${actual}.`;
  return fieldError(code, param, message);
}

/** What was wrong with a value. */
export interface Description {
  code: ErrorCode;
  /** As in "expected …". */
  expected: string;
  /** As in "but got …"; absent where the value itself may be shown. */
  actual?: string;
}

/** What was expected: by the kind of the issue, or in the schema's words. */
export function expectationOf(issue: Issue, value: unknown): Description {
  switch (issue.code) {
    case "invalid_type":
      return { code: "invalid_type", expected: nameOf(issue.expected) };
    case "invalid_value":
      return oneOf(issue.values, value);
    case "invalid_union":
      return oneOf("options" in issue ? issue.options ?? [] : [], value);
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

/** `'a'`, `'a' or 'b'`, `'a', 'b', or 'c'`. */
const LIST = new Intl.ListFormat("en", { type: "disjunction" });

function oneOf(supported: readonly unknown[], value: unknown): Description {
  const expected = LIST.format(supported.map((each) => `'${each}'`));
  return typeof value === "string"
    ? { code: "invalid_value", expected, actual: `'${clip(value)}'` }
    : { code: "invalid_type", expected };
}

function bounds(
  issue: Extract<Issue, { code: "too_small" | "too_big" }>,
): Description {
  const isSmall = issue.code === "too_small";
  const bound = isSmall ? issue.minimum : issue.maximum;
  const { origin } = issue;
  if (origin === "array" || origin === "string") {
    const what = origin === "array" ? "array" : "string";
    const unit = what === "array" ? "element" : "character";
    const most = isSmall ? "at least" : "at most";
    return {
      code: isSmall ? `empty_${what}` : `${what}_above_max_length`,
      expected: `${most} ${bound} ${unit}${bound === 1 ? "" : "s"}`,
    };
  }
  // The field decides, not the value: for a decimal field, 200 is too large a decimal.
  const isInteger = origin === "int" || issue.message === INTEGER;
  const kind = isInteger ? "integer" : "decimal";
  const above = issue.inclusive === false ? ">" : ">=";
  return {
    code: isSmall ? `${kind}_below_min_value` : `${kind}_above_max_value`,
    expected: `a value ${isSmall ? above : "<="} ${bound}`,
  };
}

function describeValue(value: unknown): string {
  if (typeof value === "number") return String(value);
  return typeof value === "string" || Array.isArray(value)
    ? `${nameOfType(value)} of length ${value.length}`
    : nameOfType(value);
}
