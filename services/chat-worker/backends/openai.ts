/** The one kind of backend: any server that speaks OpenAI's chat completions. */
import { STREAM_LIMITS } from "@gateway/shared/limits";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import { AttemptDeadlines } from "./attempt_deadlines.ts";
import type { Backend, BackendCall, BackendEvent } from "./backend.ts";
import { ChunkReader } from "./chunk_reader.ts";
import { invalidAnswer, UpstreamError } from "./errors.ts";
import {
  type Connect,
  createConnect,
  HttpClient,
  type HttpResponse,
} from "./http_client.ts";
import type { ResponseHead } from "./http_framing.ts";
import {
  asksForFormat,
  createRedact,
  readRetryAfter,
  type Redact,
  refusalError,
} from "./refusal.ts";
import {
  createRequestEncoder,
  type EncodeRequest,
  encodeRequestBody,
} from "./request.ts";
import { SseLimitError, SseParser } from "./sse_parser.ts";

const KIB = 1024;
/** A whole answer, whether it comes in one piece or as events. A million tokens fit. */
const ANSWER_BYTES_MAX = 32 * KIB * KIB;
/** The body of a refusal. What is longer is not quoted. */
const REFUSAL_BYTES_MAX = 64 * KIB;
/** After the last finish reason only usage and `[DONE]` are missing, which are not worth a long wait. */
const AFTER_FINISH_MS = 5_000;
const DONE = "[DONE]";

/** What an {@link OpenAiBackend} needs. */
export interface OpenAiBackendOptions {
  config: BackendConfig;
  /** The model's name among callers. */
  publicModel: string;
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

/**
 * One call of `complete` is one attempt: nothing is repeated but a request that
 * met a dead idle connection. Its errors are `UpstreamError`s, or the reason of
 * the call's signal; no message holds the key, the address or a header.
 */
export class OpenAiBackend implements Backend {
  readonly name: string;
  readonly #options: OpenAiBackendOptions;
  readonly #client: HttpClient;
  readonly #encodeRequest: EncodeRequest;
  readonly #redact: Redact;

  /** Throws an Error when the configuration cannot be used. */
  constructor(options: OpenAiBackendOptions) {
    const { config, apiKey, caCerts } = options;
    const url = new URL(`${config.baseUrl}/chat/completions`);
    const isTls = url.protocol === "https:";
    this.name = config.name;
    this.#options = options;
    this.#client = new HttpClient({
      connect: options.connect ?? createConnect({
        // An IPv6 address without its brackets.
        hostname: url.hostname.replace(/^\[(.*)\]$/, "$1"),
        port: Number(url.port || (isTls ? 443 : 80)),
        isTls,
        ...(caCerts === undefined ? {} : { caCerts }),
      }),
      connectMs: config.deadlines.connectMs,
      now: options.now,
    });
    this.#encodeRequest = createRequestEncoder(url, apiKey, config.headers);
    this.#redact = createRedact({
      secrets: [apiKey ?? "", ...Object.values(config.headers)],
      baseUrl: url,
      model: { theirs: config.model, ours: options.publicModel },
    });
  }

  complete(
    request: ChatRequest,
    call: BackendCall,
  ): AsyncIterable<readonly BackendEvent[]> {
    const { dialect } = this.#options.config;
    if (request.n === 1 || dialect.choices_per_request === "many") {
      return this.#attempt(request, call);
    }
    return sideBySide(
      request,
      call.signal,
      (one, signal) => this.#attempt(one, { ...call, signal }),
    );
  }

  /** Closes idle connections. Running calls go on. */
  close(): void {
    this.#client.close();
  }

  async *#attempt(
    request: ChatRequest,
    call: BackendCall,
  ): AsyncGenerator<readonly BackendEvent[], void, void> {
    const { config, now, newToolCallId } = this.#options;
    const deadlines = new AttemptDeadlines(
      now,
      call.signal,
      config.deadlines.totalMs,
    );
    let response: HttpResponse | null = null;
    try {
      deadlines.throwIfEnded();
      response = await this.#send(request, call, deadlines);
      const reader = new ChunkReader({
        request,
        newToolCallId,
        redact: this.#redact,
      });
      if (isEventStream(response.head, request.stream)) {
        yield* this.#readEvents(request, response, reader, deadlines);
      } else yield await this.#readWhole(response, reader, deadlines);
    } finally {
      response?.close();
      deadlines.dispose();
    }
  }

  async #send(
    request: ChatRequest,
    call: BackendCall,
    deadlines: AttemptDeadlines,
  ): Promise<HttpResponse> {
    const { config } = this.#options;
    const response = await this.#client.send(
      this.#encodeRequest(encodeRequestBody(request, config), call),
      deadlines,
      () => {
        if (!request.stream) deadlines.rest();
        else deadlines.arm("firstToken", config.deadlines.firstTokenMs);
      },
    );
    try {
      const { status, contentEncoding } = response.head;
      if (status !== 200) {
        throw await this.#refusal(request, response, deadlines);
      }
      if (contentEncoding !== "" && contentEncoding !== "identity") {
        throw invalidAnswer("A content coding that was not asked for");
      }
      return response;
    } catch (error) {
      response.close();
      throw error;
    }
  }

  async #refusal(
    request: ChatRequest,
    response: HttpResponse,
    deadlines: AttemptDeadlines,
  ): Promise<UpstreamError> {
    const { config, wallNow } = this.#options;
    const { status, retryAfter, retryAfterMs } = response.head;
    const waitMs = readRetryAfter(retryAfter, retryAfterMs, wallNow);
    deadlines.arm("betweenTokens", config.deadlines.connectMs);
    let body: unknown;
    try {
      const text = await readText(response, REFUSAL_BYTES_MAX, () => {});
      body = text === null ? undefined : JSON.parse(text);
    } catch {
      // Not JSON, or cut: the status says enough, and only an abort changes what to answer.
      if (deadlines.expired === null) deadlines.throwIfEnded();
    }
    return refusalError({
      status,
      body,
      ...(waitMs === undefined ? {} : { retryAfterMs: waitMs }),
    }, { redact: this.#redact, asksForFormat: asksForFormat(request) });
  }

  async #readWhole(
    response: HttpResponse,
    reader: ChunkReader,
    deadlines: AttemptDeadlines,
  ): Promise<BackendEvent[]> {
    const { betweenTokensMs } = this.#options.config.deadlines;
    const arm = () => deadlines.arm("betweenTokens", betweenTokensMs);
    arm();
    const text = await readText(response, ANSWER_BYTES_MAX, arm);
    if (text === null) throw tooLong();
    const events: BackendEvent[] = [];
    reader.take(text, "", events);
    reader.end(events, true);
    return events;
  }

  /**
   * Reads an event stream to `[DONE]`, or to its end when a server leaves that
   * out. Once every choice is finished a stream that breaks off is complete too:
   * the client has all of its answer, and usage is estimated.
   */
  async *#readEvents(
    request: ChatRequest,
    response: HttpResponse,
    reader: ChunkReader,
    deadlines: AttemptDeadlines,
  ): AsyncGenerator<readonly BackendEvent[], void, void> {
    const { betweenTokensMs } = this.#options.config.deadlines;
    // A whole answer is kept in memory.
    const bytesMax = request.stream ? Infinity : ANSWER_BYTES_MAX;
    let events: BackendEvent[] = [];
    let bytes = 0;
    let isProgress = false;
    let isDone = false;
    /** The server has said that it is done, and has not just stopped. */
    let isWhole = false;
    let hasYielded = false;
    const parser = new SseParser({
      lineCharsMax: STREAM_LIMITS.lineBytesMax,
      onEvent(data, name) {
        if (isDone || data === "") return;
        isProgress = true;
        if (data.length < 16 && data.trim() === DONE) isDone = isWhole = true;
        else reader.take(data, name, events);
      },
    });
    const takePiece = (piece: Uint8Array | null) => {
      if (piece !== null) {
        bytes += piece.length;
        if (bytes > bytesMax) throw tooLong();
        return parser.push(piece);
      }
      const rest = parser.end();
      // Without its blank line an event may be cut: then the end of the stream, not the event, is at fault.
      if (rest?.trim() === DONE) isWhole = true;
      else if (rest !== null && isJson(rest)) reader.take(rest, "", events);
      isDone = true;
    };
    while (!isDone) {
      events = [];
      isProgress = false;
      let failure: unknown;
      try {
        try {
          takePiece(await response.read());
        } catch (error) {
          if (!reader.isFinished || !isCut(error)) throw error;
          isDone = true;
        }
        if (isDone) {
          reader.end(events, isWhole);
          response.release();
        }
      } catch (error) {
        failure = error instanceof SseLimitError
          ? invalidAnswer(error.message)
          : error;
      }
      // Before anything was passed on, another backend may still answer.
      if (events.length > 0 && (failure === undefined || hasYielded)) {
        hasYielded = true;
        deadlines.rest();
        yield events;
      }
      if (failure !== undefined) throw failure;
      if (!isProgress) continue;
      if (reader.isFinished) {
        const waitMs = Math.min(betweenTokensMs, AFTER_FINISH_MS);
        deadlines.arm("afterFinish", waitMs);
      } else if (reader.hasBegun) {
        deadlines.arm("betweenTokens", betweenTokensMs);
      }
    }
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

/**
 * Reads a body to its end as UTF-8 text and lets the response go. Null, and the
 * connection closed, if it is longer than `bytesMax`. `onPiece` is told of each
 * piece. Rejects like {@link HttpResponse.read}.
 */
async function readText(
  response: HttpResponse,
  bytesMax: number,
  onPiece: () => void,
): Promise<string | null> {
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const piece = await response.read();
    if (piece === null) break;
    bytes += piece.length;
    if (bytes > bytesMax) {
      response.close();
      return null;
    }
    text += decoder.decode(piece, { stream: true });
    onPiece();
  }
  response.release();
  return text + decoder.decode();
}

function tooLong(): UpstreamError {
  return invalidAnswer(`Answer over ${ANSWER_BYTES_MAX} bytes`);
}

/** Whether an answer broke off or fell silent, as opposed to saying something wrong. */
function isCut(error: unknown): boolean {
  return error instanceof UpstreamError &&
    /^(truncated|timeout|deadline)$/.test(error.fault);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

type Batch = readonly BackendEvent[];

/** Runs a request for one choice until `signal` aborts. */
type RunOne = (
  request: ChatRequest,
  signal: AbortSignal,
) => AsyncIterable<Batch>;

/**
 * Asks a server that gives one choice per request once for each choice, all at
 * the same time, and joins the answers: choices get their numbers, usage is added
 * up. If one fails, all are stopped and the whole answer fails with its error.
 * With a seed each choice gets another one, or all would be the same.
 */
async function* sideBySide(
  request: ChatRequest,
  signal: AbortSignal,
  runOne: RunOne,
): AsyncGenerator<Batch, void, void> {
  const controller = new AbortController();
  const stop = AbortSignal.any([signal, controller.signal]);
  const iterators = Array.from({ length: request.n }, (_, index) => {
    const { seed } = request;
    const one = {
      ...request,
      n: 1,
      ...(seed === undefined ? {} : { seed: seed + index }),
    };
    return runOne(one, stop)[Symbol.asyncIterator]();
  });
  const advance = (index: number) => {
    const next = Promise.resolve(iterators[index]?.next())
      .then((step) => ({ index, step }));
    // It may fail while nobody waits for it; the next race throws the error.
    next.catch(() => {});
    return next;
  };
  const pending = new Map(iterators.map((_, index) => [index, advance(index)]));
  let usage: Usage | null = null;
  let hasFingerprint = false;
  try {
    while (pending.size > 0) {
      const { index, step } = await Promise.race(pending.values());
      if (step === undefined || step.done) {
        pending.delete(index);
        continue;
      }
      pending.set(index, advance(index));
      const events: BackendEvent[] = [];
      for (const event of step.value) {
        if (event.type === "usage") usage = sum(usage, event.usage);
        else if (event.type !== "fingerprint") events.push({ ...event, index });
        else if (!hasFingerprint) {
          hasFingerprint = true;
          events.push(event);
        }
      }
      if (events.length > 0) yield events;
    }
    if (usage !== null) yield [{ type: "usage", usage }];
  } finally {
    controller.abort(new Error("Another choice ended the answer"));
    await Promise.allSettled(pending.values());
    await Promise.allSettled(iterators.map((each) => each.return?.()));
  }
}

function sum(a: Usage | null, b: Usage): Usage {
  if (a === null) return b;
  const total: Usage = {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
  };
  const cached = (a.prompt_tokens_details?.cached_tokens ?? 0) +
    (b.prompt_tokens_details?.cached_tokens ?? 0);
  if (cached > 0) total.prompt_tokens_details = { cached_tokens: cached };
  const reasoning = (a.completion_tokens_details?.reasoning_tokens ?? 0) +
    (b.completion_tokens_details?.reasoning_tokens ?? 0);
  if (reasoning > 0) {
    total.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return total;
}
