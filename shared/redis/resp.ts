/**
 * Protocol version 2 of Redis as bytes: commands are written, replies are read however
 * they are cut. https://redis.io/docs/latest/develop/reference/protocol-spec/
 */
import { Buffer } from "node:buffer";
import { RedisReplyError } from "./errors.ts";

/** A reply: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** What came is no reply: whatever sent it is no Redis, or bytes were lost. */
export class RedisProtocolError extends Error {
  override readonly name = "RedisProtocolError";
}

const CR = 0x0d;
/** Redis sends no longer line: errors are cut, and numbers have at most 20 digits. */
const LINE_BYTES_MAX = 64 * 1_024;
/** The largest string that Redis stores (`proto-max-bulk-len`). */
const BULK_BYTES_MAX = 512 * 1_024 * 1_024;
const EMPTY = Buffer.alloc(0);
const INTEGER = /^-?\d{1,19}$/;

/** Returns a command as Redis reads it: an array of bulk strings. */
export function encodeCommand(args: readonly string[]): string {
  let text = `*${args.length}\r\n`;
  for (const arg of args) {
    text += `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`;
  }
  return text;
}

/** An array of which not all elements have arrived. */
interface OpenArray {
  readonly elements: RedisReply[];
  missing: number;
  /** The first error among the elements, which then is the reply. */
  error: RedisReplyError | null;
}

/** Reads replies from the pieces that a connection receives. */
export class ReplyReader {
  readonly #onReply: (reply: RedisReply | RedisReplyError) => void;
  /** Pieces of which nothing was read; they are joined when the element is whole. */
  #pieces: Buffer[] = [];
  #pieceBytes = 0;
  /** With fewer bytes, the next element is not whole. */
  #neededBytes = 1;
  /** The arrays around the next element, the innermost last. */
  readonly #open: OpenArray[] = [];

  constructor(onReply: (reply: RedisReply | RedisReplyError) => void) {
    this.#onReply = onReply;
  }

  /**
   * Reads all replies that are whole now. An array with an error in it is that error.
   * Throws {@link RedisProtocolError}; nothing can be read after that.
   */
  push(piece: Uint8Array): void {
    this.#pieces.push(
      Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength),
    );
    this.#pieceBytes += piece.byteLength;
    if (this.#pieceBytes < this.#neededBytes) return;
    const [first = EMPTY] = this.#pieces;
    const bytes = this.#pieces.length === 1
      ? first
      : Buffer.concat(this.#pieces);
    let at = 0;
    for (let next = at; next >= 0;) {
      at = next;
      next = this.#readElement(bytes, at);
    }
    const rest = bytes.subarray(at);
    this.#pieces = rest.length === 0 ? [] : [rest];
    this.#pieceBytes = rest.length;
  }

  /**
   * Reads the element at `at`. Returns where the next one begins, or -1 and sets
   * `#neededBytes` if this one is not whole.
   */
  #readElement(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(CR, at);
    const lineBytes = (end < 0 ? bytes.length : end) - at;
    if (lineBytes > LINE_BYTES_MAX) throw new RedisProtocolError("Long line");
    const next = end + 2;
    if (end < 0 || next > bytes.length) {
      this.#neededBytes = bytes.length - at + 1;
      return -1;
    }
    const line = bytes.toString("utf8", at + 1, end);
    switch (bytes[at]) {
      case 0x2b: // +
        this.#add(line);
        return next;
      case 0x2d: // -
        this.#add(new RedisReplyError(line));
        return next;
      case 0x3a: // :
        this.#add(integerOf(line));
        return next;
      case 0x24: // $
        return this.#readBulk(bytes, { at, next, length: integerOf(line) });
      case 0x2a: // *
        this.#begin(integerOf(line));
        return next;
      default:
        throw new RedisProtocolError(`Unknown type of reply: ${bytes[at]}`);
    }
  }

  /** Reads a string of `length` bytes, which begins at `next`. */
  #readBulk(
    bytes: Buffer,
    { at, next, length }: { at: number; next: number; length: number },
  ): number {
    if (length === -1) {
      this.#add(null);
      return next;
    }
    if (length < 0 || length > BULK_BYTES_MAX) {
      throw new RedisProtocolError(`Impossible length: ${length}`);
    }
    const after = next + length + 2;
    if (after > bytes.length) {
      this.#neededBytes = after - at;
      return -1;
    }
    if (bytes[next + length] !== CR) {
      throw new RedisProtocolError("A string is longer than its length");
    }
    this.#add(bytes.toString("utf8", next, next + length));
    return after;
  }

  #begin(length: number): void {
    if (length < -1) throw new RedisProtocolError(`Impossible size: ${length}`);
    if (length === -1) return this.#add(null);
    if (length === 0) return this.#add([]);
    this.#open.push({ elements: [], missing: length, error: null });
  }

  /** Adds an element to the arrays around it, and tells the reply that it completes. */
  #add(element: RedisReply | RedisReplyError): void {
    let whole = element;
    for (;;) {
      const array = this.#open.at(-1);
      if (array === undefined) break;
      if (whole instanceof RedisReplyError) array.error ??= whole;
      else array.elements.push(whole);
      array.missing -= 1;
      if (array.missing > 0) return;
      this.#open.pop();
      whole = array.error ?? array.elements;
    }
    this.#neededBytes = 1;
    this.#onReply(whole);
  }
}

function integerOf(text: string): number {
  if (!INTEGER.test(text)) {
    throw new RedisProtocolError(`Not an integer: ${text.slice(0, 30)}`);
  }
  return Number(text);
}
