/** The body of a forwarded request: read within the bounds of all bodies, and kept. */
import { ApiError, fieldError } from "../openai/error.ts";
import { decodeUtf8, parseJsonBody } from "../openai/json_body.ts";
import {
  type Edit,
  type Member,
  membersOf,
  replaced,
  type Span,
} from "./members.ts";

/** A body in JSON that is an object. */
export interface ForwardBody {
  /** The client's text, with the edits that were made. */
  readonly text: string;
  /** What it says. Never written again. */
  readonly value: { readonly [name: string]: unknown };
  /** The members as they stand in the text. */
  readonly members: readonly Member[];
}

/**
 * Reads a body. Throws an `ApiError`, 400: it is no valid UTF-8 or JSON, too complex,
 * no object, or has two members of one of the `single` names, of which the gateway and
 * the server might read different ones.
 */
export function readForwardBody(
  bytes: Uint8Array,
  single: readonly string[],
): ForwardBody {
  const text = decodeUtf8(bytes);
  const value = parseJsonBody(text);
  const members = membersOf(text);
  if (members === null || !isObject(value)) throw notAnObject();
  for (const name of single) {
    if (members.filter((each) => each.name === name).length < 2) continue;
    const message = `Invalid '${name}': expected it once, but it is repeated.`;
    throw fieldError("invalid_value", name, message);
  }
  return { text, value, members };
}

const isObject = (value: unknown): value is ForwardBody["value"] =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function notAnObject(): ApiError {
  const message = "Invalid request body: expected an object.";
  return new ApiError("invalid_type", message);
}

/** Where the value of a member stands; null if the body has none of this name. */
export function spanOf({ members }: ForwardBody, name: string): Span | null {
  return members.find((each) => each.name === name) ?? null;
}

/** The body with other values for some members. */
export function edited(body: ForwardBody, edits: readonly Edit[]): ForwardBody {
  if (edits.length === 0) return body;
  const text = replaced(body.text, edits);
  return { text, value: body.value, members: membersOf(text) ?? [] };
}
