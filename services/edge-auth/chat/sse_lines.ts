import type { ByteSlab } from "@gateway/shared/bus/byte_slab";

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

/** `data: ` before a line and a second newline behind it. */
const FRAMING_BYTES = 7;

/**
 * Makes server-sent events of whole lines by copying them once:
 * `{"a":1}\n{"b":2}\n` becomes `data: {"a":1}\n\ndata: {"b":2}\n\n`. Every line must
 * end in `\n` and hold no `\r`, which JSON text never does; bytes behind the last
 * `\n` are left out, {@link LineAssembler} keeps them. The result is cut from
 * `slab`, which belongs to this one stream.
 */
export function sseFrame(
  lines: Uint8Array,
  slab: ByteSlab,
): Uint8Array<ArrayBuffer> {
  const firstEnd = lines.indexOf(NEWLINE) + 1;
  if (firstEnd === 0 || firstEnd < lines.length) {
    return sseFrames(lines, firstEnd, slab);
  }
  const events = slab.take(lines.length + FRAMING_BYTES);
  events.set(lines, FRAMING_BYTES - 1);
  writeFraming(events, 0, events.length);
  return events;
}

/** Several lines. Finding their ends costs most, so it is done once. */
function sseFrames(
  lines: Uint8Array,
  firstEnd: number,
  slab: ByteSlab,
): Uint8Array<ArrayBuffer> {
  const ends = lineEnds(lines, firstEnd);
  const lineBytes = ends.at(-1) ?? 0;
  const events = slab.take(lineBytes + FRAMING_BYTES * ends.length);
  let from = 0;
  let to = 0;
  for (const end of ends) {
    events.set(lines.subarray(from, end), to + FRAMING_BYTES - 1);
    const next = to + FRAMING_BYTES + end - from;
    writeFraming(events, to, next);
    from = end;
    to = next;
  }
  return events;
}

function lineEnds(lines: Uint8Array, firstEnd: number): number[] {
  const ends = [];
  let end = firstEnd;
  while (end > 0) {
    ends.push(end);
    end = lines.indexOf(NEWLINE, end) + 1;
  }
  return ends;
}

/** Writes `data: ` at the start of an event and the newline at its end. */
function writeFraming(target: Uint8Array, start: number, end: number): void {
  target[start] = 0x64;
  target[start + 1] = 0x61;
  target[start + 2] = 0x74;
  target[start + 3] = 0x61;
  target[start + 4] = 0x3a;
  target[start + 5] = 0x20;
  target[end - 1] = NEWLINE;
}
