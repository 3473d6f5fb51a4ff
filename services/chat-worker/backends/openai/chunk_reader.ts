import type {
  ChatRequest,
  ToolCallDelta,
  Usage,
} from "@gateway/shared/openai/chat";
import { createTextMeter } from "@gateway/shared/tokens/text_meter";
import type { BackendEvent } from "../backend.ts";
import {
  invalidAnswer,
  tooFewChoices,
  truncatedAnswer,
} from "../upstream_error.ts";
import { frameError, type RefusalContext } from "./error_response.ts";
import { finishReasonOf } from "./finish_reason.ts";
import { isJsonObject, type JsonObject, textOf } from "./json.ts";
import type { Redact } from "./redact.ts";
import { asksForFormat } from "./response_format.ts";
import {
  createToolCallFragments,
  type ToolCallFragments,
} from "./tool_calls.ts";
import { estimateUsage, parseUsage } from "./usage.ts";

const FINGERPRINT = /^[\w.:@+-]{1,128}$/;

type DeltaEvent = BackendEvent & { type: "delta" };

/** What {@link createChunkReader} needs. */
export interface ChunkReaderOptions {
  request: ChatRequest;
  /** An id for a tool call whose server gave none. */
  newToolCallId: () => string;
  redact: Redact;
}

/**
 * Turns what a model server says, chunk by chunk or in one piece, into backend
 * events, and takes off what would break a client: see the cases in its test.
 */
export interface ChunkReader {
  /** Something of the answer has been passed on. */
  readonly hasBegun: boolean;
  /** Every choice has its finish reason. */
  readonly isFinished: boolean;
  /**
   * Takes one `data` payload, or a whole response body, and appends events to
   * `out`. `eventName` is that of the event stream, `""` if there is none.
   * Throws `upstream_invalid` for what is not a chunk, and the error that an
   * error frame stands for.
   */
  take(payload: string, eventName: string, out: BackendEvent[]): void;
  /**
   * The answer is over: appends `usage`, or throws `upstream_truncated`. Where
   * the server said itself that this is all (`isWhole`), and choices that were
   * asked for never began beside others that are finished, it gives no more: a
   * fault of the request, with the usage of what it made.
   */
  end(out: BackendEvent[], isWhole: boolean): void;
}

interface ChoiceState {
  /** Null until the choice calls a tool. */
  toolCalls: ToolCallFragments | null;
  hasBegun: boolean;
  isFinished: boolean;
}

/** Starts reading one answer. */
export function createChunkReader(options: ChunkReaderOptions): ChunkReader {
  const { request, redact } = options;
  const context: RefusalContext = {
    redact,
    asksForFormat: asksForFormat(request),
  };
  const answer = createTextMeter();
  const choices: ChoiceState[] = [];
  for (let i = 0; i < request.n; i++) {
    choices.push({ toolCalls: null, hasBegun: false, isFinished: false });
  }
  let unfinished = request.n;
  let hasBegun = false;
  let usage: Usage | null = null;
  let fingerprint = "";

  const takeToolCalls = (
    state: ChoiceState,
    delta: JsonObject,
  ): ToolCallDelta[] | null => {
    const fragments = delta.tool_calls ?? legacyCall(delta.function_call);
    if (fragments === null) return null;
    const news: ToolCallDelta[] = [];
    state.toolCalls ??= createToolCallFragments(options.newToolCallId);
    state.toolCalls.take(fragments, news);
    for (const call of news) answer.add(call.function.arguments ?? "");
    return news.length === 0 ? null : news;
  };

  const takeDelta = (
    index: number,
    state: ChoiceState,
    choice: JsonObject,
    out: BackendEvent[],
  ) => {
    // A whole response has `message` where a chunk has `delta`.
    const delta = choice.delta ?? choice.message;
    if (!isJsonObject(delta)) return;
    const content = contentOf(delta.content);
    const reasoning = textOf(delta.reasoning_content) ||
      textOf(delta.reasoning);
    const refusal = textOf(delta.refusal);
    const toolCalls = takeToolCalls(state, delta);
    const logprobs = isJsonObject(choice.logprobs) ? choice.logprobs : null;
    const isEmpty = content === "" && reasoning === "" && refusal === "" &&
      toolCalls === null && logprobs === null;
    if (isEmpty) return;
    const event: DeltaEvent = { type: "delta", index };
    if (content !== "") event.content = content;
    if (reasoning !== "") event.reasoning = reasoning;
    if (refusal !== "") event.refusal = refusal;
    if (toolCalls !== null) event.toolCalls = toolCalls;
    if (logprobs !== null) event.logprobs = logprobs;
    answer.add(content);
    answer.add(reasoning);
    answer.add(refusal);
    out.push(event);
  };

  const takeChoice = (
    choice: unknown,
    position: number,
    out: BackendEvent[],
  ) => {
    if (!isJsonObject(choice)) throw invalidAnswer("Choice is not an object");
    const index = choice.index ?? position;
    const state = typeof index === "number" ? choices[index] : undefined;
    if (typeof index !== "number" || state === undefined) {
      throw invalidAnswer(`Choice index outside 0..${request.n - 1}`);
    }
    state.hasBegun = true;
    // A repeat of what is finished; clients take nothing more of it.
    if (state.isFinished) return;
    takeDelta(index, state, choice, out);
    const word = textOf(choice.finish_reason);
    if (word === "") return;
    state.toolCalls?.end();
    const reason = finishReasonOf(word, state.toolCalls?.hasCalls ?? false);
    out.push({ type: "finish", index, reason });
    state.isFinished = true;
    unfinished--;
  };

  const takeChunk = (chunk: JsonObject, out: BackendEvent[]) => {
    if (isErrorChunk(chunk)) throw frameError(chunk, context);
    fingerprint ||= textOf(chunk.system_fingerprint);
    // Servers that report progress repeat the usage: the last one is the sum.
    usage = parseUsage(chunk.usage) ?? usage;
    const list = chunk.choices ?? [];
    if (!Array.isArray(list)) throw invalidAnswer("Choices are not an array");
    for (let i = 0; i < list.length; i++) takeChoice(list[i], i, out);
  };

  /** What the server counted; one that counts nothing although it said something does not count. */
  const countedUsage = (): Usage => {
    const isCounted = usage !== null &&
      (usage.completion_tokens > 0 || answer.pieces === 0);
    return usage !== null && isCounted ? usage : estimateUsage(request, answer);
  };

  return {
    get hasBegun() {
      return hasBegun;
    },
    get isFinished() {
      return unfinished === 0;
    },
    take(payload, eventName, out) {
      const value = parseJson(payload);
      if (eventName === "error") throw frameError(value, context);
      if (!isJsonObject(value)) throw invalidAnswer("Not a JSON object");
      takeChunk(value, out);
      if (hasBegun || out.length === 0) return;
      hasBegun = true;
      if (
        FINGERPRINT.test(fingerprint) && redact(fingerprint) === fingerprint
      ) {
        out.unshift({ type: "fingerprint", fingerprint });
      }
    },
    end(out, isWhole) {
      if (unfinished === 0) {
        out.push({ type: "usage", usage: countedUsage() });
        return;
      }
      const given = request.n - unfinished;
      const isCut = choices.some((each) => each.hasBegun && !each.isFinished);
      if (isWhole && given > 0 && !isCut) {
        throw tooFewChoices(given, request.n, countedUsage());
      }
      throw truncatedAnswer(
        `${unfinished} of ${request.n} choices have no finish reason`,
      );
    },
  };
}

/** The value, or undefined for what is not JSON. The parser's own message would quote the answer. */
function parseJson(payload: string): unknown {
  try {
    return JSON.parse(payload);
  } catch {
    return undefined;
  }
}

/** `error: null` beside choices is no error: some servers always send it. */
function isErrorChunk(chunk: JsonObject): boolean {
  if (chunk.error !== undefined && chunk.error !== null) return true;
  return chunk.object === "error" ||
    (chunk.choices === undefined && chunk.usage === undefined &&
      typeof chunk.message === "string");
}

/** Content is text; some servers send parts, of which the text ones count. */
function contentOf(content: unknown): string {
  if (!Array.isArray(content)) return textOf(content);
  let text = "";
  for (const part of content) {
    if (isJsonObject(part)) text += textOf(part.text);
  }
  return text;
}

/** `function_call` is what tool calls were before they had a list. */
function legacyCall(call: unknown): unknown {
  return isJsonObject(call) ? [{ index: 0, function: call }] : null;
}
