/** Who runs the requests whose answers are kept, as all requests see it. */
import { createHash } from "node:crypto";
import { ApiError } from "@gateway/shared/openai/error";
import type { WholeBody } from "../dispatch/request_body.ts";
import type { EndUserNames } from "../limits/callers/end_users.ts";
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
  /** Of its path and its body: two requests are the same if these are. */
  readonly bodyDigest: string;
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
}

/** What {@link keeperFor} needs. */
export interface KeeperDependencies {
  /** Absent or null: the operator has switched it off. */
  keeper?: AnswerKeeper | null;
}

/** Says that the headers of a request are ignored. */
const IGNORED = { name: "x-gateway-keep", value: "off" };

/**
 * Who keeps the answer of a call that asks for it; null: nobody, by the operator's
 * decision, which a header tells. Throws the `ApiError` of an endpoint without it.
 */
export function keeperFor(
  { exchange: { response, path } }: AuthenticatedCall,
  { keeper = null }: KeeperDependencies,
  keeps: boolean,
): AnswerKeeper | null {
  if (keeper === null) response.fixedHeaders[IGNORED.name] = IGNORED.value;
  else if (!keeps) {
    throw new ApiError(
      "keep_unavailable",
      `Answers of ${path} are not kept: send it without the headers ` +
        "'Idempotency-Key' and 'X-Gateway-Keep'.",
    );
  } else keeper.requireLog();
  return keeper;
}

/** What distinguishes a request from others of the same key. */
export function requestDigest(path: string, body: Uint8Array): string {
  return createHash("sha256").update(path).update("\n").update(body)
    .digest("base64url");
}
