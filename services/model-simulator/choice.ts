/** Generates one choice of an answer, token by token. Pure. */
import {
  type Random,
  type Sampled,
  type TokenLogprob,
  Writer,
} from "./language.ts";
import type { Plan, PlannedCall } from "./plan.ts";
import type { ChatRequest } from "./request.ts";

export type FinishReason = "stop" | "length" | "tool_calls";

/** A fragment of a tool call, in the wire format. */
export interface CallDelta {
  index: number;
  id?: string;
  type?: "function";
  function: { name?: string; arguments: string };
}

/** The output of one step; the content is empty while a stop sequence may have begun. */
export interface Step {
  content?: string;
  reasoning?: string;
  call?: CallDelta;
  logprobs?: LogprobEntry[];
  /** Set in the last step. */
  finish?: FinishReason;
}

/** An element of `logprobs.content[]`. */
export interface LogprobEntry extends TokenLogprob {
  bytes: number[];
  top_logprobs: { token: string; logprob: number; bytes: number[] }[];
}

export interface ChoiceOptions {
  random: Random;
  /** The limit of reasoning, content and calls together. */
  tokensMax: number;
  newCallId: () => string;
}

/** A text without a requested length ends with the first sentence after this many tokens to twice as many. */
const TEXT_TOKENS = 40;
const encoder = new TextEncoder();

/** The steps of a choice: one per token, the last with `finish`. */
export function* runChoice(
  request: ChatRequest,
  plan: Plan,
  { random, tokensMax, newCallId }: ChoiceOptions,
): Generator<Step> {
  let said = 0;
  for (const reasoning of plan.reasoning) {
    said += 1;
    if (said >= tokensMax) return yield { reasoning, finish: "length" };
    yield { reasoning };
  }
  if (plan.calls.length > 0) yield* runCalls(plan.calls, newCallId);
  else yield* runText(request, plan, { random, tokensMax: tokensMax - said });
}

/** The calls were planned so that they fit into the token limit. */
function* runCalls(
  calls: readonly PlannedCall[],
  newCallId: () => string,
): Generator<Step> {
  for (const [index, { name, tokens }] of calls.entries()) {
    const head = { id: newCallId(), type: "function" } as const;
    yield { call: { index, ...head, function: { name, arguments: "" } } };
    for (const [at, token] of tokens.entries()) {
      const call = { index, function: { arguments: token } };
      const isLast = index === calls.length - 1 && at === tokens.length - 1;
      yield isLast ? { call, finish: "tool_calls" } : { call };
    }
  }
}

function* runText(
  request: ChatRequest,
  plan: Plan,
  { random, tokensMax }: { random: Random; tokensMax: number },
): Generator<Step> {
  const writer = new Writer(request, random, plan.subject);
  const text = new StoppedText([request.stop ?? []].flat());
  const sentenceAfter = TEXT_TOKENS + random() * TEXT_TOKENS;
  const stepOf = ({ content, tokens }: Said): Step =>
    request.logprobs ? { content, logprobs: tokens.map(entryOf) } : { content };
  for (let said = 1;; said++) {
    const given = plan.given[said - 1];
    const sampled = given === undefined ? writer.next() : writer.given(given);
    const now = text.add(sampled);
    const isDone = plan.tokensWanted === null
      ? said > plan.given.length + sentenceAfter && sampled.token === "."
      : said >= plan.tokensWanted;
    if (text.isStopped) return yield { ...stepOf(now), finish: "stop" };
    if (!isDone && said < tokensMax) {
      yield stepOf(now);
      continue;
    }
    const rest = text.rest();
    const content = now.content + rest.content;
    const tokens = [...now.tokens, ...rest.tokens];
    const finish = isDone ? "stop" : "length";
    return yield { ...stepOf({ content, tokens }), finish };
  }
}

interface Said {
  content: string;
  /** The tokens that begin in the content. */
  tokens: Sampled[];
}

/** Text that ends before the first stop sequence, and holds back tokens that may begin one. */
class StoppedText {
  isStopped = false;
  readonly #stops: readonly string[];
  #held: Sampled[] = [];

  constructor(stops: readonly string[]) {
    this.#stops = stops;
  }

  /** Adds a token and returns what can be sent now. */
  add(sampled: Sampled): Said {
    this.#held.push(sampled);
    if (this.#stops.length === 0) return this.rest();
    const text = this.#held.map(({ token }) => token).join("");
    const found = this.#stops.map((stop) => text.indexOf(stop))
      .filter((at) => at >= 0);
    if (found.length > 0) {
      this.isStopped = true;
      const end = Math.min(...found);
      return this.#take((from) => from < end, text.slice(0, end));
    }
    let doubt = 0;
    const isBegin = (stop: string) => stop.startsWith(text.slice(doubt));
    while (!this.#stops.some(isBegin)) doubt += 1;
    return this.#take((_, to) => to <= doubt);
  }

  /** Returns what was held back, at the end of the text. */
  rest(): Said {
    return this.#take(() => true);
  }

  /** Takes the leading tokens whose position in the held text satisfies `isWanted`, and their text. */
  #take(
    isWanted: (from: number, to: number) => boolean,
    text?: string,
  ): Said {
    let count = 0;
    let from = 0;
    for (const { token } of this.#held) {
      const to = from + token.length;
      if (!isWanted(from, to)) break;
      count += 1;
      from = to;
    }
    const tokens = this.#held.splice(0, count);
    const all = tokens.map(({ token }) => token).join("");
    return { content: text ?? all, tokens };
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
