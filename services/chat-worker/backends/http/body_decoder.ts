import { invalidAnswer } from "../upstream_error.ts";
import type { BodyFraming } from "./response_head.ts";

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
  switch (framing.kind) {
    case "none":
      return createLengthDecoder(0);
    case "length":
      return createLengthDecoder(framing.bytes);
    case "chunked":
      return createChunkedDecoder();
    case "close":
      return {
        decode: (buffer, from, to) => buffer.subarray(from, to),
        isComplete: false,
        surplusBytes: 0,
        mayEnd: true,
      };
  }
}

function createLengthDecoder(bytes: number): BodyDecoder {
  let left = bytes;
  let surplusBytes = 0;
  return {
    decode(buffer, from, to) {
      const taken = Math.min(left, to - from);
      left -= taken;
      surplusBytes = to - from - taken;
      return buffer.subarray(from, from + taken);
    },
    get isComplete() {
      return left === 0;
    },
    get surplusBytes() {
      return surplusBytes;
    },
    get mayEnd() {
      return left === 0;
    },
  };
}

const LF = 0x0a;
const CR = 0x0d;
const SEMICOLON = 0x3b;
const SPACE = 0x20;
const TAB = 0x09;

/** A chunk up to 256 MiB: seven hexadecimal digits, far from the limits of a number. */
const SIZE_DIGITS_MAX = 7;
/** Chunk extensions and trailers, which carry nothing we use. */
const IGNORED_BYTES_MAX = 16 * 1024;

/** What the next framing byte is part of. */
type ChunkState =
  | "size"
  /** Extension or padding after the size. */
  | "sizeRest"
  | "sizeLf"
  | "dataCr"
  | "dataLf"
  | "trailerStart"
  | "trailer"
  | "endLf"
  | "end";

/** `5\r\nhello\r\n0\r\n\r\n` is `hello`: RFC 9112, section 7.1. */
function createChunkedDecoder(): BodyDecoder {
  let state: ChunkState = "size";
  let digits = 0;
  let size = 0;
  /** Payload bytes left in the chunk. */
  let left = 0;
  let ignoredBytes = 0;
  let surplusBytes = 0;

  const takeSizeByte = (byte: number) => {
    const digit = hexDigit(byte);
    if (digit >= 0) {
      if (++digits > SIZE_DIGITS_MAX) throw invalidAnswer("Chunk too large");
      size = size * 16 + digit;
      return;
    }
    if (digits === 0) throw invalidAnswer("Chunk without a size");
    if (byte === CR) state = "sizeLf";
    else if (byte === LF) startChunk();
    else if (byte === SEMICOLON || byte === SPACE || byte === TAB) {
      state = "sizeRest";
    } else throw invalidAnswer("Malformed chunk size");
  };

  const startChunk = () => {
    left = size;
    state = size === 0 ? "trailerStart" : "dataCr";
    digits = 0;
    size = 0;
  };

  const ignore = () => {
    if (++ignoredBytes > IGNORED_BYTES_MAX) {
      throw invalidAnswer("Chunk extensions or trailers too long");
    }
  };

  const takeFramingByte = (byte: number) => {
    switch (state) {
      case "size":
        return takeSizeByte(byte);
      case "sizeRest":
        ignore();
        if (byte === LF) startChunk();
        return;
      case "sizeLf":
        if (byte !== LF) throw invalidAnswer("Chunk size without a line end");
        return startChunk();
      case "dataCr":
        if (byte === CR) state = "dataLf";
        else if (byte === LF) state = "size";
        else throw invalidAnswer("Chunk longer than its size");
        return;
      case "dataLf":
        if (byte !== LF) throw invalidAnswer("Chunk longer than its size");
        state = "size";
        return;
      case "trailerStart":
        if (byte === CR) state = "endLf";
        else if (byte === LF) state = "end";
        else state = "trailer";
        return;
      case "trailer":
        ignore();
        if (byte === LF) state = "trailerStart";
        return;
      case "endLf":
        if (byte !== LF) throw invalidAnswer("Chunked body without an end");
        state = "end";
    }
  };

  return {
    decode(buffer, from, to) {
      let at = from;
      let start = from;
      let end = from;
      while (at < to && state !== "end") {
        if (left === 0) {
          takeFramingByte(buffer[at++] ?? 0);
          continue;
        }
        const taken = Math.min(left, to - at);
        // The first payload stays where it is; what follows moves up behind it.
        if (start === end) start = end = at;
        else buffer.copyWithin(end, at, at + taken);
        end += taken;
        at += taken;
        left -= taken;
      }
      surplusBytes = to - at;
      return buffer.subarray(start, end);
    },
    get isComplete() {
      return state === "end";
    },
    get surplusBytes() {
      return surplusBytes;
    },
    get mayEnd() {
      return state === "end";
    },
  };
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
