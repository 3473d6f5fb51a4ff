/**
 * One line per request, whatever became of it, with the id the caller saw. Never
 * a key, a prompt or an answer.
 */
import type { Context } from "hono";
import { publicRequestId } from "@gateway/shared/ids";
import type { Principal } from "@gateway/shared/keys/record";
import { type Log, roundMs } from "@gateway/shared/log";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "./chat_run.ts";
import type { EdgeEnv } from "./edge_env.ts";

/** Both are the caller's words, and may be of any length. */
const METHOD_CHARS_MAX = 20;
const PATH_CHARS_MAX = 200;

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
    method: c.req.method.slice(0, METHOD_CHARS_MAX),
    path: c.req.path.slice(0, PATH_CHARS_MAX),
    status: c.res.status,
    errorCode: c.error instanceof ApiError ? c.error.code : undefined,
    durationMs: roundMs(durationMs),
  });
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
