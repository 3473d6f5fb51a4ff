/** Gives memory back at once, where the garbage collector would take its time. */

/**
 * Smaller arrays are left to the garbage collector, which frees them with the young
 * objects. Some of them share memory: those of Node's `Buffer`, up to 8 KiB.
 */
const FREED_BYTES_MIN = 64 * 1024;

/**
 * Frees the memory of an array that nobody reads any more; its length is 0 then. Does
 * nothing if the array is small or part of a larger one.
 *
 * V8 keeps the bytes of arrays outside its heap and collects them only when hundreds of
 * MB have come together, or after half a minute without work: an edge that handled a
 * batch of 20 MB images held 470 MB of which it needed none.
 */
export function freeBytes({ buffer, length }: Uint8Array): void {
  if (length < FREED_BYTES_MIN || length !== buffer.byteLength) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
