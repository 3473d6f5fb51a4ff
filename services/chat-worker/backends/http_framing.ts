/** HTTP/1.1 responses (RFC 9112), reduced to what a client of model servers needs. */
import { invalidAnswer } from "./errors.ts";

const LF = 0x0a;
const CR = 0x0d;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: |$)/;
const HEADER = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)$/s;
const CONTENT_LENGTH = /^\d{1,15}$/;

/** How a body ends: after this many bytes, with its last chunk, or with the connection. */
export type BodyFraming = number | "chunked" | "close";

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
 * more bytes arrive, continue from three bytes before the previous `to`.
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
 * Parses a head, including the blank line. A single LF may stand for CRLF (RFC 9112,
 * 2.2). Throws `upstream_invalid` for what RFC 9112 calls unrecoverable: two
 * lengths, an unknown transfer coding, a folded header or one without a name.
 */
export function parseResponseHead(text: string): ResponseHead {
  const [first = "", ...lines] = text.split(/\r?\n/);
  const [, minor, code] = STATUS_LINE.exec(first) ?? [];
  if (code === undefined) throw invalidAnswer("Malformed status line");
  const fields = new Map<string, string>();
  for (const line of lines) {
    if (line === "") break;
    const [, name, text = ""] = HEADER.exec(line) ?? [];
    if (name === undefined) throw invalidAnswer("Malformed header line");
    const key = name.toLowerCase();
    const before = fields.get(key);
    const value = text.trim();
    // Two lengths become one that is malformed.
    fields.set(key, before === undefined ? value : `${before}, ${value}`);
  }
  const status = Number(code);
  const field = (name: string) => fields.get(name)?.toLowerCase() ?? "";
  const connection = field("connection");
  // A message with both may come from a broken proxy: use it, then close the connection.
  const isSuspect = fields.has("content-length") &&
    fields.has("transfer-encoding");
  return {
    status,
    framing: framingOf(status, fields),
    isKeepAlive: !isSuspect &&
      (minor === "1"
        ? !connection.includes("close")
        : connection.includes("keep-alive")),
    contentType: field("content-type").replace(/;.*/s, "").trim(),
    contentEncoding: field("content-encoding"),
    retryAfter: fields.get("retry-after") ?? null,
    retryAfterMs: fields.get("retry-after-ms") ?? null,
  };
}

function framingOf(
  status: number,
  fields: ReadonlyMap<string, string>,
): BodyFraming {
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
/** Bounds chunk sizes with their extensions, and all trailers, none of which are used. */
const FRAMING_CHARS_MAX = 16 * 1024;

/**
 * Removes the framing of a response body, in place and without copies where possible.
 * `5\r\nhello\r\n0\r\n\r\n` becomes `hello`: RFC 9112, section 7.1.
 */
export class BodyDecoder {
  /** The body is complete: nothing more belongs to it. */
  isComplete = false;
  /** Bytes of the last `decode` that came after the body. */
  surplusBytes = 0;
  readonly #framing: BodyFraming;
  /** Payload bytes left in the body, or in the chunk. */
  #left: number;
  /** The framing line that is being read, and its expected kind. */
  #line = "";
  #expects: "size" | "dataEnd" | "trailer" = "size";
  #trailerChars = 0;

  constructor(framing: BodyFraming) {
    this.#framing = framing;
    this.#left = framing === "close" ? Infinity : Number(framing) || 0;
    this.isComplete = framing === 0;
  }

  /** Whether the body may end here with the connection. */
  get mayEnd(): boolean {
    return this.isComplete || this.#framing === "close";
  }

  /**
   * Decodes `buffer[from, to)` and returns the payload in it as a view of the
   * same memory, which may be empty. Overwrites framing bytes with payload. Throws
   * `upstream_invalid` for a malformed chunk.
   */
  decode(buffer: Uint8Array, from: number, to: number): Uint8Array {
    let at = from;
    let start = from;
    let end = from;
    while (at < to && !this.isComplete) {
      if (this.#left === 0) {
        at = this.#takeFraming(buffer, at, to);
        continue;
      }
      const taken = Math.min(this.#left, to - at);
      // The first payload stays in place; the following ones are moved up to it.
      if (start === end) start = end = at;
      else buffer.copyWithin(end, at, at + taken);
      end += taken;
      at += taken;
      this.#left -= taken;
      if (this.#framing !== "chunked") this.isComplete = this.#left === 0;
    }
    this.surplusBytes = to - at;
    return buffer.subarray(start, end);
  }

  /** Reads framing up to the end of a line or of the input; returns the new position. */
  #takeFraming(buffer: Uint8Array, from: number, to: number): number {
    let at = from;
    while (at < to && buffer[at] !== LF) {
      this.#line += String.fromCharCode(buffer[at++] ?? 0);
    }
    if (this.#line.length + this.#trailerChars > FRAMING_CHARS_MAX) {
      throw invalidAnswer("Chunk extensions or trailers too long");
    }
    if (at === to) return to;
    const line = this.#line.replace(/\r$/, "");
    this.#line = "";
    this.#takeLine(line);
    return at + 1;
  }

  #takeLine(line: string): void {
    switch (this.#expects) {
      case "size": {
        const [, size] = CHUNK_SIZE.exec(line) ?? [];
        if (size === undefined) throw invalidAnswer("Malformed chunk size");
        this.#left = parseInt(size, 16);
        this.#expects = this.#left === 0 ? "trailer" : "dataEnd";
        break;
      }
      case "dataEnd":
        if (line !== "") throw invalidAnswer("Chunk longer than its size");
        this.#expects = "size";
        break;
      case "trailer":
        this.#trailerChars += line.length;
        this.isComplete = line === "";
    }
  }
}
