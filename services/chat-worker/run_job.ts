/**
 * One job from its request to its last frame: asks a backend, encodes what it
 * yields, and ends the stream in exactly one way. Knows nothing of the bus.
 */
import type { WallNow } from "@gateway/shared/process/clock";
import type {
  ChatRequest,
  FinishReason,
  Usage,
} from "@gateway/shared/openai/chat";
import type { EndPayload } from "@gateway/shared/bus/frame";
import { ApiError } from "@gateway/shared/openai/error";
import { type AnswerEncoder, createAnswerEncoder } from "./answer.ts";
import type { Backend, BackendEvent } from "./backends/backend.ts";
import { UpstreamError } from "./backends/upstream_error.ts";

/** Where the answer goes. */
export interface JobOutput {
  /** Sends lines. `tokens` counts all that were produced so far. */
  write(lines: Uint8Array, tokens: number): void;
  /** Null while there is room; else a promise of room, kept also when the job is cancelled. */
  room(): Promise<void> | null;
  end(payload: EndPayload, tokens: number): void;
  fail(error: ApiError, failure: JobFailure): void;
}

/** What there is to know of a job that failed, beside its error. */
export interface JobFailure {
  /** Tokens that were produced. */
  tokens: number;
  /** What the backend counted, or null when it counted nothing. */
  usage: Usage | null;
  /** This worker failed, not the request, so another one may do better. */
  isOurs: boolean;
}

export interface JobInput {
  requestId: string;
  request: ChatRequest;
  traceparent?: string;
  /** Aborted with an `ApiError` when the job must stop and say so, with anything else when nobody listens. */
  signal: AbortSignal;
}

export interface RunJobDependencies {
  backend: Backend;
  wallNow: WallNow;
  /** Told about errors that are nobody's answer but a fault of ours. */
  onFault: (error: unknown) => void;
}

const MS_PER_SECOND = 1000;
const encoder = new TextEncoder();

/** Runs a job to its end. Never rejects. */
export async function runJob(
  input: JobInput,
  output: JobOutput,
  dependencies: RunJobDependencies,
): Promise<void> {
  const { request, requestId } = input;
  const answer = createAnswerEncoder(request, {
    id: `chatcmpl-${requestId}`,
    created: Math.floor(dependencies.wallNow() / MS_PER_SECOND),
    model: request.model,
    fingerprint: dependencies.backend.fingerprint,
  });
  try {
    const finishReasons = await relay(input, answer, output, dependencies);
    const last = answer.finish();
    const tokens = answer.completionTokens;
    if (last !== "") output.write(encoder.encode(last), tokens);
    output.end({ usage: answer.usage, finishReasons }, tokens);
  } catch (error) {
    const { apiError, isOurs } = explain(error, input.signal, dependencies);
    const usage = error instanceof UpstreamError ? error.usage : null;
    const tokens = usage?.completion_tokens ?? answer.completionTokens;
    output.fail(apiError, { tokens, usage, isOurs });
  }
}

/** Passes on what the backend yields. Returns the finish reasons by choice. */
async function relay(
  input: JobInput,
  answer: AnswerEncoder,
  output: JobOutput,
  { backend }: RunJobDependencies,
): Promise<FinishReason[]> {
  const finishReasons: FinishReason[] = [];
  const call = {
    requestId: input.requestId,
    signal: input.signal,
    ...(input.traceparent === undefined
      ? {}
      : { traceparent: input.traceparent }),
  };
  for await (const events of backend.complete(input.request, call)) {
    noteFinishes(events, finishReasons);
    const lines = answer.push(events);
    if (lines === "") continue;
    output.write(encoder.encode(lines), answer.completionTokens);
    const room = output.room();
    if (room !== null) await room;
    input.signal.throwIfAborted();
  }
  return finishReasons;
}

function noteFinishes(
  events: readonly BackendEvent[],
  finishReasons: FinishReason[],
): void {
  for (const event of events) {
    if (event.type === "finish") finishReasons[event.index] = event.reason;
  }
}

/** The error to answer with, and whether it is this worker's own. */
function explain(
  error: unknown,
  signal: AbortSignal,
  { onFault }: RunJobDependencies,
): { apiError: ApiError; isOurs: boolean } {
  if (signal.aborted) {
    const reason: unknown = signal.reason;
    const apiError = reason instanceof ApiError
      ? reason
      : new ApiError("worker_lost", "The request was cancelled.");
    return { apiError, isOurs: true };
  }
  if (error instanceof ApiError) return { apiError: error, isOurs: false };
  onFault(error);
  return {
    apiError: new ApiError(
      "internal_error",
      "The server had an error while processing your request. Please try again.",
    ),
    isOurs: true,
  };
}
