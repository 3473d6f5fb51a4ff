/** The lines of a streamed answer, and their form as server-sent events. */
import { Buffer } from "node:buffer";

const NEWLINE = 0x0a;
const NO_LINES: Uint8Array = new Uint8Array(0);

/**
 * Turns bytes, cut anywhere, into runs of whole lines. A payload of whole lines is
 * returned without a copy.
 */
export class LineAssembler {
  /**
   * The pieces of an unfinished line. Joining them early would copy a long line once
   * per frame.
   */
  #pieces: Uint8Array[] = [];
  #pieceBytes = 0;

  constructor(readonly lineBytesMax: number) {}

  /**
   * The lines that are now whole, each with its `\n`; null if a line is too long. May
   * be a view of `payload`.
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
      // Not slice(): of a Buffer, that is no copy.
      this.#pieces.push(new Uint8Array(payload.subarray(end)));
      this.#pieceBytes += payload.length - end;
    }
    return this.#pieceBytes > this.lineBytesMax ? null : lines;
  }
}

const DATA = new TextEncoder().encode("data: ");
/** `data: ` before a line and a second newline after it. */
const FRAMING_BYTES = DATA.length + 1;

/**
 * `{"a":1}\n{"b":2}\n` becomes `data: {"a":1}\n\ndata: {"b":2}\n\n`, copied once.
 * Lines must not contain `\r`. Bytes after the last `\n` are left out.
 */
export function sseFrame(lines: Uint8Array): Uint8Array<ArrayBuffer> {
  const ends: number[] = [];
  for (
    let end = lines.indexOf(NEWLINE) + 1;
    end > 0;
    end = lines.indexOf(NEWLINE, end) + 1
  ) ends.push(end);
  const lineBytes = ends.at(-1) ?? 0;
  const events = new Uint8Array(lineBytes + FRAMING_BYTES * ends.length);
  let from = 0;
  let to = 0;
  for (const end of ends) {
    events.set(DATA, to);
    events.set(lines.subarray(from, end), to + DATA.length);
    to += FRAMING_BYTES + end - from;
    events[to - 1] = NEWLINE;
    from = end;
  }
  return events;
}
