import type { MonotonicNow } from "@gateway/shared/clock";
import type { Deadlines } from "@gateway/shared/deadlines";
import { BODY_PIECES } from "@gateway/shared/limits";
import {
  type BodyOutcome,
  outcomeOf,
  tooLarge,
  tooManyPieces,
  tooSlow,
} from "./body_outcome.ts";

/** Bounds of reading a body; the defaults are in `limits.ts`. */
export interface ReadBodyOptions {
  /** Beyond: 413. */
  bytesMax: number;
  /** No byte for this long: 408. A body of up to 64 KiB must be whole in this time. */
  progressMs: number;
  /** The whole body takes longer: 408. */
  totalMs: number;
  /** Of the process: one timer for all bodies that are being read. */
  deadlines: Deadlines;
  now: MonotonicNow;
}

const FIRST_BUFFER_BYTES = 64 * 1024;
/**
 * What a refused body still had to say is given up this much later, when the answer
 * is out and the server may close the connection. Before, the server would read it
 * to its end first, and 300,000 pieces held everybody up for 6 s (Deno 2.9.6).
 */
const LEFT_MS = 300;

/**
 * Reads a body of unknown or large size as it comes, see `readBody`.
 *
 * Each piece is copied at once: it is a view of 64 KiB, however small it is, and a
 * body of 300,000 chunks of a byte was 19 GB of them. And a reader that always finds
 * a piece waiting lets nobody else have a turn, so it gives way.
 */
export async function readPieces(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  { bytesMax, progressMs, totalMs, deadlines, now }: ReadBodyOptions,
): Promise<BodyOutcome> {
  const reader = body.getReader();
  // Ends a pending read. It fails when the connection is lost, which is an end too.
  const cancel = () => void reader.cancel().catch(() => {});
  let isLate = false;
  const totalAtMs = now() + totalMs;
  const deadline = {
    expiresAtMs: now() + Math.min(progressMs, totalMs),
    expire() {
      isLate = true;
      cancel();
    },
  };
  deadlines.add(deadline);
  const leave = (outcome: BodyOutcome): BodyOutcome => {
    deadlines.add({ expiresAtMs: now() + LEFT_MS, expire: cancel });
    return outcome;
  };
  let bytes = new Uint8Array(FIRST_BUFFER_BYTES);
  let size = 0;
  let pieces = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (isLate) return tooSlow();
      if (done) return { type: "body", bytes: bytes.subarray(0, size) };
      const sizeBefore = size;
      size += value.length;
      pieces += 1;
      if (size > bytesMax) return leave(tooLarge(bytesMax));
      if (isTooFine(pieces, size)) return leave(tooManyPieces(pieces));
      bytes = withRoom(bytes, size);
      bytes.set(value, sizeBefore);
      if (pieces % BODY_PIECES.perTurn === 0) await nextTurn();
      deadline.expiresAtMs = Math.min(now() + progressMs, totalAtMs);
    }
  } catch (error) {
    const outcome = isLate ? tooSlow() : outcomeOf(error);
    if (outcome === null) throw error;
    return outcome;
  } finally {
    deadlines.remove(deadline);
  }
}

/** The same bytes, in twice as many as are needed where there are too few. */
function withRoom(
  bytes: Uint8Array<ArrayBuffer>,
  size: number,
): Uint8Array<ArrayBuffer> {
  if (size <= bytes.length) return bytes;
  return new Uint8Array(bytes.buffer.transfer(2 * size));
}

function isTooFine(pieces: number, size: number): boolean {
  return pieces > BODY_PIECES.free + size / BODY_PIECES.bytesMin;
}

/** Resolves when everybody else who is ready has had a turn. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
