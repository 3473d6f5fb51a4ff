import { Buffer } from "node:buffer";

const NEWLINE = 0x0a;
const CRLF = [0x0d, NEWLINE];
const NO_LINES: Uint8Array = new Uint8Array(0);

/**
 * Turns a stream of bytes, cut anywhere, into runs of whole lines. A payload that
 * holds only whole lines, which is the usual case, is returned as it is, without
 * a copy.
 */
export class LineAssembler {
  readonly #lineBytesMax: number;
  /** The pieces of an unfinished line. Joining them early would copy a long line once per frame. */
  #pieces: Uint8Array[] = [];
  #pieceBytes = 0;

  /** `lineBytesMax`: the longest unfinished line allowed. */
  constructor(lineBytesMax: number) {
    this.#lineBytesMax = lineBytesMax;
  }

  /** Bytes of the unfinished line; 0 at the end of a complete answer. */
  get unfinishedBytes(): number {
    return this.#pieceBytes;
  }

  /**
   * Adds bytes and returns the lines that are now whole, each with its `\n`. Returns
   * null if a line is too long; the stream is then unusable. The result may be a view
   * of `payload`; this object keeps only copies.
   */
  push(payload: Uint8Array): Uint8Array | null {
    const end = payload.lastIndexOf(NEWLINE) + 1;
    if (this.#pieceBytes === 0 && end === payload.length) return payload;
    let lines = NO_LINES;
    if (end > 0) {
      lines = Buffer.concat([...this.#pieces, payload.subarray(0, end)]);
      this.#pieces = [];
      this.#pieceBytes = 0;
    }
    if (end < payload.length) {
      this.#pieces.push(payload.slice(end));
      this.#pieceBytes += payload.length - end;
    }
    return this.#pieceBytes > this.#lineBytesMax ? null : lines;
  }
}

const DATA = new TextEncoder().encode("data: ");
/** `data: ` before a line and a second newline after it. */
const FRAMING_BYTES = DATA.length + 1;

/**
 * Makes server-sent events of whole lines by copying them once:
 * `{"a":1}\n{"b":2}\n` becomes `data: {"a":1}\n\ndata: {"b":2}\n\n`. Lines must not
 * contain `\r`, which JSON text never does. Bytes after the last `\n` are left out.
 * `isChunk`: with the size before and the line end after it (RFC 9112, section 7.1).
 */
export function sseFrame(lines: Uint8Array, isChunk: boolean): Uint8Array {
  const ends: number[] = [];
  for (let at = -1; (at = lines.indexOf(NEWLINE, at + 1)) >= 0;) {
    ends.push(at + 1);
  }
  const bytes = (ends.at(-1) ?? 0) + FRAMING_BYTES * ends.length;
  const size = isChunk ? `${bytes.toString(16)}\r\n` : "";
  const frame = new Uint8Array(size.length + bytes + (isChunk ? 2 : 0));
  let to = 0;
  for (; to < size.length; to += 1) frame[to] = size.charCodeAt(to);
  let from = 0;
  for (const end of ends) {
    frame.set(DATA, to);
    frame.set(lines.subarray(from, end), to + DATA.length);
    to += FRAMING_BYTES + end - from;
    frame[to - 1] = NEWLINE;
    from = end;
  }
  if (isChunk) frame.set(CRLF, to);
  return frame;
}
