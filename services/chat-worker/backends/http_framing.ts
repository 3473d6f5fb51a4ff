/** HTTP/1.1 responses as RFC 9112 has them, reduced to what a client of a model server acts on. */
import { invalidAnswer } from "./errors.ts";

const LF = 0x0a;
const CR = 0x0d;

/** Header lines of one response. Hosted APIs send about 40. */
const HEADER_LINES_MAX = 200;
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: |$)/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const CONTENT_LENGTH = /^\d{1,15}$/;

/** How a body ends: after so many bytes, with its last chunk, or with the connection. */
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
  const [first = "", ...lines] = text.split(/\r?\n/);
  const [, minor, code] = STATUS_LINE.exec(first) ?? [];
  if (code === undefined) throw invalidAnswer("Malformed status line");
  if (lines.length > HEADER_LINES_MAX + 2) {
    throw invalidAnswer(`More than ${HEADER_LINES_MAX} header lines`);
  }
  const fields = new Map<string, string>();
  for (const line of lines) {
    if (line === "") break;
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase();
    if (!HEADER_NAME.test(name)) throw invalidAnswer("Malformed header line");
    const value = line.slice(colon + 1).trim();
    const before = fields.get(name);
    if (before === undefined || before === "") fields.set(name, value);
    else if (name !== "content-length") fields.set(name, `${before}, ${value}`);
    else if (before !== value) {
      throw invalidAnswer("Two content lengths that differ");
    }
  }
  const status = Number(code);
  const [mediaType = ""] = (fields.get("content-type") ?? "").split(";");
  return {
    status,
    framing: framingOf(status, fields),
    isKeepAlive: isKeepAlive(minor === "1", fields),
    contentType: mediaType.trim().toLowerCase(),
    contentEncoding: (fields.get("content-encoding") ?? "").toLowerCase(),
    retryAfter: fields.get("retry-after") ?? null,
    retryAfterMs: fields.get("retry-after-ms") ?? null,
  };
}

type Fields = ReadonlyMap<string, string>;

function framingOf(status: number, fields: Fields): BodyFraming {
  if (status < 200 || status === 204 || status === 304) return 0;
  const coding = fields.get("transfer-encoding");
  if (coding !== undefined) {
    if (coding.toLowerCase() === "chunked") return "chunked";
    throw invalidAnswer("A transfer coding that was not asked for");
  }
  const length = fields.get("content-length");
  if (length === undefined) return "close";
  if (CONTENT_LENGTH.test(length)) return Number(length);
  throw invalidAnswer("Malformed content length");
}

function isKeepAlive(isHttp11: boolean, fields: Fields): boolean {
  // A message with both may come from a broken proxy: use it, then hang up.
  if (fields.has("content-length") && fields.has("transfer-encoding")) {
    return false;
  }
  const options = (fields.get("connection") ?? "").toLowerCase();
  return isHttp11 ? !options.includes("close") : options.includes("keep-alive");
}

/** Takes the framing of a response body off, in place and without copies where it can. */
export interface BodyDecoder {
  /**
   * Decodes `buffer[from, to)` and returns the payload in it as a view of the
   * same memory, maybe empty. Overwrites framing bytes with payload. Throws
   * `upstream_invalid` for a malformed chunk.
   */
  decode(buffer: Uint8Array, from: number, to: number): Uint8Array;
  /** The body is complete: nothing more belongs to it. */
  readonly isComplete: boolean;
  /** Bytes of the last `decode` that came after the body. */
  readonly surplusBytes: number;
  /** Whether the end of the connection is a proper end here. */
  readonly mayEnd: boolean;
}

/** Makes the decoder of one body. */
export function createBodyDecoder(framing: BodyFraming): BodyDecoder {
  if (framing === "chunked") return new ChunkedDecoder();
  return new LengthDecoder(framing === "close" ? Infinity : framing);
}

/** Infinitely many bytes: the body ends with its connection. */
class LengthDecoder implements BodyDecoder {
  #left: number;
  surplusBytes = 0;

  constructor(bytes: number) {
    this.#left = bytes;
  }

  get isComplete(): boolean {
    return this.#left === 0;
  }

  get mayEnd(): boolean {
    return this.#left === 0 || this.#left === Infinity;
  }

  decode(buffer: Uint8Array, from: number, to: number): Uint8Array {
    const taken = Math.min(this.#left, to - from);
    this.#left -= taken;
    this.surplusBytes = to - from - taken;
    return buffer.subarray(from, from + taken);
  }
}

/** A chunk up to 256 MiB: seven hexadecimal digits, far from the limits of a number. */
const SIZE_DIGITS_MAX = 7;
/** Chunk extensions and trailers, which carry nothing we use. */
const IGNORED_BYTES_MAX = 16 * 1024;

/** What the next framing byte is part of. `sizeRest`: an extension, or padding. */
type ChunkState =
  | "size"
  | "sizeRest"
  | "sizeLf"
  | "dataCr"
  | "dataLf"
  | "trailerStart"
  | "trailer"
  | "endLf"
  | "end";

/** `5\r\nhello\r\n0\r\n\r\n` is `hello`: RFC 9112, section 7.1. */
class ChunkedDecoder implements BodyDecoder {
  #state: ChunkState = "size";
  #digits = 0;
  #size = 0;
  /** Payload bytes left in the chunk. */
  #left = 0;
  #ignoredBytes = 0;
  surplusBytes = 0;

  get isComplete(): boolean {
    return this.#state === "end";
  }

  get mayEnd(): boolean {
    return this.isComplete;
  }

  decode(buffer: Uint8Array, from: number, to: number): Uint8Array {
    let at = from;
    let start = from;
    let end = from;
    while (at < to && this.#state !== "end") {
      if (this.#left === 0) {
        this.#state = this.#takeFramingByte(buffer[at++] ?? 0);
        continue;
      }
      const taken = Math.min(this.#left, to - at);
      // The first payload stays where it is; what follows moves up behind it.
      if (start === end) start = end = at;
      else buffer.copyWithin(end, at, at + taken);
      end += taken;
      at += taken;
      this.#left -= taken;
    }
    this.surplusBytes = to - at;
    return buffer.subarray(start, end);
  }

  #takeFramingByte(byte: number): ChunkState {
    switch (this.#state) {
      case "size":
        return this.#takeSizeByte(byte);
      case "sizeRest":
        this.#ignore();
        return byte === LF ? this.#startChunk() : "sizeRest";
      case "sizeLf":
        if (byte !== LF) throw invalidAnswer("Chunk size without a line end");
        return this.#startChunk();
      case "dataCr":
      case "dataLf":
        if (byte === LF) return "size";
        if (byte === CR && this.#state === "dataCr") return "dataLf";
        throw invalidAnswer("Chunk longer than its size");
      case "trailerStart":
        if (byte === CR) return "endLf";
        return byte === LF ? "end" : "trailer";
      case "trailer":
        this.#ignore();
        return byte === LF ? "trailerStart" : "trailer";
      default:
        if (byte !== LF) throw invalidAnswer("Chunked body without an end");
        return "end";
    }
  }

  #takeSizeByte(byte: number): ChunkState {
    const digit = hexDigit(byte);
    if (digit >= 0) {
      if (++this.#digits > SIZE_DIGITS_MAX) {
        throw invalidAnswer("Chunk too large");
      }
      this.#size = this.#size * 16 + digit;
      return "size";
    }
    if (this.#digits === 0) throw invalidAnswer("Chunk without a size");
    if (byte === CR) return "sizeLf";
    if (byte === LF) return this.#startChunk();
    // A semicolon, a blank or a tab.
    if (byte === 0x3b || byte === 0x20 || byte === 0x09) return "sizeRest";
    throw invalidAnswer("Malformed chunk size");
  }

  #startChunk(): ChunkState {
    this.#left = this.#size;
    const isLast = this.#size === 0;
    this.#digits = this.#size = 0;
    return isLast ? "trailerStart" : "dataCr";
  }

  #ignore(): void {
    if (++this.#ignoredBytes > IGNORED_BYTES_MAX) {
      throw invalidAnswer("Chunk extensions or trailers too long");
    }
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
