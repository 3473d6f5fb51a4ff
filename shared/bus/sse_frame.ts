import type { ByteSlab } from "./byte_slab.ts";

const NEWLINE = 0x0a;
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
