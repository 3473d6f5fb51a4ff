/** Runs chat completions on the only kind of backend: any server with OpenAI's API. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type * as chat from "@gateway/shared/openai/chat";
import { usageOfTokens } from "@gateway/shared/openai/completion";
import { noteOddities, readStart } from "@gateway/shared/upstream/body_form";
import { invalidAnswer } from "@gateway/shared/upstream/http/errors";
import { parseJson } from "@gateway/shared/upstream/json";
import {
  ModelServer,
  type ModelServerOptions,
  type ServerResponse,
} from "@gateway/shared/upstream/model_server";
import { SseParser } from "@gateway/shared/upstream/http/sse_parser";
import { corruptedRequest } from "@gateway/shared/worker/jobs/job_errors";
import type {
  JobContext,
  JobCost,
} from "@gateway/shared/worker/jobs/job_ports";
import type { AnswerMemory } from "@gateway/shared/worker/jobs/memory";
import type { Pool } from "@gateway/shared/worker/service";
import { ChatAnswer, type Choice } from "./answer/answer.ts";
import { type CacheSalt, createCacheSalt } from "../requests/cache_salt.ts";
import { ChunkReader } from "./chunk_reader.ts";
import { encodeRequestBody } from "../requests/request_body.ts";
import {
  armNext,
  isCut,
  LONG_EVENT_MIN,
  mayPauseAfter,
} from "./answer_stream.ts";
import type { StatedUsage } from "./answer/usage.ts";

/** The largest whole answer, sent as one body or as events. A million tokens fit. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
const DONE = "[DONE]";

/** Whether the fields are there that this service relies on: the edge checks them. */
const isChatRequest = (request: JobRequest): request is chat.ChatRequest =>
  "messages" in request && Array.isArray(request.messages) &&
  "include_usage" in request && typeof request.include_usage === "boolean" &&
  "n" in request && typeof request.n === "number";

/**
 * Runs a request until its answer is complete. Rejects like {@link BackendPool.run}.
 */
export async function runCompletion(
  request: JobRequest,
  context: JobContext,
  { pool, memory }: { pool: Pool<OpenAiBackend>; memory: AnswerMemory },
): Promise<JobCost> {
  if (!isChatRequest(request)) throw corruptedRequest();
  const heldBytes = memory.openAnswer();
  let room: Promise<void> | undefined;
  try {
    const usage = await pool.run(context, async (backend, progress) => {
      heldBytes.release(); // What a failed attempt held is gone.
      const answer = new ChatAnswer({ request, context, progress, heldBytes });
      const usage = await backend.complete(answer);
      progress.usage = usage.counts;
      room = answer.end(usage);
      return usage.counts;
    }, speaksChat);
    if (!request.stream) await room;
    return { usage, tokens: usage.completion_tokens };
  } finally {
    heldBytes.release();
  }
}

/** What an {@link OpenAiBackend} needs to know. */
export interface OpenAiBackendOptions extends ModelServerOptions {
  /** The key of the salts of accounts; null for a random one. */
  cacheSaltKey?: string | null;
}

const speaksChat = ({ config }: OpenAiBackend) =>
  config.dialect.speaks.includes("chat");

/** One call of `complete` is one attempt; nothing is repeated. */
export class OpenAiBackend extends ModelServer {
  /** Null if the server's cache does not keep accounts apart. */
  readonly #cacheSalt: CacheSalt | null;
  readonly #encode = this.encoder("/chat/completions", {
    accept: "text/event-stream, application/json",
  });

  /** Throws an Error if the key of the server cannot be sent. */
  constructor({ cacheSaltKey = null, ...options }: OpenAiBackendOptions) {
    super(options);
    this.#cacheSalt = options.config.cache_salt === "account"
      ? createCacheSalt(cacheSaltKey)
      : null;
  }

  /**
   * Reads the server's response into `answer`, and returns its usage. A server of one
   * choice per request gets one request for each.
   */
  complete(answer: ChatAnswer): Promise<StatedUsage> {
    const { request, choices, context } = answer;
    const { choices_per_request: perRequest } = this.config.dialect;
    return request.n === 1 || perRequest === "many"
      ? this.#ask({ request, choices, answer, signal: context.signal })
      : this.#askForEach(answer);
  }

  /**
   * Sends a request for each choice, all at once; if one fails, all are stopped. Each
   * gets a seed of its own, or they would be the same.
   */
  async #askForEach(answer: ChatAnswer): Promise<StatedUsage> {
    const { request, choices, context } = answer;
    const controller = new AbortController();
    const signal = AbortSignal.any([context.signal, controller.signal]);
    const attempts = choices.map((choice) => {
      const one = { ...request, n: 1 };
      if (one.seed !== undefined) one.seed += choice.index;
      return this.#ask({ request: one, choices: [choice], answer, signal });
    });
    try {
      return (await Promise.all(attempts)).reduce(sum);
    } finally {
      controller.abort(new Error("Another choice ended the answer"));
      await Promise.allSettled(attempts);
    }
  }

  /** Sends one request, which fills `choices` of the answer. */
  #ask(
    { request, choices, answer, signal }: Asking,
  ): Promise<StatedUsage> {
    const { context } = answer;
    const cacheSalt = this.#cacheSalt?.(context.account ?? "");
    const body = encodeRequestBody(request, this.config, { cacheSalt });
    const mustBeginSoon = request.stream;
    const exchange = {
      encode: this.#encode,
      body,
      context,
      signal,
      mustBeginSoon,
    };
    return this.exchange(exchange, async (response) => {
      const reader = new ChunkReader({
        answer,
        choices,
        redact: this.redact,
        sentBytes: body.length,
      });
      try {
        return await this.#read(response, { reader, answer });
      } finally {
        reader.reportOddities();
      }
    });
  }

  /** Reads a response, events or one body, to its end. */
  async #read(
    response: ServerResponse,
    { reader, answer }: Omit<EventReading, "start">,
  ): Promise<StatedUsage> {
    const { request } = answer;
    const { connection } = response;
    const bound = () => {
      connection.bytesLeft = ANSWER_BYTES_MAX;
      connection.onPiece = (bytes) => answer.heldBytes.grow(bytes);
    };
    // A whole answer is kept in memory, so its size is bounded.
    if (!request.stream) bound();
    const { bytes: start, form } = await readStart(response);
    noteOddities(response, { form, progress: answer.progress });
    if (form === "page") {
      throw invalidAnswer("A web page instead of an answer");
    }
    if (form === "events") {
      const reading = { reader, answer, start };
      const isWhole = await this.#readEvents(response, reading);
      return reader.end({ isWhole });
    }
    answer.expectOneBody();
    if (request.stream) bound();
    const { between_tokens_ms: betweenTokensMs } = this.config.deadlines;
    const rest = await connection.readText(betweenTokensMs, start);
    reader.take(rest, "");
    if (reader.skipped > 0) throw invalidAnswer("Not a JSON object");
    return reader.end({ isWhole: true });
  }

  /**
   * Reads events up to `[DONE]`, and says whether it came. A stream that breaks off
   * after every choice has finished is whole, too. Anything that comes, even a comment,
   * shows that the server is alive.
   */
  async #readEvents(
    response: ServerResponse,
    { reader, answer, start }: EventReading,
  ): Promise<boolean> {
    const { connection, deadlines } = response;
    let hasData = false;
    let isDone = false;
    let heldChars = 0;
    const parser = new SseParser((data, name) => {
      if (isDone || data === "") return;
      hasData = true;
      if (data.length < 16 && data.trim() === DONE) isDone = true;
      else reader.take(data, name);
    });
    try {
      let piece: Uint8Array | null = start;
      while (!isDone) {
        if (piece === null) {
          const rest = parser.end();
          // An event without its blank line may be cut. If so, report the end of the
          // stream, not the event.
          if (rest.trim() === DONE) isDone = true;
          else if (parseJson(rest) !== undefined) reader.take(rest, "");
          break;
        }
        hasData = false;
        parser.push(piece);
        // A long event, such as an image, is in memory until it is complete.
        const { pendingChars } = parser;
        if (pendingChars >= LONG_EVENT_MIN || heldChars > 0) {
          const more = answer.request.stream ? pendingChars - heldChars : 0;
          heldChars += more;
          deadlines.rest();
          if (more > 0) await answer.heldBytes.grow(more);
          else answer.heldBytes.shrink(-more);
        }
        if (isDone) break;
        const mayPause = answer.request.stream && hasData &&
          mayPauseAfter(piece, reader);
        const room = answer.flush() ?? (mayPause && answer.context.pause());
        if (room) {
          deadlines.rest();
          await room;
          deadlines.throwIfEnded();
        }
        armNext(response, reader);
        piece = await connection.read();
      }
    } catch (error) {
      if (!reader.isFinished || !isCut(error)) throw error;
    } finally {
      // If nothing was passed on, another backend may still answer.
      if (answer.progress.hasSent) void answer.flush();
    }
    return isDone;
  }
}

/** One request to a server, for some choices of an answer. */
interface Asking {
  request: chat.ChatRequest;
  choices: readonly Choice[];
  answer: ChatAnswer;
  signal: AbortSignal;
}

/** Where events go, and the first bytes of them. */
interface EventReading {
  reader: ChunkReader;
  answer: ChatAnswer;
  start: Uint8Array | null;
}

/**
 * Details are not summed: few servers that return one choice per request report any.
 */
function sum(a: StatedUsage, b: StatedUsage): StatedUsage {
  const counts = usageOfTokens(
    a.counts.prompt_tokens + b.counts.prompt_tokens,
    a.counts.completion_tokens + b.counts.completion_tokens,
  );
  return { counts, members: { ...counts } };
}
