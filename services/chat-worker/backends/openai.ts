/** Runs chat completions on the only kind of backend: any server with OpenAI's API. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { Dialect } from "@gateway/shared/models/dialects";
import type * as chat from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import type { ResponseHead } from "@gateway/shared/upstream/http_framing";
import { invalidAnswer, UpstreamError } from "@gateway/shared/upstream/errors";
import {
  isJsonObject,
  type JsonObject,
  parseJson,
} from "@gateway/shared/upstream/json";
import {
  ModelServer,
  type ServerResponse,
} from "@gateway/shared/upstream/model_server";
import { SseParser } from "@gateway/shared/upstream/sse_parser";
import {
  corruptedRequest,
  type JobCall,
  type JobCost,
} from "@gateway/shared/worker/job";
import type { AnswerMemory } from "@gateway/shared/worker/answer_memory";
import type { Pool } from "@gateway/shared/worker/service";
import * as z from "zod";
import { ChatAnswer, type Choice } from "./answer.ts";
import { ChunkReader } from "./chunk_reader.ts";

/** The largest whole answer, sent as one body or as events. A million tokens fit. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
/**
 * After the last finish reason only usage and `[DONE]` follow, which do not justify a
 * long wait.
 */
const AFTER_FINISH_MS = 5_000;
/** A stream that brings more in one read is a fast one, and does not pause. */
const PAUSE_READ_BYTES_MAX = 4_096;
const DONE = "[DONE]";

/** The fields that this service relies on: the edge has checked them all. */
const reliedOn = z.object({
  messages: z.array(z.unknown()),
  include_usage: z.boolean(),
  n: z.number(),
});

const isChatRequest = (request: JobRequest): request is chat.ChatRequest =>
  reliedOn.safeParse(request).success;

/**
 * Runs a request until its answer is complete. Rejects like {@link BackendPool.run}.
 */
export async function runCompletion(
  request: JobRequest,
  call: JobCall,
  { pool, memory }: { pool: Pool<OpenAiBackend>; memory: AnswerMemory },
): Promise<JobCost> {
  if (!isChatRequest(request)) throw corruptedRequest();
  const held = memory.open();
  let room: Promise<void> | undefined;
  try {
    const usage = await pool.run(call, async (backend, progress) => {
      held.set(0); // What a failed attempt held is gone.
      const answer = new ChatAnswer({ request, call, progress, held });
      const usage = await backend.complete(answer);
      room = answer.end(usage);
      return usage;
    });
    if (!request.stream) await room;
    return { usage, tokens: usage.completion_tokens };
  } finally {
    held.set(0);
  }
}

/** One call of `complete` is one attempt; nothing is repeated. */
export class OpenAiBackend extends ModelServer {
  readonly #encode = this.encoder("/chat/completions", {
    accept: "text/event-stream, application/json",
  });

  /**
   * Reads the server's response into `answer`, and returns its usage. A server of one
   * choice per request gets one request for each, all at once; if one fails, all are
   * stopped. Each gets a seed of its own, or they would be the same.
   */
  async complete(answer: ChatAnswer): Promise<Usage> {
    const { request, choices, call } = answer;
    if (request.n === 1 || this.config.dialect.choices_per_request === "many") {
      const { signal } = call;
      return await this.#ask({ request, choices, answer, signal });
    }
    const controller = new AbortController();
    const signal = AbortSignal.any([call.signal, controller.signal]);
    const exchanges = choices.map((choice) => {
      const one = { ...request, n: 1 };
      if (one.seed !== undefined) one.seed += choice.index;
      return this.#ask({ request: one, choices: [choice], answer, signal });
    });
    try {
      return (await Promise.all(exchanges)).reduce(sum);
    } finally {
      controller.abort(new Error("Another choice ended the answer"));
      await Promise.allSettled(exchanges);
    }
  }

  /** Sends one request, which fills `choices` of the answer. */
  #ask({ request, choices, answer, signal }: {
    request: chat.ChatRequest;
    choices: readonly Choice[];
    answer: ChatAnswer;
    signal: AbortSignal;
  }): Promise<Usage> {
    const { call } = answer;
    const body = encodeRequestBody(request, this.config);
    const mustBeginSoon = request.stream;
    const sent = { encode: this.#encode, body, call, signal, mustBeginSoon };
    return this.exchange(sent, async (response) => {
      const { head, connection } = response;
      const reader = new ChunkReader(answer, choices, this.redact);
      const isEvents = isEventStream(head, request.stream);
      // A whole answer is kept in memory, so its size is bounded.
      if (!isEvents || !request.stream) {
        const { held } = answer;
        connection.bytesLeft = ANSWER_BYTES_MAX;
        connection.onPiece = (bytes) => held.set(held.bytes + bytes);
      }
      if (isEvents) {
        return reader.end(await this.#readEvents(response, reader, answer));
      }
      const { between_tokens_ms: betweenTokensMs } = this.config.deadlines;
      reader.take(await connection.readText(betweenTokensMs), "");
      return reader.end(true);
    });
  }

  /**
   * Reads events up to `[DONE]`, and says whether it came. A stream that breaks off
   * after every choice has finished is whole, too.
   */
  async #readEvents(
    { connection, deadlines }: ServerResponse,
    reader: ChunkReader,
    answer: ChatAnswer,
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
        const piece = await connection.read();
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
        if (isDone) break;
        const mayPause = answer.request.stream && hasData &&
          reader.hasBegun && !reader.isFinished &&
          piece.length <= PAUSE_READ_BYTES_MAX;
        const room = answer.flush() ?? (mayPause && answer.call.pause());
        if (room) {
          deadlines.rest();
          await room;
          deadlines.throwIfEnded();
        } else if (!hasData) continue; // Comments extend no deadline.
        if (reader.hasBegun) {
          const mostMs = reader.isFinished ? AFTER_FINISH_MS : Infinity;
          const waitMs = Math.min(betweenTokensMs, mostMs);
          deadlines.arm("betweenTokens", waitMs);
        }
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
 * Details are not summed: few servers that return one choice per request report any.
 */
const sum = (a: Usage, b: Usage): Usage => ({
  prompt_tokens: a.prompt_tokens + b.prompt_tokens,
  completion_tokens: a.completion_tokens + b.completion_tokens,
  total_tokens: a.total_tokens + b.total_tokens,
});

/** Whether an answer broke off or stalled, as opposed to being invalid. */
const isCut = (error: unknown) =>
  error instanceof UpstreamError &&
  /^(truncated|timeout|deadline)$/.test(error.fault);

const SAME_FIELDS = [
  "temperature",
  "top_p",
  "presence_penalty",
  "frequency_penalty",
  "seed",
  "stop",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "logprobs",
  "top_logprobs",
] as const satisfies readonly (keyof chat.ChatRequest)[];

/**
 * The body of a request, in the server's dialect. It has only fields that the client
 * sent, since servers refuse unknown ones. Permitted extra fields come first, so that
 * they replace no others. Every stream requests usage.
 */
export function encodeRequestBody(
  request: chat.ChatRequest,
  { model, dialect }: Pick<BackendConfig, "model" | "dialect">,
): string {
  const body: JsonObject = {
    ...request.extra,
    model,
    messages: request.messages.map((each) => spelledOut(each, dialect)),
    stream: request.stream,
  };
  if (request.stream && dialect.stream_usage) {
    body.stream_options = { include_usage: true };
  }
  if (request.n > 1) body.n = request.n;
  for (const field of SAME_FIELDS) {
    if (request[field] !== undefined) body[field] = request[field];
  }
  put(body, { field: dialect.max_tokens_field, value: request.max_tokens });
  put(body, {
    field: dialect.repetition_penalty_field,
    value: request.repetition_penalty,
  });
  const { enable_thinking: isEnabled, thinking_budget: budget } = request;
  if (dialect.thinking_field !== "reasoning_effort") {
    put(body, {
      field: dialect.thinking_field,
      value: isEnabled,
      ours: "enable_thinking",
    });
  } else if (isEnabled !== undefined) {
    body.reasoning_effort ??= isEnabled ? "medium" : "none";
  }
  put(body, {
    field: dialect.thinking_budget_field,
    value: budget,
    ours: "thinking_budget",
  });
  return JSON.stringify(body);
}

/**
 * Adds a field under the server's name for it, if both exist; `ours` is its name in
 * `chat_template_kwargs`.
 */
function put(
  body: JsonObject,
  { field, value, ours = field }: {
    field: string;
    value: unknown;
    ours?: string;
  },
): void {
  if (value === undefined || field === "none") return;
  const given = isJsonObject(body[field]) ? body[field] : {};
  const isKwargs = field === "chat_template_kwargs";
  body[field] = isKwargs ? { ...given, [ours]: value } : value;
}

/**
 * A message that every server accepts: no null content, no empty arguments, `developer`
 * only where supported.
 */
function spelledOut(
  message: chat.ChatMessage,
  dialect: Dialect,
): chat.ChatMessage {
  const { role, content, tool_calls: calls } = message;
  if (role === "developer" && !dialect.developer_role) {
    return { ...message, role: "system" };
  }
  if (calls === undefined && content !== null) return message;
  return {
    ...message,
    content: content ?? "",
    ...(calls === undefined ? {} : { tool_calls: calls.map(withArguments) }),
  };
}

function withArguments(call: chat.ToolCall): chat.ToolCall {
  if (call.function.arguments !== "") return call;
  return { ...call, function: { ...call.function, arguments: "{}" } };
}
