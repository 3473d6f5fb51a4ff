/**
 * The answer to one attempt, as the lines that an edge forwards, with all rules about
 * its shape that SDKs depend on.
 */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type {
  ChatCompletion,
  ChunkDelta,
  FinishReason,
  Logprobs,
  ResponseMessage,
  Usage,
} from "@gateway/shared/openai/completion";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import type { HeldBytes } from "@gateway/shared/worker/answer_memory";
import type { JobCall } from "@gateway/shared/worker/job";
import { ToolCallFragments } from "./tool_calls.ts";

/**
 * Characters of the request id in the id of a tool call: some servers accept at most 40
 * in total.
 */
const CALL_ID_CHARS = 24;
const TEXTS = ["content", "reasoning_content", "refusal"] as const;

/** One of the `n` answers to a request, while it is read. */
export interface Choice {
  readonly index: number;
  /** The server has sent something for it. */
  hasBegun: boolean;
  finishReason: FinishReason | null;
  readonly calls: ToolCallFragments;
  /** Filled for a whole response only; a stream keeps nothing. */
  message: ResponseMessage;
  logprobs: { content: unknown[] | null; refusal: unknown[] | null } | null;
}

/** What a {@link ChatAnswer} is made of. */
export interface ChatAnswerOptions {
  /** The validated request of the client. */
  request: ChatRequest;
  /** Takes the lines of the answer. */
  call: JobCall;
  /** Learns of the first delta or finish reason, and of the first line passed on. */
  progress: AttemptProgress;
  /** Counts the bytes of a whole answer. */
  held: HeldBytes;
}

/** Collects the output of a model and passes it on as lines. */
export class ChatAnswer {
  readonly request: ChatRequest;
  readonly call: JobCall;
  readonly progress: AttemptProgress;
  readonly held: HeldBytes;
  /**
   * Identifies the server's build and weights, if it has one. Must be set before the
   * first delta.
   */
  fingerprint: string | null = null;
  readonly choices: readonly Choice[];
  #lines = "";
  #prefix = "";
  #deltas = 0;

  constructor({ request, call, progress, held }: ChatAnswerOptions) {
    this.request = request;
    this.call = call;
    this.progress = progress;
    this.held = held;
    const idPrefix = `call_${call.requestId.slice(0, CALL_ID_CHARS)}`;
    this.choices = Array.from({ length: request.n }, (_, index): Choice => ({
      index,
      hasBegun: false,
      finishReason: null,
      calls: new ToolCallFragments(`${idPrefix}_${index}`),
      message: { role: "assistant", content: null, refusal: null },
      logprobs: null,
    }));
  }

  /**
   * Adds a delta to a choice. Each call counts as one token until the usage is known.
   */
  addDelta(
    choice: Choice,
    delta: ChunkDelta,
    logprobs?: Logprobs,
  ): void {
    this.#begin(delta.tool_calls === undefined ? null : choice);
    this.#deltas += 1;
    if (!this.request.stream) return collect(choice, delta, logprobs);
    const probabilities = logprobs && JSON.stringify(logprobs);
    this.#addChunk(choice.index, JSON.stringify(delta), {
      logprobs: probabilities,
    });
  }

  /** Ends a choice; its last chunk carries the reason. */
  finish(choice: Choice, reason: FinishReason): void {
    this.#begin(null);
    choice.finishReason = reason;
    this.#addChunk(choice.index, "{}", { reason: `"${reason}"` });
  }

  /** Passes on what has been collected; returns what {@link JobCall.write} returns. */
  flush(tokens: number = this.#deltas): Promise<void> | undefined {
    const lines = this.#lines;
    this.#lines = "";
    if (lines !== "") this.progress.hasSent = true;
    return this.call.write(lines, tokens);
  }

  /** Passes on the last lines, once every choice has finished; returns the same. */
  end(usage: Usage): Promise<void> | undefined {
    if (!this.request.stream) this.#lines = this.#wholeResponse(usage);
    else if (this.request.include_usage) {
      this.#lines += `${this.#prefix}],"usage":${JSON.stringify(usage)}}\n`;
    }
    return this.flush(usage.completion_tokens);
  }

  /**
   * At the first delta or finish reason, adds the role chunk of every choice, in order.
   * Some SDKs consider an answer complete once every choice seen so far has finished,
   * so all appear at once. `calling` is the choice that starts with a tool call.
   */
  #begin(calling: Choice | null): void {
    if (this.#prefix !== "") return;
    const { requestId, created } = this.call;
    this.#prefix = `{"id":"chatcmpl-${requestId}"` +
      `,"object":"chat.completion.chunk","created":${created}` +
      `,"model":${JSON.stringify(this.request.model)}` +
      `,"system_fingerprint":${JSON.stringify(this.fingerprint)},"choices":[`;
    this.progress.onBegun();
    for (const choice of this.choices) {
      const content = choice === calling ? "null" : `""`;
      const delta = `{"role":"assistant","content":${content}}`;
      this.#addChunk(choice.index, delta);
    }
  }

  /** Adds a line for one choice. All values are JSON texts. */
  #addChunk(
    index: number,
    delta: string,
    { logprobs = "null", reason = "null" }: {
      logprobs?: string | undefined;
      reason?: string;
    } = {},
  ): void {
    if (!this.request.stream) return;
    const usage = this.request.include_usage ? `,"usage":null` : "";
    this.#lines += `${this.#prefix}{"index":${index},"delta":${delta}` +
      `,"logprobs":${logprobs},"finish_reason":${reason}}]${usage}}\n`;
  }

  #wholeResponse(usage: Usage): string {
    const completion: ChatCompletion = {
      id: `chatcmpl-${this.call.requestId}`,
      object: "chat.completion",
      created: this.call.created,
      model: this.request.model,
      choices: this.choices.map(({ index, message, logprobs, ...choice }) => {
        // Content is null beside tool calls or a refusal; an answer without any text is
        // "".
        if (message.tool_calls === undefined && message.refusal === null) {
          message.content ??= "";
        }
        const finish_reason = choice.finishReason ?? "stop";
        return { index, message, logprobs, finish_reason };
      }),
      usage,
      system_fingerprint: this.fingerprint,
    };
    return JSON.stringify(completion) + "\n";
  }
}

/** Adds a delta to the message of a whole response. */
function collect(
  choice: Choice,
  delta: ChunkDelta,
  logprobs?: Logprobs,
): void {
  const { message } = choice;
  for (const member of TEXTS) {
    const text = delta[member];
    if (text) message[member] = (message[member] ?? "") + text;
  }
  for (const { index, id = "", function: called } of delta.tool_calls ?? []) {
    const { name = "", arguments: text = "" } = called;
    message.tool_calls ??= [];
    const calls = message.tool_calls;
    const empty = { name, arguments: "" };
    calls[index] ??= { id, type: "function", function: empty };
    calls[index].function.arguments += text;
  }
  if (logprobs === undefined) return;
  choice.logprobs ??= { content: null, refusal: null };
  const collected = choice.logprobs;
  for (const member of ["content", "refusal"] as const) {
    const more = logprobs[member];
    if (!Array.isArray(more)) continue;
    // A long answer has thousands of entries, so the list is extended in place.
    collected[member] ??= [];
    for (const each of more) collected[member].push(each);
  }
}
