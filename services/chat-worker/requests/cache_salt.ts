/**
 * Keeps accounts apart in the prefix cache of a model server: with a salt, a prompt is
 * found there only by requests with the same salt, so that nobody can tell by the time
 * to the first token what another account has asked (vLLM, "Cache Isolation for
 * Security" in its design document of prefix caching).
 */
import { createHmac, randomBytes } from "node:crypto";

const RANDOM_KEY_BYTES = 32;

/** Returns the salt of an account; the account is empty if nobody knows it. */
export type CacheSalt = (account: string) => string;

/**
 * Makes salts that say nothing of their accounts to a server that does not know the
 * key: HMAC-SHA256 in base64url. Workers with the same key make the same salts; null
 * stands for a random key, with which no other worker finds what this one has cached.
 */
export function createCacheSalt(key: string | null): CacheSalt {
  const secret = key ?? randomBytes(RANDOM_KEY_BYTES);
  return (account) =>
    createHmac("sha256", secret).update(account).digest("base64url");
}
