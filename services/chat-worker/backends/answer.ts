/**
 * The answer to one attempt, as the lines that an edge forwards: one chunk per line
 * for a stream, one line with the whole response for a call without `stream`. This
 * file has all rules about the shape of an answer that SDKs depend on.
 */
import type { ChatRequest, ToolCall } from "@gateway/shared/openai/chat";
import type {
  ChatCompletion,
  ChunkDelta,
  FinishReason,
  Logprobs,
  ResponseMessage,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/completion";
import { truncatedAnswer } from "./errors.ts";
import type { ToolCallFragments } from "./tool_calls.ts";

/** What a completion needs in addition to the request. */
export interface CompletionCall {
  /** 32 hex digits, sent to the model server unchanged: llama-cpp-python accepts only UUIDs. */
  requestId: string;
  /** Unix seconds, the same for every attempt. */
  created: number;
  /** Aborted when the answer is no longer needed; the request to the model server must then end within 100 ms. */
  signal: AbortSignal;
  /** W3C trace context, passed on to the model server. */
  traceparent?: string | undefined;
  /**
   * Accepts lines, each ended by `\n`, or none, and the tokens generated so far. If
   * the buffer is full, returns a promise that resolves when there is space again.
   */
  write(lines: string, tokens: number): Promise<void> | undefined;
}

/** The state of one of the `n` choices. */
export interface Choice {
  readonly index: number;
  /** The server has sent something for it. */
  hasBegun: boolean;
  finishReason: FinishReason | null;
  /** Null until it calls a tool. */
  calls: ToolCallFragments | null;
  /** Filled for a whole response only; a stream keeps nothing. */
  message: ResponseMessage;
  logprobs: Logprobs | null;
}

/** Collects the output of a model and passes it on as lines. */
export class Answer {
  /** Lines were passed on, so the attempt must not be repeated. */
  hasSent = false;
  /** Identifies the server's build and weights, if it has one. Must be set before the first delta. */
  fingerprint: string | null = null;
  readonly choices: readonly Choice[];
  readonly #request: ChatRequest;
  readonly #call: CompletionCall;
  readonly #onBegun: () => void;
  #lines = "";
  /** The start of every chunk. Empty until the first one. */
  #prefix = "";
  #deltas = 0;
  #usage: Usage | null = null;

  /** `onBegun` is called once, at the first delta or finish reason. */
  constructor(
    request: ChatRequest,
    call: CompletionCall,
    onBegun: () => void = () => {},
  ) {
    this.#request = request;
    this.#call = call;
    this.#onBegun = onBegun;
    this.choices = Array.from({ length: request.n }, (_, index): Choice => ({
      index,
      hasBegun: false,
      finishReason: null,
      calls: null,
      message: { role: "assistant", content: null, refusal: null },
      logprobs: null,
    }));
  }

  /** Adds a delta to a choice. Each call counts as one token until the usage is known. */
  addDelta(choice: Choice, delta: ChunkDelta, logprobs?: Logprobs): void {
    this.#begin(delta.tool_calls === undefined ? null : choice);
    this.#deltas += 1;
    if (!this.#request.stream) return collect(choice, delta, logprobs);
    const probabilities = logprobs === undefined
      ? "null"
      : JSON.stringify(logprobs);
    this.#addChunk(choice.index, JSON.stringify(delta), probabilities);
  }

  /** Ends a choice. */
  finish(choice: Choice, reason: FinishReason): void {
    this.#begin(null);
    choice.finishReason = reason;
    if (!this.#request.stream) return;
    this.#addChunk(choice.index, "{}", "null", `"${reason}"`);
  }

  /** Adds the usage of one request to a model server. */
  addUsage(usage: Usage): void {
    this.#usage = this.#usage === null ? usage : sum(this.#usage, usage);
  }

  /** Passes on what has been collected; returns what {@link CompletionCall.write} returns. */
  flush(tokens: number = this.#deltas): Promise<void> | undefined {
    const lines = this.#lines;
    this.#lines = "";
    if (lines !== "") this.hasSent = true;
    return this.#call.write(lines, tokens);
  }

  /** Passes on the last lines and returns the usage. Throws `upstream_truncated` when something is missing. */
  end(): Usage {
    const usage = this.#usage;
    const isFinished = this.choices.every((each) => each.finishReason !== null);
    if (!isFinished || usage === null) {
      throw truncatedAnswer("Answer without an end");
    }
    if (!this.#request.stream) this.#lines = this.#wholeResponse(usage);
    else if (this.#request.include_usage) {
      this.#lines += `${this.#prefix}],"usage":${JSON.stringify(usage)}}\n`;
    }
    this.flush(usage.completion_tokens);
    return usage;
  }

  /**
   * At the first delta or finish reason, adds the role chunk of every choice, in
   * order. Some SDKs consider an answer complete once every choice seen so far has
   * finished, so all appear at once. `calling` is the choice that starts with a tool call.
   */
  #begin(calling: Choice | null): void {
    if (this.#prefix !== "") return;
    const { requestId, created } = this.#call;
    this.#prefix = `{"id":"chatcmpl-${requestId}"` +
      `,"object":"chat.completion.chunk","created":${created}` +
      `,"model":${JSON.stringify(this.#request.model)}` +
      `,"system_fingerprint":${JSON.stringify(this.fingerprint)},"choices":[`;
    this.#onBegun();
    if (!this.#request.stream) return;
    for (const choice of this.choices) {
      const content = choice === calling ? "null" : `""`;
      this.#addChunk(
        choice.index,
        `{"role":"assistant","content":${content}}`,
      );
    }
  }

  #addChunk(
    index: number,
    delta: string,
    logprobs = "null",
    reason = "null",
  ): void {
    const usage = this.#request.include_usage ? `,"usage":null` : "";
    this.#lines += `${this.#prefix}{"index":${index},"delta":${delta}` +
      `,"logprobs":${logprobs},"finish_reason":${reason}}]${usage}}\n`;
  }

  #wholeResponse(usage: Usage): string {
    const completion: ChatCompletion = {
      id: `chatcmpl-${this.#call.requestId}`,
      object: "chat.completion",
      created: this.#call.created,
      model: this.#request.model,
      choices: this.choices.map(
        ({ finishReason, message, logprobs, index }) => {
          // Content is null beside tool calls or a refusal; an answer without any text is "".
          const { content, tool_calls: calls, refusal } = message;
          const isEmpty = calls === undefined && refusal === null;
          return {
            index,
            message: { ...message, content: content ?? (isEmpty ? "" : null) },
            logprobs,
            finish_reason: finishReason ?? "stop",
          };
        },
      ),
      usage,
      system_fingerprint: this.fingerprint,
    };
    return JSON.stringify(completion) + "\n";
  }
}

/** Adds a delta to a whole response. */
function collect(
  choice: Choice,
  { content, reasoning_content: reasoning, refusal, tool_calls }: ChunkDelta,
  logprobs: Logprobs | undefined,
): void {
  const { message } = choice;
  if (typeof content === "string") {
    message.content = (message.content ?? "") + content;
  }
  if (reasoning !== undefined) {
    message.reasoning_content = (message.reasoning_content ?? "") + reasoning;
  }
  if (refusal !== undefined) {
    message.refusal = (message.refusal ?? "") + refusal;
  }
  if (tool_calls !== undefined) {
    message.tool_calls ??= [];
    for (const each of tool_calls) addFragment(message.tool_calls, each);
  }
  if (logprobs === undefined) return;
  const before = choice.logprobs ?? { content: null, refusal: null };
  choice.logprobs = {
    ...logprobs,
    content: extended(before.content, logprobs.content),
    refusal: extended(before.refusal, logprobs.refusal),
  };
}

function addFragment(
  calls: ToolCall[],
  { index, id, function: { name, arguments: text = "" } }: ToolCallDelta,
): void {
  const call = calls[index] ??= {
    id: "",
    type: "function",
    function: { name: "", arguments: "" },
  };
  if (id !== undefined) call.id = id;
  if (name !== undefined) call.function.name = name;
  call.function.arguments += text;
}

/** A long answer has thousands of entries, so the list is extended in place. */
function extended(list: unknown, more: unknown): unknown {
  if (!Array.isArray(more)) return list;
  if (!Array.isArray(list)) return [...more];
  for (const each of more) list.push(each);
  return list;
}

/** Details are not summed: few servers that return one choice per request report any. */
function sum(a: Usage, b: Usage): Usage {
  return {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
  };
}
