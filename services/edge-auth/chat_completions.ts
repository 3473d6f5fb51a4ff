/**
 * `POST /v1/chat/completions`: checks the request, has it admitted, runs it, and
 * settles what it cost, however it ended.
 */
import type { MonotonicNow } from "@gateway/shared/clock";
import type { Deadlines } from "@gateway/shared/deadlines";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { publicRequestId } from "@gateway/shared/ids";
import { BODY_DEADLINES } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { parseChatRequest } from "@gateway/shared/openai/request";
import {
  startWorkSpan,
  type WorkSpanAttributes,
} from "@gateway/shared/tracing";
import {
  type AnswerOptions,
  nobodyThere,
  StreamAnswer,
  WholeAnswer,
} from "./answer.ts";
import {
  badBodyWeight,
  type FailureLimiter,
  SUSPECT_BODY_WEIGHT,
} from "./auth_failures.ts";
import type { ChatDispatcher } from "./chat_dispatcher.ts";
import type { ChatRun, RunOutcome } from "./chat_run.ts";
import type { Asker, Gate, Ticket } from "./gate.ts";
import { HeldAnswer } from "./held_answer.ts";
import { decodeJson } from "./json_guard.ts";
import type { ParseLane } from "./parse_lane.ts";
import { readBody } from "./read_body.ts";
import { eventStreamHeaders, jsonHeaders } from "./responses.ts";
import type { RunningRequests } from "./running_requests.ts";
import { keyRevoked } from "./stop_key_requests.ts";

const MS_PER_SECOND = 1_000;
/** The end of an answer waits for its slot no longer: Redis gives it back in less than one, and a stalled Redis must not be felt. */
export const SLOT_HOLD_MS = 75;

export interface ChatCompletionsDependencies {
  catalog: Catalog;
  gate: Gate;
  dispatcher: Pick<ChatDispatcher, "start">;
  running: RunningRequests;
  now: MonotonicNow;
  bodyBytesMax: number;
  deadlines: Deadlines;
  /** Refused bodies per key, by weight. */
  badBodies: FailureLimiter;
  /** Where the bodies of keys with many bad ones are parsed. */
  parseLane: ParseLane;
}

/** A request on its way through the handler. */
export interface ChatCall extends Asker {
  requestId: string;
  /** As it arrived, with its body unread. */
  httpRequest: Request;
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
  // Made when it is first asked for: one that is made after the client has left
  // would not know (Deno 2.9.6).
  const { signal } = call.httpRequest;
  const received = await readRequest(call, dependencies);
  if (received === null) return nobodyThere();
  const { request, bodyBytes } = received;
  const { principal, requestId } = call;
  const { gate, running, badBodies } = dependencies;
  running.add(principal, requestId);
  let ticket: Ticket | null = null;
  try {
    ticket = await gate.admitChat(call, request, requestId);
    if (running.isStopped(requestId)) throw keyRevoked();
    if (signal.aborted) {
      giveUp(ticket, call, running);
      return nobodyThere();
    }
    // Not awaited: a run that has begun ends and is settled by itself.
    return runAdmitted(call, request, ticket, dependencies);
  } catch (error) {
    giveUp(ticket, call, running);
    // Parsed for nothing: from then on such a key is refused before.
    if (ticket === null && isForbidden(error)) {
      badBodies.fail(principal.keyId, badBodyWeight(bodyBytes));
    }
    throw error;
  }
}

/** The key may not be here at all; more waiting will not help. */
function isForbidden(error: unknown): boolean {
  return error instanceof ApiError &&
    (error.code === "unauthorized" || error.code === "key_disabled");
}

/** Ends a request that no worker will run. What was reserved goes back. */
function giveUp(
  ticket: Ticket | null,
  { principal, requestId }: ChatCall,
  running: RunningRequests,
): void {
  running.remove(principal, requestId);
  ticket?.settle({
    usage: null,
    completionTokens: 0,
    kind: "cancelled",
    hasRun: false,
    isStopped: true,
    isHeard: false,
  });
}

/** A request that was understood, and what it took to say it. */
interface Received {
  request: ChatRequest;
  bodyBytes: number;
}

/**
 * Reads and checks the request. A caller without a right to be here hears that
 * first. Null when the client left before its request was whole.
 */
async function readRequest(
  call: ChatCall,
  dependencies: ChatCompletionsDependencies,
): Promise<Received | null> {
  const { httpRequest, principal } = call;
  try {
    refuseAfterBadBodies(principal, dependencies.badBodies);
    const body = await readBody(httpRequest, {
      bytesMax: dependencies.bodyBytesMax,
      progressMs: BODY_DEADLINES.progressMs,
      totalMs: BODY_DEADLINES.totalMs,
      deadlines: dependencies.deadlines,
      now: dependencies.now,
    });
    if (body.type === "gone") return null;
    if (body.type === "refused") throw refused(body.error, body.close);
    const request = await parseBody(body.bytes, principal, dependencies);
    return { request, bodyBytes: body.bytes.byteLength };
  } catch (error) {
    if (error instanceof ApiError) {
      await dependencies.gate.check(call, "chat");
    }
    throw error;
  }
}

/**
 * Refused bodies cost the caller no quota, but they cost this process time. Asked
 * again here whether the key has had too many: others may have been read meanwhile.
 */
function parseBody(
  bytes: Uint8Array,
  principal: Principal,
  { catalog, badBodies, parseLane }: ChatCompletionsDependencies,
): ChatRequest | Promise<ChatRequest> {
  const { keyId } = principal;
  const parse = () => {
    refuseAfterBadBodies(principal, badBodies);
    try {
      return parseChatRequest(decodeJson(bytes), catalog);
    } catch (error) {
      badBodies.fail(keyId, badBodyWeight(bytes.byteLength));
      throw error;
    }
  };
  const isSuspect = badBodies.failures(keyId) >= SUSPECT_BODY_WEIGHT;
  return isSuspect ? parseLane.run(parse) : parse();
}

function refuseAfterBadBodies(
  { keyId }: Principal,
  badBodies: FailureLimiter,
): void {
  const waitMs = badBodies.waitMs(keyId);
  if (waitMs === 0) return;
  throw new ApiError(
    "rate_limit_exceeded",
    "Too many requests of this API key could not be understood. " +
      `Please try again in ${waitMs / MS_PER_SECOND}s.`,
    { retryAfterMs: waitMs, headers: { connection: "close" } },
  );
}

function refused(error: ApiError, isUnread: boolean): ApiError {
  if (!isUnread) return error;
  // The rest of the body would be taken for the next request.
  return new ApiError(error.code, error.message, {
    headers: { connection: "close" },
    cause: error.cause,
  });
}

function runAdmitted(
  call: ChatCall,
  request: ChatRequest,
  ticket: Ticket,
  { dispatcher, running, now }: ChatCompletionsDependencies,
): Promise<Response> {
  const { requestId, principal, httpRequest } = call;
  const headers = request.stream
    ? eventStreamHeaders(requestId)
    : jsonHeaders(requestId);
  ticket.setHeaders(headers);
  const options: AnswerOptions = {
    headers,
    now,
    // The run delivers nothing before `start` has returned it.
    onDelivered: (sequence) => run.delivered(sequence),
    onOverlongLine: () => run.cancel("violation", overlongLine()),
    onAbandoned: (reason) => run.cancel(reason),
  };
  const answer = request.stream
    ? new StreamAnswer(options)
    : new WholeAnswer(options);
  call.onStarted();
  const span = startWorkSpan("chat", {
    kind: "producer",
    parent: httpRequest.headers.get("traceparent") ?? undefined,
    attributes: {
      "gateway.request_id": publicRequestId(requestId),
      "gateway.key_id": principal.keyId,
      "gen_ai.request.model": request.model,
    },
  });
  const { traceparent } = span;
  const run = dispatcher.start(
    {
      requestId,
      request,
      ...(traceparent === undefined ? {} : { traceparent }),
    },
    ticket.slotFreed === null
      ? answer
      : new HeldAnswer(answer, ticket.slotFreed, SLOT_HOLD_MS),
    (outcome) => {
      running.remove(principal, requestId);
      ticket.settle({
        usage: outcome.usage,
        completionTokens: outcome.completionTokens,
        kind: outcome.kind,
        hasRun: outcome.dispatchMs !== null,
        isStopped: outcome.cancelReason !== null,
        isHeard: outcome.isHeard,
      });
      span.end(spanAttributes(outcome), outcome.error?.code);
      call.onEnded(request, outcome);
    },
  );
  cancelWhenClientLeaves(httpRequest.signal, run);
  return answer.response;
}

/** Works in every state: queued, before the first token, streaming, not streaming. */
function cancelWhenClientLeaves(signal: AbortSignal, run: ChatRun): void {
  if (signal.aborted) run.cancel("client_gone");
  else signal.addEventListener("abort", () => run.cancel("client_gone"));
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
