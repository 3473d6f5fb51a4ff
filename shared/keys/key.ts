/**
 * The form of an API key: `sk-Cg`, 40 random base62 characters, 6 of CRC32 over
 * everything before. The checksum rejects typos, truncated copies and keys of other
 * vendors without any I/O; only the hash decides whether a key is valid.
 */
import { hash } from "node:crypto";
import { crc32 } from "node:zlib";
import type { RandomBytes } from "../process/ids.ts";

const PREFIX = "sk-Cg";
const RANDOM_CHARS = 40;
const CHECKSUM_CHARS = 6;
const CHECKED_CHARS = PREFIX.length + RANDOM_CHARS;
const HINT_TAIL_CHARS = 4;
const ID_CHARS = 20;

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/**
 * Bytes from here on would favour the first characters: 256 is not a multiple of 62.
 */
const FAIR_BYTES = 248;

/** `length` random base62 characters, each with the same probability. */
export function randomBase62(length: number, randomBytes: RandomBytes): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length - text.length)) {
      if (byte < FAIR_BYTES) text += BASE62.charAt(byte % BASE62.length);
    }
  }
  return text;
}

/**
 * A new full key value. It is shown once and never stored; keep {@link hashKeyValue} of
 * it.
 */
export function mintKey(randomBytes: RandomBytes): string {
  const checked = PREFIX + randomBase62(RANDOM_CHARS, randomBytes);
  return checked + encodeChecksum(crc32(checked));
}

const FORM = /^sk-Cg[0-9A-Za-z]{46}$/;

/**
 * Whether `value` has the form of a key, checksum included: about a microsecond, before
 * anything else.
 */
export function isWellFormedKey(value: string): boolean {
  if (!FORM.test(value)) return false;
  const checked = value.slice(0, CHECKED_CHARS);
  return value.slice(CHECKED_CHARS) === encodeChecksum(crc32(checked));
}

/**
 * SHA-256 as 43 base64url characters, which is stored. Fast is enough for 238 random
 * bits (ASVS 5.0, 6.5.2).
 */
export function hashKeyValue(value: string): string {
  return hash("sha256", value, "base64url");
}

/** The part of a key that may be shown later: `sk-Cg…x4Zq`. */
export function keyHint(value: string): string {
  return `${PREFIX}…${value.slice(-HINT_TAIL_CHARS)}`;
}

const idMint = (prefix: string) => (randomBytes: RandomBytes): string =>
  prefix + randomBase62(ID_CHARS, randomBytes);
/** A new key id: `key_` and 20 random base62 characters. */
export const mintKeyId = idMint("key_");
/** A new owner id: `own_` and 20 random base62 characters. */
export const mintOwnerId = idMint("own_");
/** A new project id: `prj_` and 20 random base62 characters. */
export const mintProjectId = idMint("prj_");
/** The name of one set of data in Redis. */
export const mintStoreName = idMint("sto_");

/**
 * Whether `text` has the form of a key id, so that it may become part of a Redis key
 * name.
 */
export const isKeyId = (text: string): boolean =>
  /^key_[0-9A-Za-z]{20}$/.test(text);

/** Whether `text` has the form of a project id, as {@link isKeyId}. */
export const isProjectId = (text: string): boolean =>
  /^prj_[0-9A-Za-z]{20}$/.test(text);

/** Whether `text` has the form of the id of an account: of an owner or a project. */
export const isAccountId = (text: string): boolean =>
  /^own_[0-9A-Za-z]{20}$/.test(text) || isProjectId(text);

function encodeChecksum(crc: number): string {
  let text = "";
  for (let rest = crc; text.length < CHECKSUM_CHARS;) {
    text = BASE62.charAt(rest % BASE62.length) + text;
    rest = Math.floor(rest / BASE62.length);
  }
  return text;
}
