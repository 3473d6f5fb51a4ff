/** The end of a request that did not run: its error, the log line, the counts. */
import type { Principal } from "@gateway/shared/keys/record";
import { ApiError, internalError } from "@gateway/shared/openai/error";
import { publicRequestId } from "@gateway/shared/process/ids";
import { roundMs } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { sendError } from "../http/responses.ts";
import { DeletedKeyError } from "../limits/refusal.ts";
import type { Call, IdentifiedCall } from "../requests/call.ts";
import type { AppDependencies } from "./dependencies.ts";
import { shownPath } from "./not_found.ts";

/** Why a request was refused, and for which model, if that is known. */
export interface Refusal {
  readonly error: ApiError;
  readonly model: string | null;
}

/** Sends the answer of an error, or cuts one that has begun. Returns that error. */
export function sendFailure(
  { exchange: { response }, requestId }: Call,
  error: unknown,
  { log }: Pick<AppDependencies, "log">,
): ApiError {
  const isFault = !(error instanceof ApiError);
  if (isFault) {
    const line = { requestId: publicRequestId(requestId), error };
    log.error("request_fault", line);
  }
  const failure = isFault ? internalError(error) : error;
  if (response.headersSent) response.destroy();
  else sendError(response, failure);
  return failure;
}

/** The key and owner of a request, or of its deleted key; undefined: unknown. */
function principalOf(
  call: Call | IdentifiedCall,
  failure: Refusal | null,
): Principal | undefined {
  if ("principal" in call) return call.principal;
  const error = failure?.error;
  return error instanceof DeletedKeyError ? error.principal : undefined;
}

/** Counts a request and logs it. For one that has run, its run does that. */
export function finish(
  call: Call | IdentifiedCall,
  failure: Refusal | null,
  deps: Pick<AppDependencies, "failedRequests" | "now" | "log" | "refusals">,
): void {
  const { exchange, requestId, clientAddress } = call;
  const principal = principalOf(call, failure);
  const durationMs = deps.now() - call.startedAtMs;
  const { statusCode: status } = exchange.response;
  if (failure !== null && principal !== undefined) {
    const { error, model } = failure;
    const { endpoint } = call;
    deps.failedRequests.add(principal, {
      requestId,
      model,
      endpoint,
      error,
      status: error.status,
      how: "refused",
      clientAddress,
      durationMs,
      firstByteMs: null,
      attempts: 0,
    });
  }
  if (status < 400 && !deps.log.isSampled(requestId)) return;
  const { cause } = failure?.error ?? {};
  const line = {
    requestId: publicRequestId(requestId),
    keyId: principal?.keyId,
    ownerId: principal?.ownerId,
    clientAddress,
    method: exchange.method,
    path: shownPath(exchange),
    status,
    errorCode: failure?.error.code,
    redis: cause instanceof RedisUnavailableError ? cause.reason : undefined,
    durationMs: roundMs(durationMs),
  };
  if (failure !== null && status < 500) deps.refusals.add(line);
  else deps.log.info("request", line);
}
