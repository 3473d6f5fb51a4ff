/**
 * What all endpoints that run a model have in common: a request is read, checked,
 * admitted and run, and its cost is settled, however it ended.
 */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { type ModelKind, scopeOf } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import { decodeJson } from "@gateway/shared/openai/json_body";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { startWorkSpan } from "@gateway/shared/process/tracing";
import { type Dispatcher, keyRevoked } from "../dispatch/dispatcher.ts";
import type { RunJob, RunOutcome, Upload } from "../dispatch/outcome.ts";
import {
  type BodyBounds,
  readBody,
  type RefusedBodies,
} from "../http/read_body.ts";
import { abandon } from "../http/responses.ts";
import type { Exchange } from "../http/server.ts";
import type { Admission, RunLease } from "../limits/admission.ts";
import type { Estimate } from "../limits/cost.ts";
import type { FailedRequests } from "../limits/failed_requests.ts";
import type { Answer, AnswerOptions } from "./answer.ts";

export interface Endpoint<Request extends JobRequest> {
  kind: ModelKind;
  /**
   * Checks a parsed body, or the fields of a form, and converts it. Throws an
   * `ApiError` for its first fault.
   */
  parse(body: unknown, catalog: Catalog): Request;
  estimate(request: Request, catalog: Catalog): Estimate;
  answer(options: AnswerOptions, job: Pick<RunJob, "request">): Answer;
}

export interface RunRequestDependencies
  extends BodyBounds, Pick<AnswerOptions, "streamHeadMs"> {
  catalog: Catalog;
  admission: Admission;
  refusedBodies: RefusedBodies;
  failedRequests: Pick<FailedRequests, "add">;
  dispatcher: Pick<Dispatcher, "start" | "isStoppedSince">;
  metrics: { ran(job: RunJob, outcome: RunOutcome, durationMs: number): void };
  log: Log;
}

/** A request of a known key that is being handled. */
export interface RunCall {
  readonly exchange: Exchange;
  readonly requestId: string;
  /** The part of the path that varies, or empty. */
  readonly id: string;
  /** The client's address, also when it has left. */
  readonly clientAddress: string;
  readonly startedAtMs: number;
  readonly principal: Principal;
  /** As the client named it; null until the body was read. */
  model: string | null;
  /** Set once it runs: it is then counted and logged when the run ends. */
  hasRun: boolean;
}

export type CallHandler<Dependencies> = (
  call: RunCall,
  deps: Dependencies,
) => void | Promise<void>;

/**
 * Resolves when the run has started or the client has left; rejects with an `ApiError`
 * of a refusal.
 */
export async function runRequest<Request extends JobRequest>(
  call: RunCall,
  endpoint: Endpoint<Request>,
  deps: RunRequestDependencies,
): Promise<void> {
  const { exchange: { response }, principal } = call;
  const { admission, refusedBodies } = deps;
  await admission.checkRefused(principal, endpoint.kind);
  const read = await readRequest(call, endpoint, deps).catch(
    async (error: unknown) => {
      // A key that may not use the endpoint at all gets the error for that instead.
      const scope = scopeOf(endpoint.kind);
      if (error instanceof ApiError) await admission.modelsOf(principal, scope);
      throw error;
    },
  );
  if (read === null) return abandon(response);
  const { request, parseMs } = read;
  const lease = await admit(call, endpoint, request, deps).catch(
    (error: unknown) => {
      // If this key keeps sending requests, their bodies are refused before they are
      // parsed.
      const isKeyRefused = error instanceof ApiError &&
        (error.status === 401 || error.status === 403);
      if (isKeyRefused) refusedBodies.charge(principal.keyId, parseMs);
      throw error;
    },
  );
  if (lease === null) return abandon(response);
  startRun(call, endpoint, { request, lease }, deps);
}

/**
 * Null if the client has disconnected in the meantime. Throws the `ApiError` of a
 * refusal.
 */
export async function admit<Request extends JobRequest>(
  { exchange, principal }: RunCall,
  { kind, estimate }: Pick<Endpoint<Request>, "kind" | "estimate">,
  request: Request,
  { admission, dispatcher, catalog, now }: RunRequestDependencies,
): Promise<RunLease | null> {
  const askedAtMs = now();
  const lease = await admission.admit(principal, {
    scope: scopeOf(kind),
    request,
    estimate: estimate(request, catalog),
  });
  const isStopped = dispatcher.isStoppedSince(principal.keyId, askedAtMs);
  const hasLeft = exchange.socket.destroyed;
  if (isStopped || hasLeft) lease.settle(null);
  if (isStopped) throw keyRevoked();
  return hasLeft ? null : lease;
}

/**
 * Returns the request and how long parsing took; null if the client has disconnected.
 */
async function readRequest<Request extends JobRequest>(
  call: RunCall,
  endpoint: Endpoint<Request>,
  deps: RunRequestDependencies,
): Promise<{ request: Request; parseMs: number } | null> {
  const { now, refusedBodies, catalog } = deps;
  const { keyId } = call.principal;
  const bytes = await readBody(call.exchange, keyId, deps);
  if (bytes === null) return null;
  const startedAtMs = now();
  try {
    // Other bodies of the key may have been refused in the meantime.
    refusedBodies.require(keyId);
    const body = decodeJson(bytes);
    const { model } = isJsonObject(body) ? body : {};
    if (typeof model === "string") call.model = model;
    const request = endpoint.parse(body, catalog);
    return { request, parseMs: now() - startedAtMs };
  } catch (error) {
    refusedBodies.charge(keyId, now() - startedAtMs);
    throw error;
  }
}

/** Starts a run, which is settled at its end. */
export function startRun(
  call: RunCall,
  { kind, answer: createAnswer }: Pick<Endpoint<JobRequest>, "kind" | "answer">,
  { request, lease, upload, onEnded }: {
    /** Of an upload, its model only, which may be a guess, until it has ended. */
    request: JobRequest;
    /** Null until an upload has ended; also if there is nothing to settle. */
    lease: RunLease | null;
    upload?: Upload;
    onEnded?: () => void;
  },
  { dispatcher, now, streamHeadMs, metrics, log, failedRequests }:
    RunRequestDependencies,
): { job: RunJob; answer: Answer } {
  const { requestId, principal: { keyId }, exchange } = call;
  const { response, headers, onClose } = exchange;
  const span = startWorkSpan(kind, {
    kind: "PRODUCER",
    parent: headers.traceparent?.toString(),
    attributes: {
      "gateway.request_id": publicRequestId(requestId),
      "gateway.key_id": keyId,
      "gen_ai.request.model": request.model,
    },
  });
  const { traceparent } = span;
  const job: RunJob = { requestId, keyId, kind, request, upload, traceparent };
  const out = { out: response, lease, now, streamHeadMs };
  const answer = createAnswer(out, job);
  // Works in every state: queued, waiting for the first token, streaming or not.
  onClose.push(() => answer.run.cancel("client_gone"));
  call.hasRun = true;
  answer.run = dispatcher.start(job, answer, (outcome) => {
    onEnded?.();
    answer.lease?.settle(outcome);
    const { error } = outcome;
    span.end({
      "gateway.outcome": outcome.kind,
      "gateway.offers": outcome.offers,
      "gateway.worker_id": outcome.workerId ?? "",
      "gen_ai.usage.input_tokens": outcome.usage?.prompt_tokens ?? 0,
      [kind === "chat" ? "gen_ai.usage.output_tokens" : "gateway.units"]:
        outcome.completionTokens,
    }, error?.code);
    if (!call.hasRun) return;
    if (error !== null) {
      const isOpened = response.headersSent && response.statusCode < 300;
      // Without a lease it is in no other count.
      const how = isOpened ? "cut" : answer.lease ? "failed" : "refused";
      failedRequests.add(call.principal, { ...call, error, how });
    }
    const durationMs = now() - call.startedAtMs;
    metrics.ran(job, outcome, durationMs);
    if (outcome.kind !== "complete" || log.isSampled(requestId)) {
      logRun(log, call, job, { outcome, durationMs });
    }
  });
  return { job, answer };
}

/** Logs a run, but never a key, a prompt or an answer. */
function logRun(
  log: Log,
  { requestId, clientAddress, principal: { keyId, ownerId } }: RunCall,
  { kind, request }: RunJob,
  { outcome, durationMs }: { outcome: RunOutcome; durationMs: number },
): void {
  const { usage, completionTokens } = outcome;
  const line = {
    requestId: publicRequestId(requestId),
    keyId,
    ownerId,
    clientAddress,
    model: request.model,
    stream: request.stream,
    outcome: outcome.kind,
    errorCode: outcome.error?.code,
    cancelReason: outcome.cancelReason ?? undefined,
    workerId: outcome.workerId,
    offers: outcome.offers,
    dispatchMs: roundOrAbsent(outcome.dispatchMs),
    firstByteMs: roundOrAbsent(outcome.firstByteMs),
    durationMs: roundMs(durationMs),
  };
  if (kind === "chat") {
    const promptTokens = usage?.prompt_tokens;
    log.info("chat", { ...line, promptTokens, completionTokens });
  } else log.info("media", { ...line, kind, units: completionTokens });
}

const roundOrAbsent = (ms: number | null): number | undefined =>
  ms === null ? undefined : roundMs(ms);
