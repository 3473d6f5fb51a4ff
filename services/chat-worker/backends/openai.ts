/** The only kind of backend: any server with OpenAI's chat completions API. */
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Answer, Choice } from "./answer.ts";
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
import { createRedact, type Redact } from "./redact.ts";
import { refusalError } from "./refusal.ts";
import { createRequestEncoder, encodeRequestBody } from "./request.ts";
import { SseParser } from "./sse_parser.ts";

const KIB = 1024;
/** The largest whole answer, sent as one body or as events. A million tokens fit. */
const ANSWER_BYTES_MAX = 32 * KIB * KIB;
/** The largest body of an error response. A longer one is not quoted. */
const REFUSAL_BYTES_MAX = 64 * KIB;
/** After the last finish reason only usage and `[DONE]` follow, which do not justify a long wait. */
const AFTER_FINISH_MS = 5_000;
const DONE = "[DONE]";

/** Options of {@link OpenAiBackend}. */
export interface OpenAiBackendOptions {
  config: BackendConfig;
  /** The model's name for callers. */
  publicModel: string;
  /** The value of `config.api_key_env`; if null, no credential is sent. */
  apiKey: string | null;
  now: MonotonicNow;
  /** Opens connections. Default: to `config.base_url`. */
  connect?: Connect;
}

/**
 * One call of `complete` is one attempt; nothing is repeated. Its errors are
 * `UpstreamError`s, or the reason of the call's signal; no message contains the
 * key, the address or a header.
 */
export class OpenAiBackend {
  readonly config: BackendConfig;
  readonly #options: OpenAiBackendOptions;
  readonly #client: HttpClient;
  readonly #encodeRequest: ReturnType<typeof createRequestEncoder>;
  readonly #redact: Redact;

  /** Throws an Error if the configuration cannot be used. */
  constructor(options: OpenAiBackendOptions) {
    const { config, apiKey } = options;
    const url = new URL(`${config.base_url}/chat/completions`);
    this.config = config;
    this.#options = options;
    this.#client = new HttpClient(
      options.connect ?? createConnect(url),
      config.deadlines.connect_ms,
    );
    this.#encodeRequest = createRequestEncoder(url, apiKey, config.headers);
    this.#redact = createRedact({
      secrets: [apiKey ?? "", ...Object.values(config.headers)],
      baseUrl: url,
      model: { theirs: config.model, ours: options.publicModel },
    });
  }

  /**
   * Reads the server's response into `answer`, but does not end it, and returns its
   * usage. If the server returns one choice per request, sends one request for each
   * choice, all at the same time; if one fails, all are stopped. With a seed each
   * choice gets a different one, because otherwise all would be the same.
   */
  async complete(answer: Answer): Promise<Usage> {
    const { request, choices, call } = answer;
    if (request.n === 1 || this.config.dialect.choices_per_request === "many") {
      return await this.#attempt(request, choices, answer, call.signal);
    }
    const controller = new AbortController();
    const signal = AbortSignal.any([call.signal, controller.signal]);
    const attempts = choices.map((choice) => {
      const one = { ...request, n: 1 };
      if (one.seed !== undefined) one.seed += choice.index;
      return this.#attempt(one, [choice], answer, signal);
    });
    try {
      return (await Promise.all(attempts)).reduce(sum);
    } finally {
      controller.abort(new Error("Another choice ended the answer"));
      await Promise.allSettled(attempts);
    }
  }

  /** Closes idle connections. Running attempts continue. */
  close(): void {
    this.#client.close();
  }

  async #attempt(
    request: ChatRequest,
    choices: readonly Choice[],
    answer: Answer,
    signal: AbortSignal,
  ): Promise<Usage> {
    const { config } = this;
    const { total_ms: totalMs, between_tokens_ms: betweenTokensMs } =
      config.deadlines;
    const { now } = this.#options;
    const deadlines = new AttemptDeadlines(now, signal, totalMs);
    let response: HttpConnection | null = null;
    let isDone = false;
    try {
      deadlines.throwIfEnded();
      response = await this.#client.connection(deadlines);
      if (!request.stream) deadlines.rest();
      else deadlines.arm("firstToken", config.deadlines.first_token_ms);
      const body = encodeRequestBody(request, config);
      const head = await response.exchange(
        this.#encodeRequest(body, answer.call),
        deadlines,
      );
      if (head.status !== 200) {
        throw await this.#refusal(head, response, deadlines);
      }
      if (!/^(identity)?$/.test(head.contentEncoding)) {
        throw invalidAnswer("Unsupported content coding");
      }
      const reader = new ChunkReader(answer, choices, this.#redact);
      let isWhole = true;
      const isEvents = isEventStream(head, request.stream);
      // A whole answer is kept in memory, so its size is bounded.
      if (!isEvents || !request.stream) response.bytesLeft = ANSWER_BYTES_MAX;
      if (isEvents) {
        isWhole = await this.#readEvents(response, reader, answer, deadlines);
      } else {
        const arm = () => deadlines.arm("betweenTokens", betweenTokensMs);
        reader.take(await readText(response, arm), "");
      }
      const usage = reader.end(isWhole);
      isDone = true;
      return usage;
    } finally {
      deadlines.dispose();
      void response?.release(isDone);
    }
  }

  async #refusal(
    { status, retryAfterMs }: ResponseHead,
    response: HttpConnection,
    deadlines: AttemptDeadlines,
  ): Promise<UpstreamError> {
    deadlines.arm("betweenTokens", this.config.deadlines.connect_ms);
    response.bytesLeft = REFUSAL_BYTES_MAX;
    let text = "";
    try {
      text = await readText(response, () => {});
    } catch (error) {
      // The body was cut or is too long. The status is enough, so only an abort is passed on.
      if (!(error instanceof UpstreamError)) throw error;
    }
    const body = parseJson(text);
    return refusalError({ status, body, retryAfterMs }, this.#redact);
  }

  /**
   * Reads an event stream up to `[DONE]`, or to its end if the server omits that. A
   * stream that breaks off after every choice has finished is complete, too: the
   * client has the whole answer, and the usage is estimated. Returns whether the
   * server sent `[DONE]`.
   */
  async #readEvents(
    response: HttpConnection,
    reader: ChunkReader,
    answer: Answer,
    deadlines: AttemptDeadlines,
  ): Promise<boolean> {
    const { between_tokens_ms: betweenTokensMs } = this.config.deadlines;
    let hasData = false;
    let isDone = false;
    const parser = new SseParser((data, name) => {
      if (isDone || data === "") return;
      hasData = true;
      if (data.length < 16 && data.trim() === DONE) isDone = true;
      else reader.take(data, name);
    });
    try {
      while (!isDone) {
        const piece = await response.read();
        if (piece === null) {
          const rest = parser.end();
          // An event without its blank line may be cut. If so, report the end of the stream, not the event.
          if (rest.trim() === DONE) isDone = true;
          else if (parseJson(rest) !== undefined) reader.take(rest, "");
          break;
        }
        hasData = false;
        parser.push(piece);
        if (isDone) break;
        const room = answer.flush();
        if (room !== undefined) {
          deadlines.rest();
          await room;
          deadlines.throwIfEnded();
        } else if (!hasData) continue; // Comments extend no deadline.
        if (reader.isFinished) {
          const waitMs = Math.min(betweenTokensMs, AFTER_FINISH_MS);
          deadlines.arm("afterFinish", waitMs);
        } else if (reader.hasBegun) {
          deadlines.arm("betweenTokens", betweenTokensMs);
        }
      }
    } catch (error) {
      if (!reader.isFinished || !isCut(error)) throw error;
    } finally {
      // If nothing was passed on, another backend may still answer.
      if (answer.hasSent) void answer.flush();
    }
    return isDone;
  }
}

/** Some servers ignore `stream`, in either direction, and some send no content type. */
function isEventStream(head: ResponseHead, isAskedFor: boolean): boolean {
  if (head.contentType === "text/event-stream") return true;
  if (head.contentType.endsWith("json")) return false;
  if (head.contentType === "text/html") {
    throw invalidAnswer("A web page instead of an answer");
  }
  return isAskedFor;
}

/**
 * Reads a body to its end as UTF-8 text. `onPiece` is called before each read. Rejects
 * like {@link HttpConnection.read}.
 */
async function readText(
  response: HttpConnection,
  onPiece: () => void,
): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    onPiece();
    const piece = await response.read();
    if (piece === null) break;
    text += decoder.decode(piece, { stream: true });
  }
  return text + decoder.decode();
}

/** Details are not summed: few servers that return one choice per request report any. */
function sum(a: Usage, b: Usage): Usage {
  return {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
  };
}

/** Whether an answer broke off or stalled, as opposed to being invalid. */
function isCut(error: unknown): boolean {
  return error instanceof UpstreamError &&
    /^(truncated|timeout|deadline)$/.test(error.fault);
}
