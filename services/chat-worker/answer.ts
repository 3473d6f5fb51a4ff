/**
 * Turns what a backend yields into the lines an edge sends on: one chunk a line
 * for a stream, one whole response for a call without `stream`. All rules that
 * keep every SDK happy about the shape of an answer live here.
 */
import type {
  ChatChoice,
  ChatCompletion,
  ChatRequest,
  ChunkDelta,
  FinishReason,
  Logprobs,
  ResponseMessage,
  ToolCall,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { BackendEvent } from "./backends/backend.ts";

/** What every chunk of one answer has in common. */
export interface AnswerIdentity {
  /** `chatcmpl-…`, the same in all chunks and on a second attempt. */
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
  fingerprint: string | null;
}

/** Collects events and gives out lines. */
export interface AnswerEncoder {
  /** Lines for these events, each ended by `\n`; empty when there is nothing to send yet. */
  push(events: readonly BackendEvent[]): string;
  /** The last lines, once the backend is done. Throws when the backend left something out. */
  finish(): string;
  /** Tokens produced so far: what the backend counted, until then one per delta. */
  readonly completionTokens: number;
  /** What the backend counted, once it said so. */
  readonly usage: Usage | null;
}

/** The encoder that fits the request. */
export function createAnswerEncoder(
  request: ChatRequest,
  identity: AnswerIdentity,
): AnswerEncoder {
  return request.stream
    ? new ChunkEncoder(request, identity)
    : new WholeEncoder(request, identity);
}

/** Counts tokens and finishes, and refuses an answer that lacks either. */
class AnswerProgress {
  usage: Usage | null = null;
  #deltas = 0;
  readonly #finished: (FinishReason | null)[];

  constructor(choices: number) {
    this.#finished = new Array<FinishReason | null>(choices).fill(null);
  }

  get completionTokens(): number {
    return this.usage?.completion_tokens ?? this.#deltas;
  }

  countDelta(): void {
    this.#deltas += 1;
  }

  setFinish(index: number, reason: FinishReason): void {
    if (index >= this.#finished.length) {
      throw new ApiError(
        "upstream_invalid",
        "The model server answered with more choices than were asked for.",
      );
    }
    this.#finished[index] = reason;
  }

  /** The finish reason of each choice and the usage, or the error of an incomplete answer. */
  complete(): { reasons: FinishReason[]; usage: Usage } {
    const reasons: FinishReason[] = [];
    for (const reason of this.#finished) {
      if (reason !== null) reasons.push(reason);
    }
    if (reasons.length < this.#finished.length || this.usage === null) {
      throw new ApiError(
        "upstream_truncated",
        "The model server ended its answer early.",
      );
    }
    return { reasons, usage: this.usage };
  }
}

/** Encodes a stream: role chunks of all choices first, then deltas, finishes and, if asked for, usage. */
class ChunkEncoder implements AnswerEncoder {
  readonly #progress: AnswerProgress;
  readonly #identity: AnswerIdentity;
  #prefix: string;
  readonly #suffix: string;
  readonly #includeUsage: boolean;
  readonly #choices: number;
  #hasStarted = false;

  constructor(request: ChatRequest, identity: AnswerIdentity) {
    this.#progress = new AnswerProgress(request.n);
    this.#choices = request.n;
    this.#includeUsage = request.include_usage;
    this.#identity = identity;
    this.#prefix = chunkPrefix(identity, identity.fingerprint);
    this.#suffix = request.include_usage ? `],"usage":null}\n` : "]}\n";
  }

  get completionTokens(): number {
    return this.#progress.completionTokens;
  }

  get usage(): Usage | null {
    return this.#progress.usage;
  }

  push(events: readonly BackendEvent[]): string {
    let lines = "";
    for (const event of events) {
      switch (event.type) {
        case "delta":
          if (!this.#hasStarted) lines += this.#start(event);
          this.#progress.countDelta();
          lines += this.#delta(event);
          break;
        case "finish":
          if (!this.#hasStarted) lines += this.#start(null);
          this.#progress.setFinish(event.index, event.reason);
          lines += this.#choice(
            event.index,
            "{}",
            "null",
            `"${event.reason}"`,
          );
          break;
        case "usage":
          this.#progress.usage = event.usage;
          break;
        case "fingerprint":
          this.#prefix = chunkPrefix(this.#identity, event.fingerprint);
          break;
      }
    }
    return lines;
  }

  finish(): string {
    const { usage } = this.#progress.complete();
    return this.#includeUsage
      ? `${this.#prefix}],"usage":${JSON.stringify(usage)}}\n`
      : "";
  }

  /**
   * The role chunk of every choice, in order. Some SDKs take an answer for
   * complete once every choice seen so far has finished, so all appear at once.
   */
  #start(first: BackendEvent & { type: "delta" } | null): string {
    this.#hasStarted = true;
    let lines = "";
    for (let index = 0; index < this.#choices; index += 1) {
      const isToolCall = first !== null && first.index === index &&
        first.toolCalls !== undefined;
      const delta = isToolCall
        ? `{"role":"assistant","content":null}`
        : `{"role":"assistant","content":""}`;
      lines += this.#choice(index, delta, "null", "null");
    }
    return lines;
  }

  #delta(event: BackendEvent & { type: "delta" }): string {
    const logprobs = event.logprobs === undefined
      ? "null"
      : JSON.stringify(event.logprobs);
    return this.#choice(event.index, deltaJson(event), logprobs, "null");
  }

  #choice(
    index: number,
    delta: string,
    logprobs: string,
    reason: string,
  ): string {
    return `${this.#prefix}{"index":${index},"delta":${delta}` +
      `,"logprobs":${logprobs},"finish_reason":${reason}}${this.#suffix}`;
  }
}

function chunkPrefix(
  { id, created, model }: AnswerIdentity,
  fingerprint: string | null,
): string {
  return `{"id":${JSON.stringify(id)}` +
    `,"object":"chat.completion.chunk","created":${created}` +
    `,"model":${JSON.stringify(model)}` +
    `,"system_fingerprint":${JSON.stringify(fingerprint)},"choices":[`;
}

/** JSON of a delta. Text alone is the case of nearly every token, so it has a short way. */
function deltaJson(event: BackendEvent & { type: "delta" }): string {
  if (
    event.content !== undefined && event.reasoning === undefined &&
    event.toolCalls === undefined && event.refusal === undefined
  ) {
    return `{"content":${JSON.stringify(event.content)}}`;
  }
  const delta: ChunkDelta = {};
  if (event.content !== undefined) delta.content = event.content;
  if (event.reasoning !== undefined) delta.reasoning_content = event.reasoning;
  if (event.refusal !== undefined) delta.refusal = event.refusal;
  if (event.toolCalls !== undefined) delta.tool_calls = event.toolCalls;
  return JSON.stringify(delta);
}

/** One choice of a response that is being put together. */
interface ChoiceInProgress {
  content: string | null;
  reasoning: string;
  refusal: string | null;
  toolCalls: ToolCall[];
  logprobs: LogprobsInProgress | null;
}

/** Grows in place: a long answer has a list of thousands. */
type LogprobsInProgress = Logprobs & {
  content: unknown[] | null;
  refusal: unknown[] | null;
};

/** Encodes a whole response, given out at the end as one line. */
class WholeEncoder implements AnswerEncoder {
  readonly #progress: AnswerProgress;
  readonly #identity: AnswerIdentity;
  readonly #choices: ChoiceInProgress[];
  #fingerprint: string | null;

  constructor(request: ChatRequest, identity: AnswerIdentity) {
    this.#progress = new AnswerProgress(request.n);
    this.#identity = identity;
    this.#fingerprint = identity.fingerprint;
    this.#choices = Array.from({ length: request.n }, () => ({
      content: null,
      reasoning: "",
      refusal: null,
      toolCalls: [],
      logprobs: null,
    }));
  }

  get completionTokens(): number {
    return this.#progress.completionTokens;
  }

  get usage(): Usage | null {
    return this.#progress.usage;
  }

  push(events: readonly BackendEvent[]): string {
    for (const event of events) {
      switch (event.type) {
        case "delta":
          this.#progress.countDelta();
          addDelta(this.#choiceAt(event.index), event);
          break;
        case "finish":
          this.#progress.setFinish(event.index, event.reason);
          break;
        case "usage":
          this.#progress.usage = event.usage;
          break;
        case "fingerprint":
          this.#fingerprint = event.fingerprint;
          break;
      }
    }
    return "";
  }

  finish(): string {
    const { reasons, usage } = this.#progress.complete();
    const completion: ChatCompletion = {
      id: this.#identity.id,
      object: "chat.completion",
      created: this.#identity.created,
      model: this.#identity.model,
      choices: this.#choices.map((choice, index) =>
        finishedChoice(choice, index, reasons[index] ?? "stop")
      ),
      usage,
      system_fingerprint: this.#fingerprint,
    };
    return JSON.stringify(completion) + "\n";
  }

  #choiceAt(index: number): ChoiceInProgress {
    const choice = this.#choices[index];
    if (choice === undefined) {
      throw new ApiError(
        "upstream_invalid",
        "The model server answered with more choices than were asked for.",
      );
    }
    return choice;
  }
}

function addDelta(
  choice: ChoiceInProgress,
  event: BackendEvent & { type: "delta" },
): void {
  if (event.content !== undefined) {
    choice.content = (choice.content ?? "") + event.content;
  }
  if (event.reasoning !== undefined) choice.reasoning += event.reasoning;
  if (event.refusal !== undefined) {
    choice.refusal = (choice.refusal ?? "") + event.refusal;
  }
  if (event.logprobs !== undefined) {
    addLogprobs(choice, event.logprobs);
  }
  for (const fragment of event.toolCalls ?? []) {
    addToolCallFragment(choice.toolCalls, fragment);
  }
}

function addToolCallFragment(
  calls: ToolCall[],
  fragment: ToolCallDelta,
): void {
  const call = calls[fragment.index] ??= {
    id: "",
    type: "function",
    function: { name: "", arguments: "" },
  };
  if (fragment.id !== undefined) call.id = fragment.id;
  if (fragment.function.name !== undefined) {
    call.function.name = fragment.function.name;
  }
  call.function.arguments += fragment.function.arguments ?? "";
}

const NO_LOGPROBS: LogprobsInProgress = { content: null, refusal: null };

/** Adds the `content` and `refusal` lists of one more piece. */
function addLogprobs(choice: ChoiceInProgress, next: Logprobs): void {
  const { content, refusal } = choice.logprobs ?? NO_LOGPROBS;
  choice.logprobs = {
    ...next,
    content: extended(content, next.content),
    refusal: extended(refusal, next.refusal),
  };
}

function extended(list: unknown[] | null, more: unknown): unknown[] | null {
  if (!Array.isArray(more)) return list;
  if (list === null) return [...more];
  for (const each of more) list.push(each);
  return list;
}

function finishedChoice(
  choice: ChoiceInProgress,
  index: number,
  reason: FinishReason,
): ChatChoice {
  // Null content means "see the tool calls" (or the refusal); plain silence is an empty text.
  const hasOther = choice.toolCalls.length > 0 || choice.refusal !== null;
  const message: ResponseMessage = {
    role: "assistant",
    content: choice.content ?? (hasOther ? null : ""),
    refusal: choice.refusal,
    ...(choice.reasoning === "" ? {} : { reasoning_content: choice.reasoning }),
    ...(choice.toolCalls.length === 0 ? {} : { tool_calls: choice.toolCalls }),
  };
  return { index, message, logprobs: choice.logprobs, finish_reason: reason };
}
