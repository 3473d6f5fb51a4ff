/**
 * `POST /v1/chat/completions`: reads, checks, admits and runs the request, and settles
 * its cost, however it ended.
 */
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { decodeJson } from "@gateway/shared/openai/json_body";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { startWorkSpan, type WorkSpan } from "@gateway/shared/process/tracing";
import {
  type AnswerOptions,
  holdUntil,
  StreamAnswer,
  WholeAnswer,
} from "./answer.ts";
import { type ChatDispatcher, keyRevoked } from "../dispatch/dispatcher.ts";
import type { RunOutcome } from "../dispatch/outcome.ts";
import type { ChatJob } from "../dispatch/run.ts";
import type { Admission, ChatLease } from "../limits/admission.ts";
import {
  abandon,
  EVENT_STREAM_HEADERS,
  JSON_HEADERS,
} from "../http/responses.ts";
import {
  type BodyBounds,
  readBody,
  type RefusedBodies,
} from "../http/read_body.ts";
import type { Exchange } from "../http/server.ts";
import { parseChatRequest } from "./request.ts";

/** Redis usually frees a slot within a millisecond; a stalled Redis must not delay answers. */
export const SLOT_HOLD_MS = 75;

export interface ChatCompletionsDependencies extends BodyBounds {
  catalog: Catalog;
  admission: Admission;
  refusedBodies: RefusedBodies;
  dispatcher: Pick<ChatDispatcher, "start" | "isStoppedSince">;
  metrics: { ran(job: ChatJob, outcome: RunOutcome, durationMs: number): void };
  log: Log;
  /** A stream is opened after this long even without a first token; 0: never. */
  streamHeadMs: number;
}

/** A request that is being handled. */
export interface ChatCall {
  readonly exchange: Exchange;
  readonly requestId: string;
  readonly startedAtMs: number;
  /** Set once it runs: it is then counted and logged at the end of the run. */
  hasRun: boolean;
}

/**
 * Answers one request. Resolves when its run has started or the client has disconnected.
 * Rejects with an `ApiError` if the request is refused.
 */
export async function chatCompletions(
  call: ChatCall,
  principal: Principal,
  dependencies: ChatCompletionsDependencies,
): Promise<void> {
  const { exchange } = call;
  const { admission, dispatcher, refusedBodies, now } = dependencies;
  const { keyId } = principal;
  await admission.checkRefused(principal);
  const read = await readRequest(exchange, keyId, dependencies).catch(
    async (error: unknown) => {
      // A key that may not make chat requests at all gets the error for that instead.
      if (error instanceof ApiError) {
        await admission.modelsOf(principal, "chat");
      }
      throw error;
    },
  );
  if (read === null) return abandon(exchange.response);
  const { request, parseMs } = read;
  const askedAtMs = now();
  const admitting = admission.admitChat(principal, request);
  const lease = await admitting.catch((error: unknown) => {
    // If this key keeps sending requests, their bodies are refused before they are parsed.
    const isKeyRefused = error instanceof ApiError &&
      (error.status === 401 || error.status === 403);
    if (isKeyRefused) refusedBodies.charge(keyId, parseMs);
    throw error;
  });
  const isStopped = dispatcher.isStoppedSince(keyId, askedAtMs);
  if (isStopped || exchange.socket.destroyed) lease.release();
  if (isStopped) throw keyRevoked();
  if (exchange.socket.destroyed) return abandon(exchange.response);
  runAdmitted(call, principal, request, lease, dependencies);
}

/** Returns the request and how long parsing took; null if the client has disconnected. */
async function readRequest(
  exchange: Exchange,
  keyId: string,
  dependencies: ChatCompletionsDependencies,
): Promise<{ request: ChatRequest; parseMs: number } | null> {
  const { now, refusedBodies, catalog } = dependencies;
  const body = await readBody(exchange, keyId, dependencies);
  if (body === null) return null;
  const startedAtMs = now();
  try {
    // Other bodies of the key may have been refused in the meantime.
    refusedBodies.require(keyId);
    const request = parseChatRequest(decodeJson(body), catalog);
    return { request, parseMs: now() - startedAtMs };
  } catch (error) {
    refusedBodies.charge(keyId, now() - startedAtMs);
    throw error;
  }
}

/** Starts the run, which is settled at its end. */
function runAdmitted(
  call: ChatCall,
  { keyId }: Principal,
  request: ChatRequest,
  lease: ChatLease,
  { dispatcher, now, streamHeadMs, metrics, log }: ChatCompletionsDependencies,
): void {
  const { requestId, exchange: { response, headers, onLeft } } = call;
  const options: AnswerOptions = {
    out: response,
    headers: {
      ...(request.stream ? EVENT_STREAM_HEADERS : JSON_HEADERS),
      ...lease.headers,
    },
    now,
    headMs: streamHeadMs,
    run: () => run,
    hold: holdUntil(lease.slotFreed, SLOT_HOLD_MS),
  };
  const answer = request.stream
    ? new StreamAnswer(options)
    : new WholeAnswer(options);
  call.hasRun = true;
  const span = startWorkSpan("chat", {
    kind: "producer",
    parent: headers.get("traceparent"),
    attributes: {
      "gateway.request_id": publicRequestId(requestId),
      "gateway.key_id": keyId,
      "gen_ai.request.model": request.model,
    },
  });
  const { traceparent } = span;
  const job: ChatJob = { requestId, keyId, request, traceparent };
  // Works in every state: queued, waiting for the first token, streaming or not.
  const removeCallback = onLeft(() => run.cancel("client_gone"));
  const run = dispatcher.start(job, answer, (outcome) => {
    removeCallback();
    lease.settle(outcome);
    endChatSpan(span, outcome);
    const durationMs = now() - call.startedAtMs;
    metrics.ran(job, outcome, durationMs);
    logRun(log, job, outcome, durationMs);
  });
}

function endChatSpan(span: WorkSpan, outcome: RunOutcome): void {
  span.end({
    "gateway.outcome": outcome.kind,
    "gateway.offers": outcome.offers,
    "gateway.worker_id": outcome.workerId ?? "",
    "gen_ai.usage.input_tokens": outcome.usage?.prompt_tokens ?? 0,
    "gen_ai.usage.output_tokens": outcome.completionTokens,
  }, outcome.error?.code);
}

/** Logs a run, but never a key, a prompt or an answer. */
function logRun(
  log: Log,
  { requestId, keyId, request }: ChatJob,
  outcome: RunOutcome,
  durationMs: number,
): void {
  log.info("chat", {
    requestId: publicRequestId(requestId),
    keyId,
    model: request.model,
    stream: request.stream,
    outcome: outcome.kind,
    errorCode: outcome.error?.code,
    cancelReason: outcome.cancelReason ?? undefined,
    workerId: outcome.workerId,
    offers: outcome.offers,
    promptTokens: outcome.usage?.prompt_tokens,
    completionTokens: outcome.completionTokens,
    dispatchMs: roundOrAbsent(outcome.dispatchMs),
    firstByteMs: roundOrAbsent(outcome.firstByteMs),
    durationMs: roundMs(durationMs),
  });
}

function roundOrAbsent(ms: number | null): number | undefined {
  return ms === null ? undefined : roundMs(ms);
}
