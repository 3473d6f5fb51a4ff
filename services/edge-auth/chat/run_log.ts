/** The log line of a chat request: never a key, a prompt or an answer. */
import type { Principal } from "@gateway/shared/keys/record";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import type { RunOutcome } from "../dispatch/run.ts";

/** A chat request that ran. */
export interface LoggedRun {
  requestId: string;
  principal: Principal;
  request: ChatRequest;
  outcome: RunOutcome;
  durationMs: number;
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
