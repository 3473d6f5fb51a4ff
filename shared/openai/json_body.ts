/**
 * Reads JSON bodies of callers: bounded before they are parsed, with errors that quote
 * nothing.
 */
import { Buffer, isAscii } from "node:buffer";
import { REQUEST_LIMITS } from "../limits.ts";
import { ApiError } from "./error.ts";

const BACKSLASH = 0x5c;
const {
  depthMax,
  topLevelKeysMax,
  membersMax,
  containersMax,
  structureBytesMax,
} = REQUEST_LIMITS;

/**
 * Refuses JSON that would be expensive to parse: too deep, too many members, lists or
 * objects, or too much outside of strings, each of which counts as one character.
 * Throws an {@link ApiError}, 400. Does not check whether the JSON is valid.
 */
export function guardJson(text: string): void {
  let depth = 0;
  let topLevelKeys = 0;
  let members = 0;
  let containers = 0;
  let structure = 0;
  for (let at = 0; at < text.length; at++) {
    if (++structure > structureBytesMax) throw tooComplex();
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        at = endOfString(text, at + 1);
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > depthMax) throw tooComplex();
        if (++containers > containersMax) throw tooComplex();
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
        break;
      case 0x3a: // :
        if (depth === 1 && ++topLevelKeys > topLevelKeysMax) throw tooComplex();
        if (++members > membersMax) throw tooComplex();
    }
  }
}

function tooComplex(): ApiError {
  return new ApiError(
    "invalid_request",
    "The JSON body of your request is too complex. Expected at most " +
      `${depthMax} levels, ${topLevelKeysMax} members at the top, ` +
      `${membersMax} in all, ${containersMax} lists and objects, ` +
      `and ${structureBytesMax} bytes outside of strings.`,
  );
}

/**
 * The index of the quote that closes the string starting at `from`, or the length of
 * the text.
 */
export function endOfString(text: string, from: number): number {
  for (let at = from;;) {
    const quote = text.indexOf('"', at);
    if (quote < 0) return text.length;
    let before = quote - 1;
    while (text.charCodeAt(before) === BACKSLASH) before--;
    if ((quote - before) % 2 === 1) return quote;
    at = quote + 1;
  }
}

/** Reads bytes as JSON: strictly UTF-8, without a byte order mark. */
export const decodeJson = (bytes: Uint8Array): unknown =>
  parseJsonBody(decodeUtf8(bytes));

/**
 * Throws an {@link ApiError}, 400, with the position of the fault, but never the text
 * around it.
 */
export function parseJsonBody(text: string): unknown {
  guardJson(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw invalidJson(text.trim() === "" ? "it is empty" : placeOf(error));
  }
}

/** The part of the parser's message that does not quote the text. */
function placeOf({ message }: SyntaxError): string {
  if (message === "Unexpected end of JSON input") return "it ends too early";
  const place = / at position \d+ \(line \d+ column \d+\)$/.exec(message)?.[0];
  return `it is not valid JSON${place ?? ""}`;
}

/**
 * The text of a body. Throws an {@link ApiError}, 400, if it is not valid UTF-8. Most
 * bodies are ASCII, for which this is three times faster than a decoder.
 */
export function decodeUtf8(bytes: Uint8Array): string {
  if (isAscii(bytes)) {
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      .toString("latin1");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw invalidJson("it is not valid UTF-8");
  }
}

function invalidJson(why: string): ApiError {
  const message = `We could not parse the JSON body of your request: ${why}.`;
  return new ApiError("invalid_json", message);
}
