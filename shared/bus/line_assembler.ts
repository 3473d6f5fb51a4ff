const NEWLINE = 0x0a;
const NO_LINES: Uint8Array = new Uint8Array(0);

/**
 * Turns a stream of bytes, cut anywhere, into runs of whole lines. A payload that
 * holds only whole lines, which is the usual case, is returned as it is, without
 * a copy.
 */
export class LineAssembler {
  readonly #lineBytesMax: number;
  /** The beginning of a line whose end has not come, in pieces: joining them at once would copy a long line once for every frame. */
  readonly #pieces: Uint8Array[] = [];
  #pieceBytes = 0;

  /** `lineBytesMax`: longest line, its `\n` included. */
  constructor(lineBytesMax: number) {
    this.#lineBytesMax = lineBytesMax;
  }

  /** Bytes of the unfinished line: 0 at the end of an answer that is whole. */
  get unfinishedBytes(): number {
    return this.#pieceBytes;
  }

  /**
   * Adds bytes and returns all lines that are now whole, each with its `\n`, or no
   * bytes. Null when a line is too long: the stream cannot be used any more. The
   * result may be a view of `payload`; nothing of `payload` is kept.
   */
  push(payload: Uint8Array): Uint8Array | null {
    const end = payload.lastIndexOf(NEWLINE) + 1;
    if (this.#hasLongLine(payload, end)) return null;
    if (this.#pieceBytes === 0 && end === payload.length) return payload;
    const lines = end === 0 ? NO_LINES : this.#join(payload.subarray(0, end));
    if (end < payload.length) {
      this.#pieces.push(payload.slice(end));
      this.#pieceBytes += payload.length - end;
    }
    return lines;
  }

  #join(head: Uint8Array): Uint8Array {
    if (this.#pieceBytes === 0) return head;
    const lines = new Uint8Array(this.#pieceBytes + head.length);
    let at = 0;
    for (const piece of this.#pieces) {
      lines.set(piece, at);
      at += piece.length;
    }
    lines.set(head, at);
    this.#pieces.length = 0;
    this.#pieceBytes = 0;
    return lines;
  }

  #hasLongLine(payload: Uint8Array, end: number): boolean {
    if (this.#pieceBytes + payload.length <= this.#lineBytesMax) return false;
    if (end === 0) return true;
    let start = -this.#pieceBytes;
    while (start < end) {
      const next = payload.indexOf(NEWLINE, Math.max(start, 0)) + 1;
      if (next - start > this.#lineBytesMax) return true;
      start = next;
    }
    return payload.length - start > this.#lineBytesMax;
  }
}
