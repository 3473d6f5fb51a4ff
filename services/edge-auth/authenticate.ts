/**
 * Who is calling: reads the bearer credential and finds the principal it speaks
 * for. A credential that is not one of ours is refused without asking anybody; a
 * well-formed but unknown one costs one read, which is then remembered.
 */
import { hashKeyValue, isWellFormedKey } from "@gateway/shared/keys/key";
import type { Principal } from "@gateway/shared/keys/record";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";

/** Finds the principal of a key by the SHA-256 of its value, or null. */
export type FindPrincipal = (hash: string) => Promise<Principal | null>;

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

/**
 * The principal of a request. Throws `unauthorized` for a credential that is
 * missing, malformed or unknown: the caller learns nothing of which.
 */
export async function authenticate(
  header: string | null,
  findPrincipal: FindPrincipal,
): Promise<Principal> {
  const credential = bearerCredential(header);
  if (credential === null) throw unauthorized();
  const principal = await findPrincipal(hashKeyValue(credential));
  if (principal === null) throw unauthorized();
  return principal;
}

/** The one answer to every failed authentication. */
export function unauthorized(): ApiError {
  return new ApiError("unauthorized", "unauthorized");
}
