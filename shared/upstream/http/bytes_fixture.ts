/** Bytes cut into pieces, as a network may deliver them. */

/** Cuts bytes into pieces of `size` bytes; the last may be shorter. */
export function* piecesOf(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) {
    yield bytes.subarray(at, at + size);
  }
}

/** The bytes whole, byte by byte, and cut in two at every place. */
export function* everySplit(input: string | Uint8Array) {
  const isText = typeof input === "string";
  const bytes = isText ? new TextEncoder().encode(input) : input;
  yield [bytes];
  yield [...piecesOf(bytes, 1)];
  for (let at = 1; at < bytes.length; at++) {
    yield [bytes.subarray(0, at), bytes.subarray(at)];
  }
}
