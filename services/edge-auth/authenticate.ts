/**
 * Who is calling: reads the bearer credential and finds the principal it speaks
 * for. A credential that is not one of ours is refused without asking anybody; a
 * well-formed but unknown one costs one read, which is then remembered.
 */
import { hashKeyValue, isWellFormedKey } from "@gateway/shared/keys/key";
import type { Principal } from "@gateway/shared/keys/record";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { FailureLimiter } from "./auth_failures.ts";
import type { PrincipalLookup } from "./principal_lookup.ts";
import { unauthorized } from "./refusal.ts";

const MS_PER_SECOND = 1_000;
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

/** What authentication asks. */
export interface AuthenticateDependencies {
  lookup: Pick<PrincipalLookup, "remembered" | "find">;
  /** Failures per client address. */
  failures: FailureLimiter;
  /** Look-ups under way per client address; empty at the start. */
  asking: Map<string, Set<Promise<void>>>;
}

/**
 * The principal of a request. Throws `unauthorized` for a credential that is
 * missing, malformed or unknown: the caller learns nothing of which. After too
 * many unknown keys, `rate_limit_exceeded` for every further one from that
 * address that this edge does not know already. A credential without a right
 * checksum guesses nothing and costs nothing, so it is not counted. Of one
 * address, no more keys are looked up at a time than may turn out to be unknown:
 * a thousand guesses in one moment are no more reads than a thousand in turn.
 */
export function authenticate(
  header: string | null,
  clientAddress: () => string,
  dependencies: AuthenticateDependencies,
): Principal | Promise<Principal> {
  const { lookup, failures } = dependencies;
  const credential = bearerCredential(header);
  if (credential === null) throw unauthorized();
  const hash = hashKeyValue(credential);
  const remembered = lookup.remembered(hash);
  if (remembered !== null && remembered !== undefined) return remembered;
  const address = clientAddress();
  const waitMs = failures.waitMs(address);
  if (waitMs > 0) throw tooManyFailures(waitMs);
  if (remembered === null) throw failed(failures, address);
  return findInTurn(hash, address, dependencies);
}

async function findInTurn(
  hash: string,
  address: string,
  { lookup, failures, asking }: AuthenticateDependencies,
): Promise<Principal> {
  const pending = asking.get(address) ?? new Set();
  asking.set(address, pending);
  while (failures.failures(address) + pending.size >= failures.failuresMax) {
    const waitMs = failures.waitMs(address);
    if (waitMs > 0) throw tooManyFailures(waitMs);
    // Where Redis is away, who waits for a turn hears so with who has it.
    await Promise.race(pending);
  }
  const { promise: ended, resolve, reject } = Promise.withResolvers<void>();
  // Nobody may be waiting for this turn.
  ended.catch(() => {});
  pending.add(ended);
  try {
    const principal = await lookup.find(hash);
    if (principal === null) throw failed(failures, address);
    resolve();
    return principal;
  } catch (error) {
    if (isUnavailable(error)) reject(error);
    else resolve();
    throw error;
  } finally {
    pending.delete(ended);
    if (pending.size === 0) asking.delete(address);
  }
}

function isUnavailable(error: unknown): boolean {
  return error instanceof ApiError && error.code === "service_unavailable";
}

function failed(failures: FailureLimiter, address: string): ApiError {
  const waitMs = failures.fail(address);
  return waitMs > 0 ? tooManyFailures(waitMs) : unauthorized();
}

function tooManyFailures(waitMs: number): ApiError {
  const seconds = Math.ceil(waitMs / MS_PER_SECOND);
  return new ApiError(
    "rate_limit_exceeded",
    "Too many requests with an invalid API key from your address. " +
      `Please try again in ${seconds}s.`,
    { retryAfterMs: waitMs },
  );
}
