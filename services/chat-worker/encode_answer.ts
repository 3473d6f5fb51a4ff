/**
 * Turns what a backend yields into the lines an edge sends on: one chunk a line
 * for a stream, one whole response for a call without `stream`. All rules about
 * the shape of an answer that SDKs depend on are here.
 */
import type {
  ChatChoice,
  ChatCompletion,
  ChatRequest,
  ChunkDelta,
  FinishReason,
  Logprobs,
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
}

type DeltaEvent = BackendEvent & { type: "delta" };

/** The encoder that fits the request. */
export function createAnswerEncoder(
  request: ChatRequest,
  identity: AnswerIdentity,
): AnswerEncoder {
  return request.stream
    ? new ChunkEncoder(request, identity)
    : new WholeEncoder(request, identity);
}

/** Collects events, gives out lines, and refuses an answer that lacks something. */
export abstract class AnswerEncoder {
  /** What the backend counted, once it said so. */
  usage: Usage | null = null;
  protected fingerprint: string | null = null;
  #deltas = 0;
  readonly #finished: (FinishReason | null)[];

  constructor(choices: number) {
    this.#finished = new Array<FinishReason | null>(choices).fill(null);
  }

  /** Tokens produced so far: what the backend counted, until then one per delta. */
  get completionTokens(): number {
    return this.usage?.completion_tokens ?? this.#deltas;
  }

  /** The finish reasons by choice. Throws when the backend left something out. */
  complete(): FinishReason[] {
    const reasons = this.#finished.filter((reason) => reason !== null);
    if (reasons.length < this.#finished.length || this.usage === null) {
      throw new ApiError(
        "upstream_truncated",
        "The model server ended its answer early.",
      );
    }
    return reasons;
  }

  /** Lines for these events, each ended by `\n`; empty when there is nothing to send yet. */
  push(events: readonly BackendEvent[]): string {
    let lines = "";
    for (const event of events) {
      switch (event.type) {
        case "delta":
          this.#deltas += 1;
          lines += this.encodeDelta(event);
          break;
        case "finish":
          if (event.index >= this.#finished.length) throw tooManyChoices();
          this.#finished[event.index] = event.reason;
          lines += this.encodeFinish(event.index, event.reason);
          break;
        case "usage":
          this.usage = event.usage;
          break;
        case "fingerprint":
          this.fingerprint = event.fingerprint;
      }
    }
    return lines;
  }

  protected abstract encodeDelta(event: DeltaEvent): string;
  protected abstract encodeFinish(index: number, reason: FinishReason): string;
  /** The last lines, once the backend is done. Throws when it left something out. */
  abstract finish(): string;
}

function tooManyChoices(): ApiError {
  return new ApiError(
    "upstream_invalid",
    "The model server answered with more choices than were asked for.",
  );
}

/** Encodes a stream: role chunks of all choices first, then deltas, finishes and, if asked for, usage. */
class ChunkEncoder extends AnswerEncoder {
  readonly #identity: AnswerIdentity;
  readonly #includeUsage: boolean;
  readonly #choices: number;
  readonly #suffix: string;
  /** Empty until the first chunk: by then the fingerprint is known. */
  #prefix = "";

  constructor(request: ChatRequest, identity: AnswerIdentity) {
    super(request.n);
    this.#identity = identity;
    this.#choices = request.n;
    this.#includeUsage = request.include_usage;
    this.#suffix = request.include_usage ? `],"usage":null}\n` : "]}\n";
  }

  protected encodeDelta(event: DeltaEvent): string {
    const start = this.#prefix === "" ? this.#start(event) : "";
    const logprobs = event.logprobs === undefined
      ? "null"
      : JSON.stringify(event.logprobs);
    return start +
      this.#chunk(event.index, deltaJson(event), logprobs, "null");
  }

  protected encodeFinish(index: number, reason: FinishReason): string {
    const start = this.#prefix === "" ? this.#start(null) : "";
    return start + this.#chunk(index, "{}", "null", `"${reason}"`);
  }

  finish(): string {
    this.complete();
    return this.#includeUsage
      ? `${this.#prefix}],"usage":${JSON.stringify(this.usage)}}\n`
      : "";
  }

  /**
   * The role chunk of every choice, in order. Some SDKs take an answer for
   * complete once every choice seen so far has finished, so all appear at once.
   */
  #start(first: DeltaEvent | null): string {
    const { id, created, model } = this.#identity;
    this.#prefix = `{"id":${JSON.stringify(id)}` +
      `,"object":"chat.completion.chunk","created":${created}` +
      `,"model":${JSON.stringify(model)}` +
      `,"system_fingerprint":${JSON.stringify(this.fingerprint)},"choices":[`;
    let lines = "";
    for (let index = 0; index < this.#choices; index += 1) {
      const isToolCall = first?.index === index &&
        first.toolCalls !== undefined;
      const content = isToolCall ? "null" : `""`;
      const delta = `{"role":"assistant","content":${content}}`;
      lines += this.#chunk(index, delta, "null", "null");
    }
    return lines;
  }

  #chunk(
    index: number,
    delta: string,
    logprobs: string,
    reason: string,
  ): string {
    return `${this.#prefix}{"index":${index},"delta":${delta}` +
      `,"logprobs":${logprobs},"finish_reason":${reason}}${this.#suffix}`;
  }
}

/** JSON of a delta. Nearly every token is text alone, so that case is faster. */
function deltaJson(event: DeltaEvent): string {
  const { content, reasoning, refusal, toolCalls } = event;
  if (
    content !== undefined && reasoning === undefined &&
    toolCalls === undefined && refusal === undefined
  ) {
    return `{"content":${JSON.stringify(content)}}`;
  }
  const delta: ChunkDelta = {};
  if (content !== undefined) delta.content = content;
  if (reasoning !== undefined) delta.reasoning_content = reasoning;
  if (refusal !== undefined) delta.refusal = refusal;
  if (toolCalls !== undefined) delta.tool_calls = toolCalls;
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
class WholeEncoder extends AnswerEncoder {
  readonly #identity: AnswerIdentity;
  readonly #choices: ChoiceInProgress[];

  constructor(request: ChatRequest, identity: AnswerIdentity) {
    super(request.n);
    this.#identity = identity;
    this.#choices = Array.from({ length: request.n }, () => ({
      content: null,
      reasoning: "",
      refusal: null,
      toolCalls: [],
      logprobs: null,
    }));
  }

  protected encodeDelta(event: DeltaEvent): string {
    const choice = this.#choices[event.index];
    if (choice === undefined) throw tooManyChoices();
    const { content, reasoning, refusal, logprobs, toolCalls = [] } = event;
    if (content !== undefined) {
      choice.content = (choice.content ?? "") + content;
    }
    if (reasoning !== undefined) choice.reasoning += reasoning;
    if (refusal !== undefined) {
      choice.refusal = (choice.refusal ?? "") + refusal;
    }
    if (logprobs !== undefined) addLogprobs(choice, logprobs);
    for (const each of toolCalls) addToolCallFragment(choice.toolCalls, each);
    return "";
  }

  protected encodeFinish(): string {
    return "";
  }

  finish(): string {
    const reasons = this.complete();
    const { id, created, model } = this.#identity;
    const completion = {
      id,
      object: "chat.completion",
      created,
      model,
      choices: this.#choices.map((choice, index) =>
        finishedChoice(choice, index, reasons[index] ?? "stop")
      ),
      usage: this.usage,
      system_fingerprint: this.fingerprint,
    } satisfies Omit<ChatCompletion, "usage"> & { usage: Usage | null };
    return JSON.stringify(completion) + "\n";
  }
}

function addToolCallFragment(
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

/** Adds the `content` and `refusal` lists of one more piece. */
function addLogprobs(choice: ChoiceInProgress, next: Logprobs): void {
  const { content, refusal } = choice.logprobs ??
    { content: null, refusal: null };
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
  { content, reasoning, refusal, toolCalls, logprobs }: ChoiceInProgress,
  index: number,
  reason: FinishReason,
): ChatChoice {
  // Null content means "see the tool calls" (or the refusal); plain silence is an empty text.
  const hasOther = toolCalls.length > 0 || refusal !== null;
  return {
    index,
    message: {
      role: "assistant",
      content: content ?? (hasOther ? null : ""),
      refusal,
      ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
      ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    },
    logprobs,
    finish_reason: reason,
  };
}
