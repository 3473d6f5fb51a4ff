import { invalidAnswer } from "../upstream_error.ts";

/**
 * The head of an HTTP/1.1 response as RFC 9112 has it, reduced to what a client
 * of a model server acts on. Header values never travel further than this.
 */

const LF = 0x0a;
const CR = 0x0d;

/** Header lines of one response. Hosted APIs send about 40. */
const HEADER_LINES_MAX = 200;
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: |$)/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const CONTENT_LENGTH = /^\d{1,15}$/;

/** How a body ends. */
export type BodyFraming =
  | { kind: "none" }
  | { kind: "length"; bytes: number }
  | { kind: "chunked" }
  /** The end of the connection is the end of the body. */
  | { kind: "close" };

export interface ResponseHead {
  /** 100 to 999; below 200 it is an interim response without a body. */
  status: number;
  framing: BodyFraming;
  /** The connection may carry another request. */
  isKeepAlive: boolean;
  /** Media type in lower case, without parameters; `""` when absent. */
  contentType: string;
  /** In lower case; `""` when absent. */
  contentEncoding: string;
  retryAfter: string | null;
  retryAfterMs: string | null;
}

/**
 * Index after the blank line that ends a head within `[from, to)`, or -1. When
 * more bytes arrive, go on from three before the former `to`.
 */
export function findHeadEnd(
  bytes: Uint8Array,
  from: number,
  to: number,
): number {
  for (let lf = bytes.indexOf(LF, from); lf >= 0 && lf < to;) {
    const next = bytes[lf + 1] === CR ? lf + 2 : lf + 1;
    if (next < to && bytes[next] === LF) return next + 1;
    lf = bytes.indexOf(LF, lf + 1);
  }
  return -1;
}

/**
 * Reads a head, blank line included. A single LF may stand for CRLF (RFC 9112,
 * 2.2). Throws `upstream_invalid` for what RFC 9112 calls unrecoverable: two
 * lengths that differ, an unknown transfer coding, a folded or nameless header.
 */
export function parseResponseHead(text: string): ResponseHead {
  const lines = text.split("\n");
  const [, minor, code] = STATUS_LINE.exec(withoutCr(lines[0] ?? "")) ?? [];
  if (code === undefined) throw invalidAnswer("Malformed status line");
  if (lines.length > HEADER_LINES_MAX + 3) {
    throw invalidAnswer(`More than ${HEADER_LINES_MAX} header lines`);
  }
  const fields = readFields(lines);
  const status = Number(code);
  return {
    status,
    framing: framingOf(status, fields),
    isKeepAlive: isKeepAlive(minor === "1", fields),
    contentType: mediaTypeOf(fields.contentType),
    contentEncoding: fields.contentEncoding.toLowerCase(),
    retryAfter: fields.retryAfter,
    retryAfterMs: fields.retryAfterMs,
  };
}

interface Fields {
  contentLength: string | null;
  transferEncoding: string | null;
  connection: string;
  contentType: string;
  contentEncoding: string;
  retryAfter: string | null;
  retryAfterMs: string | null;
}

function readFields(lines: readonly string[]): Fields {
  const fields: Fields = {
    contentLength: null,
    transferEncoding: null,
    connection: "",
    contentType: "",
    contentEncoding: "",
    retryAfter: null,
    retryAfterMs: null,
  };
  for (let i = 1; i < lines.length; i++) {
    const line = withoutCr(lines[i] ?? "");
    if (line === "") break;
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase();
    if (!HEADER_NAME.test(name)) throw invalidAnswer("Malformed header line");
    takeField(fields, name, line.slice(colon + 1).trim());
  }
  return fields;
}

function takeField(fields: Fields, name: string, value: string): void {
  switch (name) {
    case "content-length":
      if (fields.contentLength !== null && fields.contentLength !== value) {
        throw invalidAnswer("Two content lengths that differ");
      }
      fields.contentLength = value;
      break;
    case "transfer-encoding":
      fields.transferEncoding = joined(fields.transferEncoding, value);
      break;
    case "connection":
      fields.connection = joined(fields.connection, value);
      break;
    case "content-type":
      fields.contentType = value;
      break;
    case "content-encoding":
      fields.contentEncoding = joined(fields.contentEncoding, value);
      break;
    case "retry-after":
      fields.retryAfter = value;
      break;
    case "retry-after-ms":
      fields.retryAfterMs = value;
      break;
  }
}

function framingOf(status: number, fields: Fields): BodyFraming {
  if (status < 200 || status === 204 || status === 304) return { kind: "none" };
  if (fields.transferEncoding !== null) {
    if (fields.transferEncoding.toLowerCase() !== "chunked") {
      throw invalidAnswer("A transfer coding that was not asked for");
    }
    return { kind: "chunked" };
  }
  if (fields.contentLength === null) return { kind: "close" };
  if (!CONTENT_LENGTH.test(fields.contentLength)) {
    throw invalidAnswer("Malformed content length");
  }
  const bytes = Number(fields.contentLength);
  return bytes === 0 ? { kind: "none" } : { kind: "length", bytes };
}

function isKeepAlive(isHttp11: boolean, fields: Fields): boolean {
  // A message with both is a sign of something strange in between: use it, then hang up.
  if (fields.contentLength !== null && fields.transferEncoding !== null) {
    return false;
  }
  const options = fields.connection.toLowerCase();
  return isHttp11 ? !options.includes("close") : options.includes("keep-alive");
}

function mediaTypeOf(value: string): string {
  const end = value.indexOf(";");
  return (end < 0 ? value : value.slice(0, end)).trim().toLowerCase();
}

function joined(before: string | null, value: string): string {
  return before === null || before === "" ? value : `${before}, ${value}`;
}

function withoutCr(line: string): string {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}
