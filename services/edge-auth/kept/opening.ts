/** What the record of a kept answer says from the beginning. */
import { KEPT_KEY_BYTES } from "@gateway/shared/kept/entry";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RunLease } from "../limits/admission.ts";
import type { AuthenticatedCall } from "../requests/call.ts";
import type { KeepWish } from "../requests/keep_headers.ts";
import type { KeepableRequest } from "../requests/keeper.ts";
import { endpointOf } from "./kept_answer.ts";
import type { AnswerName, Opening } from "./records.ts";

/** An opening, and the name of its answer. */
export type AnswerOpening = Opening & AnswerName;

/** What {@link openingOf} needs beside the request. */
export interface OpeningOptions {
  readonly keepMs: number;
  /** The longest that a run may take. */
  readonly requestTimeoutMs: number;
  readonly now: MonotonicNow;
  readonly wallNow: WallNow;
  readonly randomBytes: RandomBytes;
}

const MS_PER_SECOND = 1_000;
/** A record outlives the longest run by this, so that it does not end before. */
const SLACK_MS = 60_000;

/**
 * For how long an answer is kept after its end: by its request, else by its key, else
 * as usual.
 */
export function keepMsOf(
  wish: KeepWish | null | undefined,
  lease: Pick<RunLease, "keepSeconds"> | null = null,
): number {
  const { keepSeconds = KEPT_LIMITS.secondsDefault } = lease ?? {};
  return (wish?.seconds ?? keepSeconds) * MS_PER_SECOND;
}

/** The opening of an answer that is found by its id only, before it is admitted. */
export function openingOf(
  { requestId, principal, endsByMs, exchange }: AuthenticatedCall,
  { kind, model, stream, bodyDigest }: KeepableRequest,
  { keepMs, requestTimeoutMs, now, wallNow, randomBytes }: OpeningOptions,
): AnswerOpening {
  const runMs = Math.min(requestTimeoutMs, endsByMs - now());
  const createdAtMs = wallNow();
  return {
    requestId,
    ownerId: principal.ownerId,
    principal,
    key: randomBytes(KEPT_KEY_BYTES),
    idempotencyKey: null,
    bodyDigest,
    terms: null,
    lastsMs: Math.ceil(runMs + keepMs + SLACK_MS),
    facts: {
      keyId: principal.keyId,
      model,
      kind,
      stream,
      endpoint: endpointOf(exchange.path),
      createdAtMs,
      keepMs,
      endsByMs: createdAtMs + runMs,
    },
  };
}
