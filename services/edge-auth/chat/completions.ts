/**
 * `POST /v1/chat/completions`: checks the request, has it admitted, runs it, and
 * settles what it cost, however it ended.
 */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { publicRequestId } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import {
  startWorkSpan,
  type WorkSpan,
  type WorkSpanAttributes,
} from "@gateway/shared/process/tracing";
import {
  type AnswerOptions,
  clientClosedRequest,
  holdUntil,
  StreamAnswer,
  WholeAnswer,
} from "./answer.ts";
import type { ChatDispatcher } from "../dispatch/dispatcher.ts";
import type { RunOutcome } from "../dispatch/run.ts";
import type { Admission, ChatLease } from "../limits/admission.ts";
import type { ClientConnection } from "../http/server.ts";
import {
  readChatRequest,
  type ReadChatRequestDependencies,
  type UnreadChatRequest,
} from "./read_request.ts";
import { eventStreamHeaders, jsonHeaders } from "../http/responses.ts";
import {
  keyRevoked,
  type RunningRequests,
} from "../dispatch/running_requests.ts";

/** Redis gives a slot back in less than a millisecond, and a stalled Redis must not be felt. */
export const SLOT_HOLD_MS = 75;

/** Of the dispatcher, what a request needs. */
export type Dispatcher = Pick<ChatDispatcher, "start">;

export interface ChatCompletionsDependencies
  extends ReadChatRequestDependencies {
  admission: Admission;
  dispatcher: Dispatcher;
  running: RunningRequests;
  /** A stream without a first token is opened after this long; 0: never. */
  streamHeadMs: number;
}

/** A request on its way through the handler. */
export interface ChatCall extends UnreadChatRequest {
  requestId: string;
  /** Who waits for the answer. */
  connection: ClientConnection;
  /** The request was admitted and runs: its end will be told. */
  onStarted: () => void;
  /** Told once how a run that began has ended. */
  onEnded: (request: ChatRequest, outcome: RunOutcome) => void;
}

/**
 * Answers one call. Rejects with an `ApiError` as long as nothing was sent; the
 * returned response is sent in any case.
 */
export async function chatCompletions(
  call: ChatCall,
  dependencies: ChatCompletionsDependencies,
): Promise<Response> {
  const received = await readChatRequest(call, dependencies);
  if (received === null) return clientClosedRequest();
  const { request, parseMs, release } = received;
  const { principal, requestId } = call;
  const { admission, running, refusedBodies } = dependencies;
  running.add(principal, requestId);
  let lease: ChatLease | null = null;
  try {
    lease = await admission.admitChat(principal, request, requestId);
    if (running.isStopped(requestId)) throw keyRevoked();
    if (call.connection.hasLeft) {
      giveUp(lease, call, running);
      return clientClosedRequest();
    }
    // Not awaited: a run that has begun ends and is settled by itself.
    return runAdmitted(call, request, lease, dependencies);
  } catch (error) {
    giveUp(lease, call, running);
    // Parsed for nothing: from then on such a key is refused before.
    if (lease === null && isForbidden(error)) {
      refusedBodies.charge(principal.keyId, parseMs);
    }
    throw error;
  } finally {
    release();
  }
}

/** The key may not be here at all; more waiting will not help. */
function isForbidden(error: unknown): boolean {
  return error instanceof ApiError &&
    (error.code === "unauthorized" || error.code === "key_disabled");
}

/** Ends a request that no worker will run. What was reserved goes back. */
function giveUp(
  lease: ChatLease | null,
  { principal, requestId }: ChatCall,
  running: RunningRequests,
): void {
  running.remove(principal, requestId);
  lease?.release();
}

function runAdmitted(
  call: ChatCall,
  request: ChatRequest,
  lease: ChatLease,
  { dispatcher, running, now, streamHeadMs }: ChatCompletionsDependencies,
): Promise<Response> {
  const { requestId, principal } = call;
  const headers = request.stream
    ? eventStreamHeaders(requestId)
    : jsonHeaders(requestId);
  for (const [name, value] of Object.entries(lease.headers)) {
    headers.set(name, value);
  }
  const options: AnswerOptions = {
    headers,
    now,
    headMs: streamHeadMs,
    // The run delivers nothing before `start` has returned it.
    onDelivered: (sequence) => run.delivered(sequence),
    onOverlongLine: () => run.cancel("violation", overlongLine()),
    onAbandoned: (reason) => run.cancel(reason),
    hold: lease.slotFreed === null
      ? (end) => end()
      : holdUntil(lease.slotFreed, SLOT_HOLD_MS),
  };
  const answer = request.stream
    ? new StreamAnswer(options)
    : new WholeAnswer(options);
  call.onStarted();
  const span = startChatSpan(call, request);
  const { traceparent } = span;
  // Works in every state: queued, before the first token, streaming, not streaming.
  const forget = call.connection.onLeft(() => run.cancel("client_gone"));
  const run = dispatcher.start(
    {
      requestId,
      request,
      ...(traceparent === undefined ? {} : { traceparent }),
    },
    answer,
    (outcome) => {
      forget();
      running.remove(principal, requestId);
      lease.settle(outcome);
      span.end(spanAttributes(outcome), outcome.error?.code);
      call.onEnded(request, outcome);
    },
  );
  return answer.response;
}

function startChatSpan(
  { body, principal, requestId }: ChatCall,
  { model }: ChatRequest,
): WorkSpan {
  return startWorkSpan("chat", {
    kind: "producer",
    parent: body.headers.get("traceparent") ?? undefined,
    attributes: {
      "gateway.request_id": publicRequestId(requestId),
      "gateway.key_id": principal.keyId,
      "gen_ai.request.model": model,
    },
  });
}

function spanAttributes(outcome: RunOutcome): WorkSpanAttributes {
  return {
    "gateway.outcome": outcome.kind,
    "gateway.offers": outcome.offers,
    "gateway.worker_id": outcome.workerId ?? "",
    "gen_ai.usage.input_tokens": outcome.usage?.prompt_tokens ?? 0,
    "gen_ai.usage.output_tokens": outcome.completionTokens,
  };
}

function overlongLine(): ApiError {
  return new ApiError(
    "upstream_invalid",
    "The model server answered with a chunk that is too long.",
  );
}
