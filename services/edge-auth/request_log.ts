/**
 * One line per request, whatever became of it, with the id the caller saw. Never
 * a key, a prompt or an answer.
 */
import type { Context } from "hono";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Principal } from "@gateway/shared/keys/record";
import { type Log, roundMs } from "@gateway/shared/process/log";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RunOutcome } from "./dispatch/run.ts";
import type { EdgeEnv } from "./edge_env.ts";
import { shownMethod, shownPath } from "./shown_request.ts";

/** A chat request that ran. */
export interface LoggedRun {
  requestId: string;
  principal: Principal;
  request: ChatRequest;
  outcome: RunOutcome;
  durationMs: number;
}

/** Logs a request that was answered at once: models, refusals, errors. */
export function logAnswer(
  log: Log,
  c: Context<EdgeEnv>,
  durationMs: number,
): void {
  log.info("request", {
    requestId: publicRequestId(c.var.requestId),
    keyId: c.var.principal?.keyId,
    method: shownMethod(c),
    path: shownPath(c),
    status: c.res.status,
    errorCode: c.error instanceof ApiError ? c.error.code : undefined,
    redis: redisReason(c.error),
    durationMs: roundMs(durationMs),
  });
}

/** Why Redis could not answer, where that is the error. */
function redisReason(error: Error | undefined): string | undefined {
  return error?.cause instanceof RedisUnavailableError
    ? error.cause.reason
    : undefined;
}

/** Logs a chat request that was admitted, at the end of its run. */
export function logRun(log: Log, run: LoggedRun): void {
  const { outcome, request } = run;
  log.info("chat", {
    requestId: publicRequestId(run.requestId),
    keyId: run.principal.keyId,
    model: request.model,
    stream: request.stream,
    outcome: outcome.kind,
    errorCode: outcome.error?.code,
    cancelReason: outcome.cancelReason ?? undefined,
    workerId: outcome.workerId,
    offers: outcome.offers,
    promptTokens: outcome.usage?.prompt_tokens,
    completionTokens: outcome.completionTokens,
    dispatchMs: outcome.dispatchMs === null
      ? undefined
      : roundMs(outcome.dispatchMs),
    firstByteMs: outcome.firstByteMs === null
      ? undefined
      : roundMs(outcome.firstByteMs),
    durationMs: roundMs(run.durationMs),
  });
}
