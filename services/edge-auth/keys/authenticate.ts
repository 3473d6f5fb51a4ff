/**
 * Who is calling: reads the bearer credential and finds the principal it speaks
 * for. A credential that is not one of ours is refused without asking anybody; a
 * well-formed but unknown one costs one read, which is then remembered.
 */
import { hashKeyValue, isWellFormedKey } from "@gateway/shared/keys/key";
import type { Principal } from "@gateway/shared/keys/record";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { KeyLookup } from "./key_lookup.ts";
import type { LookupTurns } from "./lookup_turns.ts";
import { unauthorized } from "../limits/refusal.ts";

/** RFC 6750 section 2.1; the scheme's case does not matter (RFC 9110 section 11.1). Anchored: two joined headers are no credential. */
const BEARER = /^bearer +([A-Za-z0-9._~+/=-]+) *$/i;

/** The credential of an `Authorization` header, or null when there is none that could be ours. */
export function bearerCredential(header: string | null): string | null {
  if (header === null) return null;
  if (header.length > REQUEST_LIMITS.authorizationBytesMax) return null;
  const credential = BEARER.exec(header)?.[1];
  if (credential === undefined || !isWellFormedKey(credential)) return null;
  return credential;
}

export interface AuthenticateDependencies {
  lookup: Pick<KeyLookup, "remembered" | "find">;
  turns: LookupTurns;
}

/**
 * The principal of a request. Throws `unauthorized` for a credential that is
 * missing, malformed or unknown: the caller learns nothing of which. A key that
 * this edge has not seen is looked up in turn: an address that tries many unknown
 * keys waits, and may hear `rate_limit_exceeded`.
 */
export function authenticate(
  header: string | null,
  clientAddress: () => string,
  { lookup, turns }: AuthenticateDependencies,
): Principal | Promise<Principal> {
  const credential = bearerCredential(header);
  if (credential === null) throw unauthorized();
  const hash = hashKeyValue(credential);
  const remembered = lookup.remembered(hash);
  if (remembered === null) throw unauthorized();
  if (remembered !== undefined) return remembered;
  return findInTurn(hash, clientAddress(), { lookup, turns });
}

async function findInTurn(
  hash: string,
  address: string,
  { lookup, turns }: AuthenticateDependencies,
): Promise<Principal> {
  await turns.take(address, hash);
  let isUnknown = false;
  try {
    const principal = await lookup.find(hash);
    isUnknown = principal === null;
    if (principal === null) throw unauthorized();
    return principal;
  } finally {
    if (!isUnknown) turns.giveBack(address);
  }
}
