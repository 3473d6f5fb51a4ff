/**
 * UTF-8 without an allocation for each text: V8 allocates every array outside its heap,
 * and `TextEncoder.encode` and `Buffer.from` each leave JavaScript twice.
 */
import { Buffer } from "node:buffer";

const encoder = new TextEncoder();
const SCRATCH_BYTES = 48 * 1024;
const scratch = new Uint8Array(SCRATCH_BYTES);
/** The most bytes that a code unit of UTF-16 takes. */
const BYTES_PER_UNIT_MAX = 3;
/** A call that leaves JavaScript costs as much as looking at this many characters. */
const SHORT_CHARS_MAX = 64;

/** The UTF-8 of a text, valid until the next call of any function of this module. */
export function encodeBriefly(text: string): Uint8Array {
  if (text.length * BYTES_PER_UNIT_MAX > SCRATCH_BYTES) {
    return encoder.encode(text);
  }
  const { written } = encoder.encodeInto(text, scratch);
  return scratch.subarray(0, written);
}

/** The UTF-8 of a text, which may be kept. Short ones share memory of `Buffer`. */
export function encodeUtf8(text: string): Uint8Array {
  const bytes = encodeBriefly(text);
  if (bytes.buffer !== scratch.buffer) return bytes;
  const copy = Buffer.allocUnsafe(bytes.length);
  copy.set(bytes);
  return copy;
}

/** How many bytes of UTF-8 a text has. */
export function utf8Length(text: string): number {
  if (text.length > SHORT_CHARS_MAX) return Buffer.byteLength(text);
  for (let at = 0; at < text.length; at++) {
    if (text.charCodeAt(at) > 0x7f) return Buffer.byteLength(text);
  }
  return text.length;
}
