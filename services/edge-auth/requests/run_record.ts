/** Starts the run of a call, and counts and logs it at its end. */
import type { RequestOutcome } from "@gateway/shared/keys/request_row";
import { type ModelKind, UNIT_OF_KIND } from "@gateway/shared/models/kinds";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import {
  type Attributes,
  startWorkSpan,
} from "@gateway/shared/process/tracing";
import type {
  AnswerSink,
  RunJob,
  RunOutcome,
  StartedRun,
} from "../dispatch/outcome.ts";
import type { FailedRequests } from "../limits/failed_requests.ts";
import { type Charge, chargeFields } from "../limits/rate.ts";
import type { AuthenticatedCall } from "./call.ts";

/** What is counted and logged of the request of a run. */
export interface RunFacts {
  readonly kind: ModelKind;
  readonly model: string;
  readonly stream: boolean;
}

/** The dispatcher, as those who start runs use it. */
export interface RunStarter {
  start(
    job: RunJob,
    sink: AnswerSink,
    onEnded: (outcome: RunOutcome) => void,
  ): StartedRun;
  isStoppedSince(keyId: string, sinceMs: number): boolean;
}

/** Where runs are started and recorded. */
export interface RunDependencies {
  dispatcher: RunStarter;
  failedRequests: Pick<FailedRequests, "add">;
  metrics: {
    ran(facts: RunFacts, outcome: RunOutcome, durationMs: number): void;
  };
  log: Log;
  now: MonotonicNow;
  /** A first byte that comes later than this makes a request a slow one. */
  slowMs: number;
}

/** A job without what its call says of it, and who gets its answer. */
export interface RunWork extends
  Pick<
    RunJob,
    | "kind"
    | "model"
    | "session"
    | "tokens"
    | "body"
    | "queue"
    | "onTokens"
    | "keepKey"
  > {
  readonly sink: AnswerSink;
  /** Called once, at the end of the run. */
  readonly onEnded: (outcome: RunOutcome) => void;
  /** The client has left. Absent: the run is cancelled. */
  readonly onLeft?: (() => void) | undefined;
}

/** Starts a run, which is cancelled when the client leaves. */
export function startTracedRun(
  { requestId, principal, endsByMs, isBatch, exchange }: AuthenticatedCall,
  work: RunWork,
  { dispatcher }: Pick<RunDependencies, "dispatcher">,
): StartedRun {
  const { kind, model, sink, onEnded, onLeft } = work;
  const { keyId } = principal;
  const { headers, onClose } = exchange;
  const span = startWorkSpan(kind, {
    kind: "PRODUCER",
    parent: headers.traceparent?.toString(),
    describe: () => ({
      "gateway.request_id": publicRequestId(requestId),
      "gateway.key_id": keyId,
      "gen_ai.request.model": model,
    }),
  });
  const { traceparent } = span;
  // Named one by one: V8 takes ten times as long for what is left of an object.
  const job: RunJob = {
    kind,
    model,
    session: work.session,
    tokens: work.tokens,
    body: work.body,
    queue: work.queue,
    onTokens: work.onTokens,
    keepKey: work.keepKey,
    requestId,
    keyId,
    account: principal.ownerId,
    endsByMs,
    isBatch,
    traceparent,
  };
  const run = dispatcher.start(job, sink, (outcome) => {
    onEnded(outcome);
    span.end(() => attributesOf(kind, outcome), outcome.error?.code);
  });
  // Works in every state: queued, waiting for the first token, streaming or not.
  onClose.push(onLeft ?? (() => run.cancel("client_gone")));
  return run;
}

/** What the span of a run says of its end. */
function attributesOf(kind: ModelKind, outcome: RunOutcome): Attributes {
  const units = isInTokens(kind)
    ? "gen_ai.usage.output_tokens"
    : "gateway.units";
  return {
    "gateway.outcome": outcome.kind,
    "gateway.offers": outcome.offers,
    "gateway.worker_id": outcome.workerId ?? "",
    "gateway.backend": outcome.backend ?? "",
    "gen_ai.usage.input_tokens": outcome.usage?.prompt_tokens ?? 0,
    [units]: outcome.completionTokens,
  };
}

/** How a run ended, and whether its cost is in the counts of its key. */
export interface RunEnd {
  readonly outcome: RunOutcome;
  readonly isCharged: boolean;
  /** Null: it is charged nothing. */
  readonly charge: Charge | null;
  /** Where it is recorded. */
  readonly deps: RunDependencies;
}

/** Counts and logs a run that has ended. */
export function recordRun(
  call: AuthenticatedCall,
  facts: RunFacts,
  { outcome, isCharged, charge, deps }: RunEnd,
): void {
  const { requestId, principal } = call;
  const durationMs = deps.now() - call.startedAtMs;
  const { slowMs } = deps;
  const how = remarkIn(call, { outcome, isCharged, durationMs, slowMs });
  if (how !== null) {
    const { error, backend, offers } = outcome;
    deps.failedRequests.add(principal, {
      requestId,
      model: facts.model,
      endpoint: call.endpoint,
      error,
      status: statusOf(call, outcome),
      how,
      clientAddress: call.clientAddress,
      durationMs,
      firstByteMs: firstByteOf(outcome, durationMs),
      backend,
      attempts: offers,
    });
  }
  deps.metrics.ran(facts, outcome, durationMs);
  if (outcome.kind === "complete" && !deps.log.isSampled(requestId)) return;
  logRun(deps.log, call, { facts, outcome, charge, durationMs });
}

/** From the arrival of the request to the first byte of its answer; null: none. */
function firstByteOf(
  { firstByteMs, durationMs: ranMs }: RunOutcome,
  durationMs: number,
): number | null {
  return firstByteMs === null ? null : durationMs - ranMs + firstByteMs;
}

/** The status that the client got; nginx's 499 if it left without any. */
function statusOf(
  { exchange: { response } }: AuthenticatedCall,
  { error }: RunOutcome,
): number {
  if (response.headersSent) return response.statusCode;
  return error?.status ?? CLIENT_LEFT;
}
const CLIENT_LEFT = 499;

/** Why a run belongs into the log of requests; null: it does not. */
function remarkIn(
  { exchange: { response } }: AuthenticatedCall,
  { outcome, isCharged, durationMs, slowMs }:
    & Pick<
      RunEnd,
      "outcome" | "isCharged"
    >
    & { durationMs: number; slowMs: number },
): RequestOutcome | null {
  if (outcome.error === null) {
    const waitedMs = firstByteOf(outcome, durationMs) ?? durationMs;
    return waitedMs > slowMs ? "slow" : null;
  }
  const isOpened = response.headersSent && response.statusCode < 300;
  if (isOpened) return "cut";
  return isCharged ? "failed" : "refused";
}

/** Logs a run, but never a key, a prompt or an answer. */
function logRun(
  log: Log,
  { requestId, clientAddress, principal: { keyId, ownerId } }:
    AuthenticatedCall,
  { facts: { kind, model, stream }, outcome, charge, durationMs }: {
    facts: RunFacts;
    outcome: RunOutcome;
    charge: Charge | null;
    durationMs: number;
  },
): void {
  const { usage, completionTokens } = outcome;
  const hasTokens = isInTokens(kind);
  // One literal, because one that copies another is built member by member.
  const { cost, isUnpriced, priceTable } = chargeFields(charge);
  const line = {
    requestId: publicRequestId(requestId),
    keyId,
    ownerId,
    clientAddress,
    model,
    stream,
    outcome: outcome.kind,
    errorCode: outcome.error?.code,
    cancelReason: outcome.cancelReason ?? undefined,
    workerId: outcome.workerId,
    backend: outcome.backend,
    offers: outcome.offers,
    dispatchMs: roundOrAbsent(outcome.dispatchMs),
    firstByteMs: roundOrAbsent(outcome.firstByteMs),
    durationMs: roundMs(durationMs),
    cost,
    isUnpriced,
    priceTable,
    promptTokens: hasTokens ? usage?.prompt_tokens : undefined,
    completionTokens: hasTokens ? completionTokens : undefined,
    kind: kind === "chat" ? undefined : kind,
    units: hasTokens ? undefined : completionTokens,
  };
  if (kind === "chat") log.info("chat", line);
  else if (hasTokens) log.info("forward", line);
  else log.info("media", line);
}

const isInTokens = (kind: ModelKind) => UNIT_OF_KIND[kind] === null;

const roundOrAbsent = (ms: number | null): number | undefined =>
  ms === null ? undefined : roundMs(ms);
