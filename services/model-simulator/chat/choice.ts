import type {
  ChunkDelta,
  FinishReason,
} from "@gateway/shared/openai/completion";
import {
  type Random,
  type Sampled,
  type TokenLogprob,
  Writer,
} from "./language.ts";
import type { Plan, PlannedCall } from "./plan.ts";
import type { ChatRequest } from "./request.ts";

/** The output of one step; the content is empty while a stop sequence may have begun. */
export interface Step {
  delta: ChunkDelta;
  logprobs?: LogprobEntry[];
  finish?: FinishReason;
}

export interface LogprobEntry extends TokenLogprob {
  bytes: number[];
  top_logprobs: { token: string; logprob: number; bytes: number[] }[];
}

/** A text without a requested length ends with the first sentence after this many tokens to twice as many. */
const TEXT_TOKENS = 40;
const encoder = new TextEncoder();

/** The steps of a choice: one per token, the last with `finish`. */
export function* runChoice(
  request: ChatRequest,
  plan: Plan,
  { random, tokensMax, newCallId }: {
    random: Random;
    /** The limit of reasoning, content and calls together. */
    tokensMax: number;
    newCallId: () => string;
  },
): Generator<Step> {
  for (const [index, token] of plan.reasoning.entries()) {
    const delta = { reasoning_content: token };
    if (index + 1 >= tokensMax) return yield { delta, finish: "length" };
    yield { delta };
  }
  if (plan.calls.length > 0) return yield* runCalls(plan.calls, newCallId);
  const textMax = tokensMax - plan.reasoning.length;
  yield* runText(request, plan, random, textMax);
}

/** The calls were planned so that they fit into the token limit. */
function* runCalls(
  calls: readonly PlannedCall[],
  newCallId: () => string,
): Generator<Step> {
  for (const [index, { name, tokens }] of calls.entries()) {
    const head = { id: newCallId(), type: "function" } as const;
    const call = { index, ...head, function: { name, arguments: "" } };
    yield { delta: { tool_calls: [call] } };
    for (const [at, token] of tokens.entries()) {
      const call = { index, function: { arguments: token } };
      const delta = { tool_calls: [call] };
      const isLast = index === calls.length - 1 && at === tokens.length - 1;
      yield isLast ? { delta, finish: "tool_calls" } : { delta };
    }
  }
}

function* runText(
  request: ChatRequest,
  { given, subject, tokensWanted }: Plan,
  random: Random,
  tokensMax: number,
): Generator<Step> {
  const writer = new Writer(request, random, subject);
  const text = new StoppedText(request.stop ?? []);
  const endAfter = given.length + TEXT_TOKENS * (1 + random());
  for (let count = 1;; count++) {
    const known = given[count - 1];
    const sampled = known === undefined ? writer.next() : writer.given(known);
    const isDone = tokensWanted === null
      ? count > endAfter && sampled.token === "."
      : count >= tokensWanted;
    const isLast = isDone || count >= tokensMax;
    const { content, tokens } = text.add(sampled, isLast);
    const delta = { content };
    const step = request.logprobs
      ? { delta, logprobs: tokens.map(entryOf) }
      : { delta };
    if (isLast || text.isStopped) {
      const isComplete = isDone || text.isStopped;
      return yield { ...step, finish: isComplete ? "stop" : "length" };
    }
    yield step;
  }
}

/** Text that ends before the first stop sequence, and holds back what may begin one. */
class StoppedText {
  isStopped = false;
  readonly #stops: readonly string[];
  #text = "";
  /** The tokens that begin in `#text`, and where. */
  #tokens: { at: number; sampled: Sampled }[] = [];

  constructor(stops: readonly string[]) {
    this.#stops = stops;
  }

  /** Adds a token. Returns the text that can be sent now, and the tokens that begin in it. */
  add(sampled: Sampled, isLast: boolean) {
    this.#tokens.push({ at: this.#text.length, sampled });
    this.#text += sampled.token;
    const end = this.#endOfSafeText(isLast);
    const content = this.#text.slice(0, end);
    const { sent = [], held = [] } = Object.groupBy(
      this.#tokens,
      ({ at }) => at < end ? "sent" : "held",
    );
    this.#text = this.#text.slice(end);
    this.#tokens = held.map(({ at, sampled }) => ({ at: at - end, sampled }));
    return { content, tokens: sent.map(({ sampled }) => sampled) };
  }

  #endOfSafeText(isLast: boolean): number {
    const found = this.#stops.map((stop) => this.#text.indexOf(stop))
      .filter((at) => at >= 0);
    this.isStopped = found.length > 0;
    if (this.isStopped) return Math.min(...found);
    if (isLast || this.#stops.length === 0) return this.#text.length;
    let end = 0;
    const mayBegin = (stop: string) => stop.startsWith(this.#text.slice(end));
    while (!this.#stops.some(mayBegin)) end += 1;
    return end;
  }
}

function entryOf({ token, logprob, top }: Sampled): LogprobEntry {
  const withBytes = (one: TokenLogprob) => ({
    token: one.token,
    logprob: one.logprob,
    bytes: [...encoder.encode(one.token)],
  });
  return { ...withBytes({ token, logprob }), top_logprobs: top.map(withBytes) };
}
