/**
 * What all endpoints that run a model have in common: a request is read, checked,
 * admitted and run, and its cost is settled, however it ended.
 */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { type ModelKind, SCOPE_OF_KIND } from "@gateway/shared/models/kinds";
import { ApiError } from "@gateway/shared/openai/error";
import { decodeJson } from "@gateway/shared/openai/json_body";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { isJsonObject } from "@gateway/shared/process/error_text";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { settlesWithin } from "@gateway/shared/process/serve";
import { startWorkSpan, type WorkSpan } from "@gateway/shared/process/tracing";
import {
  type Dispatcher,
  keyRevoked,
  type StartedRun,
} from "../dispatch/dispatcher.ts";
import type { AnswerSink, RunOutcome } from "../dispatch/outcome.ts";
import type { Upload } from "../dispatch/attempt.ts";
import type { RunJob } from "../dispatch/run.ts";
import {
  type BodyBounds,
  readBody,
  type RefusedBodies,
} from "../http/read_body.ts";
import {
  abandon,
  type HeaderFields,
  type ResponseOutput,
} from "../http/responses.ts";
import type { Exchange } from "../http/server.ts";
import type { Admission, RunLease } from "../limits/admission.ts";
import type { Estimate, Reservation } from "../limits/cost.ts";
import type { FailedRequests } from "../limits/failed_requests.ts";

/** Redis usually frees a slot within a millisecond; a stalled Redis must not delay answers. */
export const SLOT_HOLD_MS = 75;

/** What differs between endpoints. */
export interface Endpoint<Request extends JobRequest> {
  /** The kind of its models. */
  kind: ModelKind;
  /** Checks the parsed body, and converts it. Throws an `ApiError` for its first fault. */
  parse(body: unknown, catalog: Catalog): Request;
  /** What a request may cost. */
  estimate(request: Request, catalog: Catalog): Estimate;
  /** The receiver of the answer, which sends it to the client. */
  answer(request: Request, options: AnswerOptions): AnswerSink;
}

/** What an answer needs from the request it belongs to. */
export interface AnswerOptions {
  out: ResponseOutput;
  /** Headers of the 200, beside those of its type. */
  headers: HeaderFields;
  /** What an admitted request reserved for the video that it starts. */
  video: Reservation | null;
  now: MonotonicNow;
  /** A stream is opened after this long even without a first byte; 0: never. */
  headMs: number;
  /** The run that the answer comes from. Nothing arrives before it was started. */
  run: () => StartedRun;
  /** Calls `end` when the end of the answer may be sent. */
  hold: (end: () => void) => void;
}

export interface RunRequestDependencies extends BodyBounds {
  catalog: Catalog;
  admission: Admission;
  refusedBodies: RefusedBodies;
  failedRequests: Pick<FailedRequests, "add">;
  dispatcher: Pick<Dispatcher, "start" | "isStoppedSince">;
  metrics: { ran(job: RunJob, outcome: RunOutcome, durationMs: number): void };
  log: Log;
  /** A stream is opened after this long even without a first token; 0: never. */
  streamHeadMs: number;
}

/** A request that is being handled. */
export interface RunCall {
  readonly exchange: Exchange;
  readonly requestId: string;
  /** The client's address, also when it has left. */
  readonly clientAddress: string;
  readonly startedAtMs: number;
  /** As the client named it; null until the body was read. */
  model: string | null;
  /** Set once it runs: it is then counted and logged at the end of the run. */
  hasRun: boolean;
}

/**
 * Answers one request. Resolves when its run has started or the client has disconnected.
 * Rejects with an `ApiError` if the request is refused.
 */
export async function runRequest<Request extends JobRequest>(
  call: RunCall,
  principal: Principal,
  endpoint: Endpoint<Request>,
  dependencies: RunRequestDependencies,
): Promise<void> {
  const { exchange } = call;
  const { admission, refusedBodies } = dependencies;
  const { keyId } = principal;
  const { kind } = endpoint;
  const scope = SCOPE_OF_KIND[kind];
  await admission.checkRefused(principal, kind);
  const read = await readRequest(call, keyId, endpoint, dependencies).catch(
    async (error: unknown) => {
      // A key that may not use the endpoint at all gets the error for that instead.
      if (error instanceof ApiError) await admission.modelsOf(principal, scope);
      throw error;
    },
  );
  if (read === null) return abandon(exchange.response);
  const { request, parseMs } = read;
  const admitting = admit(call, principal, endpoint, request, dependencies);
  const lease = await admitting.catch((error: unknown) => {
    // If this key keeps sending requests, their bodies are refused before they are parsed.
    const isKeyRefused = error instanceof ApiError &&
      (error.status === 401 || error.status === 403);
    if (isKeyRefused) refusedBodies.charge(keyId, parseMs);
    throw error;
  });
  if (lease === null) return abandon(exchange.response);
  const createAnswer = (options: AnswerOptions) =>
    endpoint.answer(request, options);
  startRun(call, { principal, kind, request, lease, createAnswer }, {
    ...dependencies,
  });
}

/**
 * Admits a request. Null if its client has disconnected in the meantime; throws the
 * `ApiError` of a refusal.
 */
export async function admit<Request extends JobRequest>(
  { exchange }: Pick<RunCall, "exchange">,
  principal: Principal,
  { kind, estimate }: Pick<Endpoint<Request>, "kind" | "estimate">,
  request: Request,
  { admission, dispatcher, catalog, now }: RunRequestDependencies,
): Promise<RunLease | null> {
  const askedAtMs = now();
  const lease = await admission.admit(principal, {
    scope: SCOPE_OF_KIND[kind],
    request,
    estimate: estimate(request, catalog),
  });
  const isStopped = dispatcher.isStoppedSince(principal.keyId, askedAtMs);
  const hasLeft = exchange.socket.destroyed;
  if (isStopped || hasLeft) lease.release();
  if (isStopped) throw keyRevoked();
  return hasLeft ? null : lease;
}

/** Returns the request and how long parsing took; null if the client has disconnected. */
async function readRequest<Request extends JobRequest>(
  call: RunCall,
  keyId: string,
  endpoint: Endpoint<Request>,
  dependencies: RunRequestDependencies,
): Promise<{ request: Request; parseMs: number } | null> {
  const { now, refusedBodies, catalog } = dependencies;
  const bytes = await readBody(call.exchange, keyId, dependencies);
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

/** A request that is to run. */
export interface RunOptions {
  readonly principal: Principal;
  readonly kind: ModelKind;
  /** With an upload, only a guess of the model until the upload has ended. */
  request: JobRequest;
  /** Null until an upload has ended. */
  lease: RunLease | null;
  readonly upload?: Upload;
  /** The upload was refused: somebody else answers the client, counts it and logs it. */
  isRefused?: boolean;
  createAnswer(options: AnswerOptions): AnswerSink;
  /** Called when the run has ended. */
  onEnded?: () => void;
}

/** Starts a run, which is settled at its end. */
export function startRun(
  call: RunCall,
  options: RunOptions,
  dependencies: RunRequestDependencies,
): StartedRun {
  const { dispatcher, now, streamHeadMs, metrics, log, failedRequests } =
    dependencies;
  const { principal, kind, upload } = options;
  const { keyId } = principal;
  const { requestId, exchange: { response, headers, onLeft } } = call;
  const answer = options.createAnswer({
    out: response,
    get headers() {
      return options.lease?.headers ?? {};
    },
    get video() {
      return options.lease?.video ?? null;
    },
    now,
    headMs: streamHeadMs,
    run: () => run,
    hold: (end) =>
      holdUntil(options.lease?.slotFreed ?? null, SLOT_HOLD_MS)(end),
  });
  call.hasRun = true;
  const span = startWorkSpan(kind, {
    kind: "producer",
    parent: headers.get("traceparent"),
    attributes: {
      "gateway.request_id": publicRequestId(requestId),
      "gateway.key_id": keyId,
      "gen_ai.request.model": options.request.model,
    },
  });
  const { traceparent } = span;
  const job: RunJob = {
    ...{ requestId, keyId, kind, traceparent },
    get request() {
      return options.request;
    },
    ...upload === undefined ? {} : { upload },
  };
  // Works in every state: queued, waiting for the first token, streaming or not.
  const removeCallback = onLeft(() => run.cancel("client_gone"));
  const run = dispatcher.start(job, answer, (outcome) => {
    removeCallback();
    options.onEnded?.();
    options.lease?.settle(outcome);
    endSpan(span, job, outcome);
    if (options.isRefused) return;
    const { error } = outcome;
    if (error !== null) {
      const isOpened = response.headersSent && response.statusCode < 300;
      const how = isOpened ? "cut" : "failed";
      failedRequests.add(principal, { ...call, error, how });
    }
    const durationMs = now() - call.startedAtMs;
    metrics.ran(job, outcome, durationMs);
    if (outcome.kind !== "complete" || log.isSampled(requestId)) {
      logRun(log, { ...call, ...principal, ...job }, outcome, durationMs);
    }
  });
  return run;
}

function endSpan(
  span: WorkSpan,
  { kind }: Pick<RunJob, "kind">,
  outcome: RunOutcome,
): void {
  span.end({
    "gateway.outcome": outcome.kind,
    "gateway.offers": outcome.offers,
    "gateway.worker_id": outcome.workerId ?? "",
    "gen_ai.usage.input_tokens": outcome.usage?.prompt_tokens ?? 0,
    [kind === "chat" ? "gen_ai.usage.output_tokens" : "gateway.units"]:
      outcome.completionTokens,
  }, outcome.error?.code);
}

/** What the log says of a run, beside its outcome. */
type LoggedRun = Principal & Pick<RunCall, "clientAddress"> & RunJob;

/** Logs a run, but never a key, a prompt or an answer. */
function logRun(
  log: Log,
  { requestId, clientAddress, keyId, ownerId, kind, request }: LoggedRun,
  outcome: RunOutcome,
  durationMs: number,
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

function roundOrAbsent(ms: number | null): number | undefined {
  return ms === null ? undefined : roundMs(ms);
}

/**
 * Holds back the end of an answer until its slot is free, if it needs one, for at most
 * `holdMs`. A client with one slot that sends its next request as soon as it has read the end
 * must not be refused because of the previous one, on this edge or another.
 */
export function holdUntil(
  slotFreed: Promise<void> | null,
  holdMs: number,
): (end: () => void) => void {
  return (end) => {
    if (slotFreed === null) end();
    else void settlesWithin(slotFreed, holdMs).then(end);
  };
}
