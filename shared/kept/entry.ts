/**
 * An entry of a kept answer: frames that only those read who have the key of its
 * request. Numbers are big-endian.
 *
 * ```
 * 0  u8   version        2
 * 1  u32  offer number   whose worker has written it
 * 5  u32  number         1, 2, 3 … over all entries of the request
 * 9  …    encrypted: each frame of `bus/stream/frame.ts` after its length as u32
 *    …    the tag of 16 bytes
 * ```
 *
 * The last entry has the end of the answer beside its last bytes, so a short answer has
 * one entry. Encrypted by ChaCha20-Poly1305 (RFC 8439), whose code in Deno needs a
 * third of the time of AES-256-GCM.
 *
 * The nonce is made of both numbers: an offer has one writer, which never gives two
 * entries the same number. The id of the request and the first nine bytes are
 * authenticated, so that no entry can stand in the place of another one.
 */
import { Buffer } from "node:buffer";
import { createCipheriv, createDecipheriv } from "node:crypto";
import {
  decodeFrame,
  type Frame,
  FRAME_HEADER_BYTES,
  readU32,
  writeFrameHeader,
  writeU32,
} from "../bus/stream/frame.ts";

const ENTRY_VERSION = 2;
const PREFIX_BYTES = 9;
const TAG_BYTES = 16;
const NONCE_BYTES = 12;
const LENGTH_BYTES = 4;
const ALGORITHM = "chacha20-poly1305";
const OPTIONS = { authTagLength: TAG_BYTES };

/** The length of the key of a request. */
export const KEPT_KEY_BYTES = 32;

/** Whose entries are written or read, and the key to them. */
export interface KeptSubject {
  /** 32 hexadecimal digits. */
  readonly requestId: string;
  /** {@link KEPT_KEY_BYTES} random bytes. */
  readonly key: Uint8Array;
}

/** Where an entry stands, which needs no key to be read. */
export interface EntryPlace {
  readonly offerNumber: number;
  readonly number: number;
}

/** A frame of an entry, which has its place and its sequence. */
export type EntryFrame = Pick<Frame, "type" | "tokens" | "payload">;

/** Returns the entry of a place, with copies of these frames. */
export function sealEntry(
  { requestId, key }: KeptSubject,
  { offerNumber, number }: EntryPlace,
  frames: readonly EntryFrame[],
): Uint8Array {
  const prefix = new Uint8Array(PREFIX_BYTES);
  prefix[0] = ENTRY_VERSION;
  writeU32(prefix, 1, offerNumber);
  writeU32(prefix, 5, number);
  const cipher = createCipheriv(ALGORITHM, key, nonceOf(prefix), OPTIONS);
  const plaintext = joined(frames, { offerNumber, sequence: number });
  const plaintextLength = plaintext.length;
  cipher.setAAD(authenticated(requestId, prefix), { plaintextLength });
  return Buffer.concat([
    prefix,
    cipher.update(plaintext),
    cipher.final(),
    cipher.getAuthTag(),
  ]);
}

/** Where an entry stands; null if it is none of this version. */
export function placeOf(entry: Uint8Array): EntryPlace | null {
  if (entry[0] !== ENTRY_VERSION) return null;
  if (entry.length < PREFIX_BYTES + TAG_BYTES) return null;
  return { offerNumber: readU32(entry, 1), number: readU32(entry, 5) };
}

/**
 * Reads the frames of an entry, at least one; null if it was not written with this key
 * for this request.
 */
export function openEntry(
  { requestId, key }: KeptSubject,
  entry: Uint8Array,
): [Frame, ...Frame[]] | null {
  if (placeOf(entry) === null) return null;
  const prefix = entry.subarray(0, PREFIX_BYTES);
  const tagAt = entry.length - TAG_BYTES;
  const decipher = createDecipheriv(ALGORITHM, key, nonceOf(prefix), OPTIONS);
  const plaintextLength = tagAt - PREFIX_BYTES;
  decipher.setAAD(authenticated(requestId, prefix), { plaintextLength });
  decipher.setAuthTag(entry.subarray(tagAt));
  try {
    const plaintext = decipher.update(entry.subarray(PREFIX_BYTES, tagAt));
    decipher.final();
    return divided(plaintext);
  } catch {
    // Another key, or changed bytes: nothing of it may be believed.
    return null;
  }
}

function joined(
  frames: readonly EntryFrame[],
  place: Pick<Frame, "offerNumber" | "sequence">,
): Uint8Array {
  const headBytes = LENGTH_BYTES + FRAME_HEADER_BYTES;
  const bytes = frames.reduce(
    (sum, { payload }) => sum + headBytes + payload.length,
    0,
  );
  const all = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const { type, tokens, payload } of frames) {
    writeU32(all, at, FRAME_HEADER_BYTES + payload.length);
    const header = { ...place, type, tokens };
    writeFrameHeader(header, all.subarray(at + LENGTH_BYTES));
    all.set(payload, at + headBytes);
    at += headBytes + payload.length;
  }
  return all;
}

/** Null if it is not as {@link joined} writes it. */
function divided(all: Uint8Array): [Frame, ...Frame[]] | null {
  const frames: Frame[] = [];
  for (let at = 0; at < all.length;) {
    const from = at + LENGTH_BYTES;
    if (from > all.length) return null;
    const to = from + readU32(all, at);
    const frame = to > all.length ? null : decodeFrame(all.subarray(from, to));
    if (frame === null) return null;
    frames.push(frame);
    at = to;
  }
  const [first, ...more] = frames;
  return first === undefined ? null : [first, ...more];
}

function nonceOf(prefix: Uint8Array): Uint8Array {
  const nonce = new Uint8Array(NONCE_BYTES);
  nonce.set(prefix.subarray(1), NONCE_BYTES - PREFIX_BYTES + 1);
  return nonce;
}

const authenticated = (requestId: string, prefix: Uint8Array): Uint8Array =>
  Buffer.concat([Buffer.from(requestId), prefix]);
