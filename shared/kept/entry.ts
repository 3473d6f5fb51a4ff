/**
 * An entry of a kept answer: a frame that only those read who have the key of its
 * request. Numbers are big-endian.
 *
 * ```
 * 0  u8   version        2
 * 1  u32  offer number   whose worker has written it
 * 5  u32  number         1, 2, 3 … over all entries of the request
 * 9  …    a frame of `bus/stream/frame.ts`, encrypted, and the tag of 16 bytes
 * ```
 *
 * Encrypted by ChaCha20-Poly1305 (RFC 8439), whose code in Deno needs a third of the
 * time of AES-256-GCM, with which version 1 was written.
 *
 * The nonce is made of both numbers: an offer has one writer, which never gives two
 * entries the same number. The id of the request and the first nine bytes are
 * authenticated, so that no entry can stand in the place of another one.
 */
import { Buffer } from "node:buffer";
import { createCipheriv, createDecipheriv } from "node:crypto";
import {
  decodeFrame,
  encodeFrame,
  type Frame,
  type FrameHeader,
  readU32,
  writeU32,
} from "../bus/stream/frame.ts";

const ENTRY_VERSION = 2;
const PREFIX_BYTES = 9;
const TAG_BYTES = 16;
const NONCE_BYTES = 12;
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

/** Returns an entry; the sequence of the frame is the number of the entry. */
export function sealEntry(
  { requestId, key }: KeptSubject,
  header: FrameHeader,
  payload: Uint8Array,
): Uint8Array {
  const prefix = new Uint8Array(PREFIX_BYTES);
  prefix[0] = ENTRY_VERSION;
  writeU32(prefix, 1, header.offerNumber);
  writeU32(prefix, 5, header.sequence);
  const cipher = createCipheriv(ALGORITHM, key, nonceOf(prefix), OPTIONS);
  const frame = encodeFrame(header, payload);
  const plaintextLength = frame.length;
  cipher.setAAD(authenticated(requestId, prefix), { plaintextLength });
  return Buffer.concat([
    prefix,
    cipher.update(frame),
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

/** Reads an entry; null if it was not written with this key for this request. */
export function openEntry(
  { requestId, key }: KeptSubject,
  entry: Uint8Array,
): Frame | null {
  if (placeOf(entry) === null) return null;
  const prefix = entry.subarray(0, PREFIX_BYTES);
  const tagAt = entry.length - TAG_BYTES;
  const decipher = createDecipheriv(ALGORITHM, key, nonceOf(prefix), OPTIONS);
  const plaintextLength = tagAt - PREFIX_BYTES;
  decipher.setAAD(authenticated(requestId, prefix), { plaintextLength });
  decipher.setAuthTag(entry.subarray(tagAt));
  try {
    const frame = decipher.update(entry.subarray(PREFIX_BYTES, tagAt));
    decipher.final();
    return decodeFrame(frame);
  } catch {
    // Another key, or changed bytes: nothing of it may be believed.
    return null;
  }
}

function nonceOf(prefix: Uint8Array): Uint8Array {
  const nonce = new Uint8Array(NONCE_BYTES);
  nonce.set(prefix.subarray(1), NONCE_BYTES - PREFIX_BYTES + 1);
  return nonce;
}

const authenticated = (requestId: string, prefix: Uint8Array): Uint8Array =>
  Buffer.concat([Buffer.from(requestId), prefix]);
