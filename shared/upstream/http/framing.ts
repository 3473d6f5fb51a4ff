/** HTTP/1.1 responses (RFC 9112), reduced to what a client of model servers needs. */
import { FILE_HEADERS } from "../../bus/media_head.ts";
import { isPlain } from "./content_coding.ts";
import { invalidAnswer } from "./errors.ts";

const LF = 0x0a;
const CR = 0x0d;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: |$)/;
const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+:/;
const CONTENT_LENGTH = /^\d{1,15}$/;
const VISIBLE_ASCII = /^[\x20-\x7e]{1,200}$/;
const MS_PER_SECOND = 1_000;
const RETRY_AFTER_MS_MIN = 1_000;
const RETRY_AFTER_MS_MAX = 60_000;

/**
 * How a body ends: after this many bytes, with its last chunk, or with the connection.
 */
export type BodyFraming = number | "chunked" | "close";

/** The status line and the headers of a response, as far as they matter here. */
export interface ResponseHead {
  /** 100 to 999; below 200 it is an interim response without a body. */
  status: number;
  framing: BodyFraming;
  isKeepAlive: boolean;
  /** Media type in lower case, without parameters; `""` when absent. */
  contentType: string;
  /** In lower case; `""` when absent. */
  contentEncoding: string;
  /**
   * The wait that `retry-after-ms` or `retry-after` of a refusal asks for, clamped to
   * 1..60 s.
   */
  retryAfterMs: number | undefined;
  /** Where a redirect leads, as the server sent it; `""` when absent. */
  location: string;
  /**
   * The headers among {@link FILE_HEADERS} that the response has; none if it is
   * compressed, because they are about what is sent.
   */
  fileHeaders: Partial<Record<typeof FILE_HEADERS[number], string>>;
  /** All headers, by name in lower case, without space around their values. */
  fields: ReadonlyMap<string, string>;
}

/** Index after the blank line that ends a head within `[from, to)`, or -1. */
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
 * A single LF may stand for CRLF (RFC 9112, 2.2). Throws `upstream_invalid` for what
 * that calls unrecoverable.
 */
export function parseResponseHead(text: string): ResponseHead {
  const [first = "", ...lines] = text.split(/\r?\n/);
  const [, minor, code] = STATUS_LINE.exec(first) ?? [];
  if (code === undefined) throw invalidAnswer("Malformed status line");
  const fields = new Map<string, string>();
  for (const line of lines) {
    if (line === "") break;
    if (!HEADER.test(line)) throw invalidAnswer("Malformed header line");
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    const before = fields.get(name);
    // Two lengths become one that is malformed.
    fields.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  const status = Number(code);
  const field = (name: string) => fields.get(name)?.toLowerCase() ?? "";
  const connection = field("connection");
  // A message with both may come from a broken proxy: use it, then close the
  // connection.
  const isSuspect = fields.has("content-length") &&
    fields.has("transfer-encoding");
  const contentEncoding = field("content-encoding");
  const fileHeaders: ResponseHead["fileHeaders"] = {};
  for (const name of isPlain(contentEncoding) ? FILE_HEADERS : []) {
    const value = fields.get(name);
    if (value && VISIBLE_ASCII.test(value)) fileHeaders[name] = value;
  }
  return {
    status,
    framing: framingOf(status, fields),
    isKeepAlive: !isSuspect &&
      (minor === "1"
        ? !connection.includes("close")
        : connection.includes("keep-alive")),
    contentType: field("content-type").replace(/;.*/s, "").trim(),
    contentEncoding,
    location: fields.get("location") ?? "",
    retryAfterMs: status < 300 ? undefined : retryAfterMs(fields),
    fileHeaders,
    fields,
  };
}

function retryAfterMs(fields: HeaderFields): number | undefined {
  const ms = statedWaitMs(fields);
  if (ms === undefined) return;
  const atLeastMs = Math.max(Math.ceil(ms), RETRY_AFTER_MS_MIN);
  return Math.min(atLeastMs, RETRY_AFTER_MS_MAX);
}

/** Headers by name in lower case. */
type HeaderFields = ReadonlyMap<string, string>;

/** How long a server wants a client to wait, as it states it in any of the forms. */
export function statedWaitMs(fields: HeaderFields): number | undefined {
  const after = fields.get("retry-after") ?? "";
  return [
    Number(fields.get("retry-after-ms") || NaN),
    Number(after || NaN) * MS_PER_SECOND,
    // A date is compared with the server's own clock (RFC 9110 section 10.2.3).
    Date.parse(after) - Date.parse(fields.get("date") ?? ""),
  ].find((each) => each >= 0);
}

function framingOf(
  status: number,
  fields: HeaderFields,
): BodyFraming {
  if (status === 101) throw invalidAnswer("Unexpected switch of protocols");
  if (status < 200 || status === 204 || status === 304) return 0;
  const coding = fields.get("transfer-encoding");
  if (coding?.toLowerCase() === "chunked") return "chunked";
  if (coding !== undefined) throw invalidAnswer("Unsupported transfer coding");
  const length = fields.get("content-length");
  if (length === undefined) return "close";
  if (CONTENT_LENGTH.test(length)) return Number(length);
  throw invalidAnswer("Malformed content length");
}

/** A chunk of less than 256 MiB: seven hexadecimal digits. */
const CHUNK_SIZE = /^([0-9a-f]{1,7})[ \t]*(;.*)?$/i;
/**
 * Bounds each chunk size with its extensions, and all trailers, none of which are used.
 */
const FRAMING_CHARS_MAX = 16 * 1024;

/**
 * Removes the framing of a body in place: `5\r\nhello\r\n0\r\n\r\n` becomes `hello`
 * (RFC 9112, section 7.1).
 */
export class BodyDecoder {
  isComplete: boolean;
  /**
   * The position after the last byte that `decode` has used: what follows is not of
   * this body.
   */
  usedTo = 0;
  /** Payload bytes left in the body, or in the chunk. */
  #left: number;
  /**
   * The next line of framing: that before a chunk, that after it, or one of the
   * trailers.
   */
  #expects: "size" | "dataEnd" | "trailer" = "size";
  #line = "";
  #trailerChars = 0;

  constructor(readonly framing: BodyFraming) {
    this.#left = framing === "close" ? Infinity : Number(framing) || 0;
    this.isComplete = framing === 0;
  }

  /**
   * The payload in `buffer[from, to)`, perhaps empty, as a view. Throws
   * `upstream_invalid` for a malformed chunk.
   */
  decode(buffer: Uint8Array, from: number, to: number): Uint8Array {
    let at = from;
    let start = from;
    let end = from;
    while (at < to && !this.isComplete) {
      if (this.#left === 0) {
        const byte = buffer[at++] ?? LF;
        if (byte === LF) this.#takeLine(this.#line.replace(/\r$/, ""));
        else this.#line += String.fromCharCode(byte);
        continue;
      }
      const pieceBytes = Math.min(this.#left, to - at);
      // The first payload stays in place; the following ones are moved up to it.
      if (start === end) {
        start = at;
        end = at;
      } else buffer.copyWithin(end, at, at + pieceBytes);
      end += pieceBytes;
      at += pieceBytes;
      this.#left -= pieceBytes;
      if (this.framing !== "chunked") this.isComplete = this.#left === 0;
    }
    if (this.#line.length + this.#trailerChars > FRAMING_CHARS_MAX) {
      throw invalidAnswer("Chunk extensions or trailers too long");
    }
    this.usedTo = at;
    return buffer.subarray(start, end);
  }

  #takeLine(line: string): void {
    this.#line = "";
    if (this.#expects === "trailer") {
      this.#trailerChars += line.length;
      this.isComplete = line === "";
    } else if (this.#expects === "dataEnd") {
      if (line !== "") throw invalidAnswer("Chunk longer than its size");
      this.#expects = "size";
    } else {
      const [, size] = CHUNK_SIZE.exec(line) ?? [];
      if (size === undefined) throw invalidAnswer("Malformed chunk size");
      this.#left = parseInt(size, 16);
      this.#expects = this.#left === 0 ? "trailer" : "dataEnd";
    }
  }
}
