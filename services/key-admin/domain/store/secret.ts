/** Secrets of sessions, links and forms, and the digests that are stored of them. */
import { createHash } from "node:crypto";
import { randomBase62 } from "@gateway/shared/keys/key";
import type { RandomBytes } from "@gateway/shared/process/ids";

/** Characters of sessions, links and nonces: 43 of base62 are 256 bits. */
const SECRET_CHARS = 43;
const SECRET_FORM = /^[0-9A-Za-z]{43}$/;

/** A value that only its holder knows. Only its {@link digest} is stored. */
export const mintSecret = (randomBytes: RandomBytes): string =>
  randomBase62(SECRET_CHARS, randomBytes);

/** Whether `text` has the form of a secret; anything else is not looked up. */
export const isSecret = (text: string): boolean => SECRET_FORM.test(text);

/** SHA-256 in base64url, stored instead of a secret or an address. */
export const digest = (text: string): string =>
  createHash("sha256").update(text).digest("base64url");
