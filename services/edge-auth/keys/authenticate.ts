/** Authentication: finds the principal that an `Authorization` header stands for. */
import { hashKeyValue, isWellFormedKey } from "@gateway/shared/keys/key";
import type { Principal } from "@gateway/shared/keys/record";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { KeyLookup } from "./key_lookup.ts";
import { unauthorized } from "../limits/refusal.ts";

/** RFC 6750 section 2.1; the scheme's case does not matter (RFC 9110 section 11.1). Anchored: two joined headers are no credential. */
const BEARER = /^bearer +([A-Za-z0-9._~+/=-]+) *$/i;

/** The credential of an `Authorization` header; null if it cannot be one of our keys. */
export function bearerCredential(header: string | null): string | null {
  if (header === null) return null;
  if (header.length > REQUEST_LIMITS.authorizationBytesMax) return null;
  const credential = BEARER.exec(header)?.[1];
  if (credential === undefined || !isWellFormedKey(credential)) return null;
  return credential;
}

/**
 * The principal of a request. Throws the same `unauthorized` for a credential that is
 * missing, malformed or unknown.
 */
export async function authenticate(
  header: string | null,
  clientAddress: () => string,
  lookup: Pick<KeyLookup, "find">,
): Promise<Principal> {
  const credential = bearerCredential(header);
  if (credential === null) throw unauthorized();
  const hash = hashKeyValue(credential);
  const principal = await lookup.find(hash, clientAddress);
  if (principal === null) throw unauthorized();
  return principal;
}
