import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Backend, BackendCall, BackendEvent } from "../backend.ts";
import { createHttpClient, type HttpClient } from "../http/client.ts";
import { type Connect, createConnect } from "../http/connect.ts";
import type { HttpResponse } from "../http/response.ts";
import type { ResponseHead } from "../http/response_head.ts";
import { createLifeline, type Lifeline } from "../lifeline.ts";
import { invalidAnswer, type UpstreamError } from "../upstream_error.ts";
import { type ChunkReader, createChunkReader } from "./chunk_reader.ts";
import { endpointOf, hostnameOf, portOf } from "./endpoint.ts";
import { readRetryAfter, refusalError } from "./error_response.ts";
import { readText } from "./read_text.ts";
import { createRedact, type Redact } from "./redact.ts";
import { encodeRequestBody } from "./request_body.ts";
import { createRequestEncoder, type EncodeRequest } from "./request_head.ts";
import { asksForFormat } from "./response_format.ts";
import { sideBySide } from "./side_by_side.ts";
import { createStreamAnswer } from "./stream_answer.ts";

const KIB = 1024;
/** A whole answer, whether it comes in one piece or as events. A million tokens fit. */
const ANSWER_BYTES_MAX = 32 * KIB * KIB;
/** The body of a refusal. What is longer is not quoted. */
const REFUSAL_BYTES_MAX = 64 * KIB;
/** After the last finish reason only usage and `[DONE]` are missing: not worth a long wait. */
const AFTER_FINISH_MS = 5_000;

/** What {@link createOpenAiBackend} needs. */
export interface OpenAiBackendOptions {
  config: BackendConfig;
  /** The value of `config.apiKeyEnv`; null: no credential is sent. */
  apiKey: string | null;
  now: MonotonicNow;
  /** For a `Retry-After` that is a date. */
  wallNow: WallNow;
  /** An id for a tool call whose server gave none: `call_…`. */
  newToolCallId: () => string;
  /** PEM certificates trusted beside the usual ones. */
  caCerts?: string[];
  /** Opens connections; absent: to `config.baseUrl`. */
  connect?: Connect;
}

/** A backend that keeps connections. */
export type OpenAiBackend = Backend & { close(): void };

/** What the attempts of one backend share. */
interface Shared {
  options: OpenAiBackendOptions;
  client: HttpClient;
  encodeRequest: EncodeRequest;
  redact: Redact;
}

/**
 * Makes a backend that speaks OpenAI's chat completions to a model server. One
 * call of `complete` is one attempt: nothing is repeated but a request that met
 * a dead idle connection. Its errors are `UpstreamError`s, or the reason of the
 * call's signal; no message holds the key, the address or a header.
 *
 * Throws an Error when the configuration cannot be used.
 */
export function createOpenAiBackend(
  options: OpenAiBackendOptions,
): OpenAiBackend {
  const { config, apiKey } = options;
  const url = endpointOf(config.baseUrl);
  const client = createHttpClient({
    connect: options.connect ?? createConnect({
      hostname: hostnameOf(url),
      port: portOf(url),
      isTls: url.protocol === "https:",
      ...(options.caCerts === undefined ? {} : { caCerts: options.caCerts }),
    }),
    connectMs: config.deadlines.connectMs,
    now: options.now,
  });
  const shared: Shared = {
    options,
    client,
    encodeRequest: createRequestEncoder({
      url,
      apiKey,
      headers: config.headers,
    }),
    redact: createRedact({
      secrets: [
        apiKey ?? "",
        ...Object.values(config.headers),
        ...url.searchParams.values(),
      ],
      baseUrl: url,
    }),
  };
  return {
    name: config.name,
    fingerprint: null,
    complete: (request, call) =>
      request.n > 1 && config.dialect.choices_per_request === "one"
        ? sideBySide(
          request,
          call.signal,
          (one, signal) => attempt(shared, one, { ...call, signal }),
        )
        : attempt(shared, request, call),
    close: () => client.close(),
  };
}

async function* attempt(
  shared: Shared,
  request: ChatRequest,
  call: BackendCall,
): AsyncGenerator<readonly BackendEvent[], void, void> {
  const { options, redact } = shared;
  const { deadlines } = options.config;
  const lifeline = createLifeline({
    now: options.now,
    signal: call.signal,
    totalMs: deadlines.totalMs,
  });
  let response: HttpResponse | null = null;
  try {
    lifeline.throwIfEnded();
    response = await send(shared, request, call, lifeline);
    const reader = createChunkReader({
      request,
      newToolCallId: options.newToolCallId,
      redact,
    });
    if (!isEventStream(response.head, request.stream)) {
      yield await readWhole(shared, response, reader, lifeline);
      return;
    }
    const answer = createStreamAnswer(
      response,
      reader,
      // What is not passed on as it comes is kept whole.
      request.stream ? Infinity : ANSWER_BYTES_MAX,
    );
    let hasYielded = false;
    for (;;) {
      const step = await answer.next();
      // An error known before anything was passed on can still be mended elsewhere.
      const isHeldBack = step.error !== undefined && !hasYielded;
      if (step.events.length > 0 && !isHeldBack) {
        hasYielded = true;
        lifeline.rest();
        yield step.events;
      }
      if (step.error !== undefined) throw step.error;
      if (step.isLast) return;
      if (step.isProgress) armNext(lifeline, reader, deadlines.betweenTokensMs);
    }
  } finally {
    response?.close();
    lifeline.dispose();
  }
}

async function send(
  shared: Shared,
  request: ChatRequest,
  call: BackendCall,
  lifeline: Lifeline,
): Promise<HttpResponse> {
  const { options, client, encodeRequest } = shared;
  const { config } = options;
  const response = await client.send(
    encodeRequest(encodeRequestBody(request, config), call),
    lifeline,
    () => {
      if (request.stream) {
        lifeline.arm("firstToken", config.deadlines.firstTokenMs);
      } else lifeline.rest();
    },
  );
  try {
    if (response.head.status !== 200) {
      throw await refusalOf(shared, request, response, lifeline);
    }
    checkEncoding(response.head);
    return response;
  } catch (error) {
    response.close();
    throw error;
  }
}

async function refusalOf(
  shared: Shared,
  request: ChatRequest,
  response: HttpResponse,
  lifeline: Lifeline,
): Promise<UpstreamError> {
  const { status, retryAfter, retryAfterMs } = response.head;
  const waitMs = readRetryAfter(
    retryAfter,
    retryAfterMs,
    shared.options.wallNow,
  );
  return refusalError({
    status,
    body: await readRefusal(shared, response, lifeline),
    ...(waitMs === undefined ? {} : { retryAfterMs: waitMs }),
  }, { redact: shared.redact, asksForFormat: asksForFormat(request) });
}

/** The parsed body, or undefined: the status says enough. */
async function readRefusal(
  shared: Shared,
  response: HttpResponse,
  lifeline: Lifeline,
): Promise<unknown> {
  lifeline.arm("betweenTokens", shared.options.config.deadlines.connectMs);
  try {
    const text = await readText(response, REFUSAL_BYTES_MAX, () => {});
    return text === null ? undefined : JSON.parse(text);
  } catch {
    // Not JSON, or cut: only an abort changes what to answer.
    if (lifeline.expired === null) lifeline.throwIfEnded();
    return undefined;
  }
}

async function readWhole(
  shared: Shared,
  response: HttpResponse,
  reader: ChunkReader,
  lifeline: Lifeline,
): Promise<BackendEvent[]> {
  const { betweenTokensMs } = shared.options.config.deadlines;
  const arm = () => lifeline.arm("betweenTokens", betweenTokensMs);
  arm();
  const text = await readText(response, ANSWER_BYTES_MAX, arm);
  if (text === null) {
    throw invalidAnswer(`Answer over ${ANSWER_BYTES_MAX} bytes`);
  }
  const events: BackendEvent[] = [];
  reader.take(text, "", events);
  reader.end(events, true);
  return events;
}

function armNext(
  lifeline: Lifeline,
  reader: ChunkReader,
  betweenTokensMs: number,
): void {
  if (reader.isFinished) {
    lifeline.arm("afterFinish", Math.min(betweenTokensMs, AFTER_FINISH_MS));
  } else if (reader.hasBegun) {
    lifeline.arm("betweenTokens", betweenTokensMs);
  }
}

/** Some servers answer a stream call whole, and the other way round; some name no type. */
function isEventStream(head: ResponseHead, isAskedFor: boolean): boolean {
  if (head.contentType === "text/event-stream") return true;
  if (head.contentType.endsWith("json")) return false;
  if (head.contentType === "text/html") {
    throw invalidAnswer("A web page instead of an answer");
  }
  return isAskedFor;
}

function checkEncoding(head: ResponseHead): void {
  if (head.contentEncoding === "" || head.contentEncoding === "identity") {
    return;
  }
  throw invalidAnswer("A content coding that was not asked for");
}
