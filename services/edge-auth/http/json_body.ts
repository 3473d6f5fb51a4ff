import { Buffer, isAscii } from "node:buffer";
import { ApiError } from "@gateway/shared/openai/error";
import { REQUEST_LIMITS } from "@gateway/shared/limits";

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Strings shorter than this are scanned byte by byte; a search call costs more. */
const SHORT_STRING_BYTES = 64;

/**
 * Refuses JSON that would be expensive to parse, before it is parsed: nesting
 * beyond the limit, too many members, at the top or in all, or too much of it that
 * is not in strings. A bomb of 500,000 levels is
 * refused after 65 bytes.
 *
 * `bytes` is the text in UTF-8. Nothing else is checked: what is not JSON at all
 * is left to the parser. Throws an {@link ApiError}, 400. Costs about 0.4 ms for
 * a megabyte of prose and up to 2.5 ms for a megabyte of numbers or brackets.
 */
export function guardJson(bytes: Uint8Array): void {
  let depth = 0;
  let topLevelKeys = 0;
  let members = 0;
  let structureBytes = 0;
  for (let at = 0; at < bytes.length; at++) {
    // A string is one step of this loop.
    if (++structureBytes > REQUEST_LIMITS.structureBytesMax) {
      throw tooMuchStructure();
    }
    switch (bytes[at]) {
      case QUOTE:
        at = endOfString(bytes, at + 1);
        break;
      case OPEN_BRACKET:
      case OPEN_BRACE:
        if (++depth > REQUEST_LIMITS.depthMax) throw tooDeep(at);
        break;
      case CLOSE_BRACKET:
      case CLOSE_BRACE:
        depth--;
        break;
      case COLON:
        if (++members > REQUEST_LIMITS.membersMax) throw tooManyMembers();
        if (depth === 1 && ++topLevelKeys > REQUEST_LIMITS.topLevelKeysMax) {
          throw tooManyKeys();
        }
    }
  }
}

/** The index of the quote that ends the string whose inside begins at `from`, or the end of the bytes. */
function endOfString(bytes: Uint8Array, from: number): number {
  let at = from;
  while (at < bytes.length) {
    const near = Math.min(bytes.length, at + SHORT_STRING_BYTES);
    for (; at < near; at++) {
      const byte = bytes[at];
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) return at;
    }
    const quote = bytes.indexOf(QUOTE, at);
    if (quote < 0) return bytes.length;
    let backslashes = 0;
    while (
      quote - backslashes > at && bytes[quote - backslashes - 1] === BACKSLASH
    ) {
      backslashes++;
    }
    if (backslashes % 2 === 0) return quote;
    at = quote + 1;
  }
  return bytes.length;
}

/**
 * Reads bytes as JSON: guarded by {@link guardJson}, strictly UTF-8 (a byte order
 * mark is skipped), then one JSON value. Throws an {@link ApiError}, 400, that
 * names the place of the fault and never the text around it.
 */
export function decodeJson(bytes: Uint8Array): unknown {
  guardJson(bytes);
  const text = decodeUtf8(bytes);
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new ApiError(
      "invalid_json",
      "We could not parse the JSON body of your request: " +
        `${text.trim() === "" ? "it is empty" : placeOf(error)}.`,
    );
  }
}

/** Of the parser's message, what never quotes the text. */
function placeOf({ message }: SyntaxError): string {
  if (message === "Unexpected end of JSON input") return "it ends too early";
  const place = / at position \d+ \(line \d+ column \d+\)$/.exec(message)?.[0];
  return `it is not valid JSON${place ?? ""}`;
}

/** What most bodies are, ASCII, goes a way that is three times faster than a decoder. */
function decodeUtf8(bytes: Uint8Array): string {
  if (isAscii(bytes)) {
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      .toString("latin1");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new ApiError(
      "invalid_json",
      "We could not parse the JSON body of your request: it is not valid UTF-8 " +
        `at byte ${firstInvalidByte(bytes)}.`,
    );
  }
}

/** Where the bytes stop being UTF-8: the first that a forgiving decoder changes. */
function firstInvalidByte(bytes: Uint8Array): number {
  const forgiven = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  const again = new TextEncoder().encode(forgiven);
  let at = 0;
  while (at < bytes.length && bytes[at] === again[at]) at++;
  return at;
}

function tooDeep(at: number): ApiError {
  return new ApiError(
    "invalid_json",
    "The JSON body of your request is nested deeper than " +
      `${REQUEST_LIMITS.depthMax} levels, at byte ${at}.`,
  );
}

function tooManyMembers(): ApiError {
  return new ApiError(
    "object_above_max_properties",
    "The JSON body of your request has too many properties. Expected at most " +
      `${REQUEST_LIMITS.membersMax} in all objects together.`,
  );
}

function tooMuchStructure(): ApiError {
  return new ApiError(
    "invalid_request",
    "The JSON body of your request is too complex. Expected at most " +
      `${REQUEST_LIMITS.structureBytesMax} bytes of it outside of strings.`,
  );
}

function tooManyKeys(): ApiError {
  return new ApiError(
    "object_above_max_properties",
    "The JSON body of your request has too many properties. Expected an object " +
      `with at most ${REQUEST_LIMITS.topLevelKeysMax} properties.`,
  );
}
