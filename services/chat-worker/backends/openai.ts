/** The one kind of backend: any server that speaks OpenAI's chat completions. */
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { MonotonicNow, WallNow } from "@gateway/shared/process/clock";
import type { Answer, CompletionCall } from "./answer.ts";
import { AttemptDeadlines } from "./attempt_deadlines.ts";
import { ChunkReader } from "./chunk_reader.ts";
import { invalidAnswer, UpstreamError } from "./errors.ts";
import {
  type Connect,
  createConnect,
  HttpClient,
  type HttpConnection,
} from "./http_client.ts";
import type { ResponseHead } from "./http_framing.ts";
import { parseJson } from "./json.ts";
import type { PoolBackend } from "./pool.ts";
import { createRedact, type Redact } from "./redact.ts";
import { readRetryAfter, refusalError } from "./refusal.ts";
import {
  createRequestEncoder,
  type EncodeRequest,
  encodeRequestBody,
} from "./request.ts";
import { SseParser } from "./sse_parser.ts";

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
 * One call of `complete` is one attempt; nothing is repeated. Its errors are
 * `UpstreamError`s, or the reason of the call's signal; no message contains the
 * key, the address or a header.
 */
export class OpenAiBackend implements PoolBackend {
  readonly config: BackendConfig;
  readonly #options: OpenAiBackendOptions;
  readonly #client: HttpClient;
  readonly #encodeRequest: EncodeRequest;
  readonly #redact: Redact;

  /** Throws an Error if the configuration cannot be used. */
  constructor(options: OpenAiBackendOptions) {
    const { config, apiKey, caCerts } = options;
    const url = new URL(`${config.baseUrl}/chat/completions`);
    this.config = config;
    this.#options = options;
    this.#client = new HttpClient(
      options.connect ?? createConnect(url, caCerts),
      config.deadlines.connectMs,
    );
    this.#encodeRequest = createRequestEncoder(url, apiKey, config.headers);
    this.#redact = createRedact({
      secrets: [apiKey ?? "", ...Object.values(config.headers)],
      baseUrl: url,
      model: { theirs: config.model, ours: options.publicModel },
    });
  }

  /**
   * Puts what the server says into `answer`, all but its end. Where the server
   * gives one choice per request, it is asked once for each, all at the same time;
   * if one fails, all are stopped. With a seed each choice gets another one, or all
   * would be the same.
   */
  async complete(
    request: ChatRequest,
    answer: Answer,
    call: CompletionCall,
  ): Promise<void> {
    const { choices_per_request: choices } = this.config.dialect;
    if (request.n === 1 || choices === "many") {
      return await this.#attempt(request, 0, answer, call);
    }
    const controller = new AbortController();
    const signal = AbortSignal.any([call.signal, controller.signal]);
    const attempts = Array.from({ length: request.n }, (_, index) => {
      const one = { ...request, n: 1 };
      if (one.seed !== undefined) one.seed += index;
      return this.#attempt(one, index, answer, { ...call, signal });
    });
    try {
      await Promise.all(attempts);
    } finally {
      controller.abort(new Error("Another choice ended the answer"));
      await Promise.allSettled(attempts);
    }
  }

  close(): void {
    this.#client.close();
  }

  async #attempt(
    request: ChatRequest,
    firstChoice: number,
    answer: Answer,
    call: CompletionCall,
  ): Promise<void> {
    const { now, newToolCallId } = this.#options;
    const { config } = this;
    const { totalMs } = config.deadlines;
    const deadlines = new AttemptDeadlines(now, call.signal, totalMs);
    let response: HttpConnection | null = null;
    let isDone = false;
    try {
      deadlines.throwIfEnded();
      response = await this.#client.connection(deadlines);
      if (!request.stream) deadlines.rest();
      else deadlines.arm("firstToken", config.deadlines.firstTokenMs);
      const body = encodeRequestBody(request, config);
      const head = await response.exchange(
        this.#encodeRequest(body, call),
        deadlines,
      );
      if (head.status !== 200) {
        throw await this.#refusal(head, response, deadlines);
      }
      if (!/^(identity)?$/.test(head.contentEncoding)) {
        throw invalidAnswer("A content coding that was not asked for");
      }
      const reader = new ChunkReader({
        request,
        answer,
        firstChoice,
        newToolCallId,
        redact: this.#redact,
      });
      if (isEventStream(head, request.stream)) {
        // A whole answer is kept in memory.
        const bytesMax = request.stream ? Infinity : ANSWER_BYTES_MAX;
        await this.#readEvents(response, reader, answer, deadlines, bytesMax);
      } else {
        const { betweenTokensMs } = config.deadlines;
        const arm = () => deadlines.arm("betweenTokens", betweenTokensMs);
        const text = await readText(response, ANSWER_BYTES_MAX, arm);
        if (text === null) throw tooLong();
        reader.take(text, "");
        reader.end(true);
      }
      isDone = true;
    } finally {
      deadlines.dispose();
      void response?.release(isDone);
    }
  }

  async #refusal(
    { status, retryAfter, retryAfterMs }: ResponseHead,
    response: HttpConnection,
    deadlines: AttemptDeadlines,
  ): Promise<UpstreamError> {
    const { wallNow } = this.#options;
    const waitMs = readRetryAfter(retryAfter, retryAfterMs, wallNow);
    deadlines.arm("betweenTokens", this.config.deadlines.connectMs);
    let text: string | null = null;
    try {
      text = await readText(response, REFUSAL_BYTES_MAX, () => {});
    } catch (error) {
      // It was cut: the status says enough, and only an abort changes what to answer.
      if (!(error instanceof UpstreamError)) throw error;
    }
    return refusalError({
      status,
      body: parseJson(text ?? ""),
      ...(waitMs === undefined ? {} : { retryAfterMs: waitMs }),
    }, this.#redact);
  }

  /**
   * Reads an event stream to `[DONE]`, or to its end when a server leaves that
   * out. Once every choice is finished a stream that breaks off is complete too:
   * the client has all of its answer, and usage is estimated.
   */
  async #readEvents(
    response: HttpConnection,
    reader: ChunkReader,
    answer: Answer,
    deadlines: AttemptDeadlines,
    bytesMax: number,
  ): Promise<void> {
    const { betweenTokensMs } = this.config.deadlines;
    let bytes = 0;
    let isProgress = false;
    let isDone = false;
    /** The server has said that it is done, and has not just stopped. */
    let isWhole = false;
    const parser = new SseParser((data, name) => {
      if (isDone || data === "") return;
      isProgress = true;
      if (data.length < 16 && data.trim() === DONE) isDone = isWhole = true;
      else reader.take(data, name);
    });
    const takePiece = (piece: Uint8Array | null) => {
      if (piece !== null) {
        bytes += piece.length;
        if (bytes > bytesMax) throw tooLong();
        return parser.push(piece);
      }
      const rest = parser.end();
      // Without its blank line an event may be cut: then the end of the stream, not the event, is at fault.
      if (rest.trim() === DONE) isWhole = true;
      else if (parseJson(rest) !== undefined) reader.take(rest, "");
      isDone = true;
    };
    while (!isDone) {
      isProgress = false;
      try {
        takePiece(await response.read());
      } catch (error) {
        if (!reader.isFinished || !isCut(error)) {
          // Before anything was passed on, another backend may still answer.
          if (answer.hasSent) void answer.flush();
          throw error;
        }
        isDone = true;
      }
      if (isDone) break;
      const room = answer.flush();
      if (room !== undefined) {
        deadlines.rest();
        await room;
        deadlines.throwIfEnded();
      } else if (!isProgress) continue;
      if (reader.isFinished) {
        const waitMs = Math.min(betweenTokensMs, AFTER_FINISH_MS);
        deadlines.arm("afterFinish", waitMs);
      } else if (reader.hasBegun) {
        deadlines.arm("betweenTokens", betweenTokensMs);
      }
    }
    if (answer.hasSent) void answer.flush();
    reader.end(isWhole);
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
 * Reads a body to its end as UTF-8 text. Null if it is longer than `bytesMax`.
 * `onPiece` is called before each read. Rejects like {@link HttpConnection.read}.
 */
async function readText(
  response: HttpConnection,
  bytesMax: number,
  onPiece: () => void,
): Promise<string | null> {
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    onPiece();
    const piece = await response.read();
    if (piece === null) break;
    bytes += piece.length;
    if (bytes > bytesMax) return null;
    text += decoder.decode(piece, { stream: true });
  }
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
