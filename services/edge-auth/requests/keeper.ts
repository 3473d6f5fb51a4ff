/** Who runs the requests whose answers are kept, as all requests see it. */
import { createHash } from "node:crypto";
import { ApiError } from "@gateway/shared/openai/error";
import type { WholeBody } from "../dispatch/request_body.ts";
import type { EndUserNames } from "../limits/callers/end_users.ts";
import type { RunLease } from "../limits/admission.ts";
import type { Estimate } from "../limits/cost.ts";
import type { AuthenticatedCall, CallEnd } from "./call.ts";
import type { AnswerMaker } from "./endpoint.ts";
import type { RunFacts } from "./run_record.ts";

/** A request that was checked, and whose answer is to be kept. */
export interface KeepableRequest extends RunFacts {
  readonly estimate: Estimate;
  readonly createAnswer: AnswerMaker;
  readonly session: string | undefined;
  readonly endUser: EndUserNames;
  readonly body: WholeBody;
  /** The digest of its path and its body: requests with the same one are the same. */
  readonly bodyDigest: string;
}

/** A request that was admitted. */
export interface LeasedRequest extends KeepableRequest {
  readonly lease: RunLease;
}

/** Runs requests whose answers are kept. */
export interface AnswerKeeper {
  /** Throws the `ApiError` `keep_unavailable` while nothing can be kept. */
  requireLog(): void;
  /**
   * Runs a request, or answers it with what the same request has got. Releases the body
   * unless it throws the `ApiError` of a refusal.
   */
  run(call: AuthenticatedCall, request: KeepableRequest): Promise<CallEnd>;
  /**
   * Runs an admitted request, whose answer is kept for as long as its key wants. Null:
   * none can be kept at the moment, and nothing has happened. What it throws has undone
   * the lease.
   */
  keep(
    call: AuthenticatedCall,
    request: LeasedRequest,
  ): Promise<CallEnd | null>;
}

/** What {@link keeperFor} needs. */
export interface KeeperDependencies {
  /** Absent or null: the operator has switched it off. */
  keeper?: AnswerKeeper | null;
}

/** Says that an answer is not kept, whatever the request or its key asks for. */
const OFF = { name: "x-gateway-keep", value: "off" };

/**
 * Who keeps the answer of a call that asks for it; null: nobody, by the operator's
 * decision, which a header tells. Throws the `ApiError` of a log that is away.
 */
export function keeperFor(
  { exchange: { response } }: AuthenticatedCall,
  { keeper = null }: KeeperDependencies,
): AnswerKeeper | null {
  if (keeper === null) response.fixedHeaders[OFF.name] = OFF.value;
  else keeper.requireLog();
  return keeper;
}

/**
 * Throws the `ApiError` of an endpoint whose answers are not kept, for a call that asks
 * for it. If the operator has switched it off for all of them, a header tells that.
 */
export function refuseToKeep(
  { exchange: { response, path } }: AuthenticatedCall,
  { keeper = null }: KeeperDependencies,
): void {
  if (keeper === null) {
    response.fixedHeaders[OFF.name] = OFF.value;
    return;
  }
  throw new ApiError(
    "keep_unavailable",
    `Answers of ${path} are not kept: send it without the headers ` +
      "'Idempotency-Key' and 'X-Gateway-Keep'.",
  );
}

/**
 * Whether the key of an admitted request wants all answers to be kept, and its client
 * does not say otherwise.
 */
export function wantsToKeep(
  { keep = null }: AuthenticatedCall,
  { keepSeconds = 0 }: RunLease,
): boolean {
  return keepSeconds > 0 && keep === null;
}

/**
 * Runs a request for which {@link wantsToKeep} is true. Null: its answer cannot be
 * kept, which a header tells, because a client that has not asked for it gets no error.
 */
export async function keepByDefault(
  call: AuthenticatedCall,
  request: LeasedRequest,
  { keeper = null }: KeeperDependencies,
): Promise<CallEnd | null> {
  const end = await keeper?.keep(call, request) ?? null;
  if (end === null) call.exchange.response.fixedHeaders[OFF.name] = OFF.value;
  return end;
}

/** What distinguishes a request from others of the same key. */
export function requestDigest(path: string, body: Uint8Array): string {
  return createHash("sha256").update(path).update("\n").update(body)
    .digest("base64url");
}
