/** One choice of an answer on its way, token by token. Pure. */
import {
  type Random,
  type Sampled,
  type TokenLogprob,
  Writer,
} from "./language.ts";
import type { Plan, PlannedCall } from "./plan.ts";
import type { ChatRequest } from "./request.ts";

export type FinishReason = "stop" | "length" | "tool_calls";

/** A fragment of a call, as the wire has it. */
export interface CallDelta {
  index: number;
  id?: string;
  type?: "function";
  function: { name?: string; arguments: string };
}

/** What one step adds; nothing of it while a stop text may have begun. */
export interface Step {
  content?: string;
  reasoning?: string;
  call?: CallDelta;
  logprobs?: LogprobEntry[];
  /** Says that this was the last step. */
  finish?: FinishReason;
}

/** As in `logprobs.content[]`. */
export interface LogprobEntry extends TokenLogprob {
  bytes: number[];
  top_logprobs: { token: string; logprob: number; bytes: number[] }[];
}

export interface ChoiceOptions {
  request: ChatRequest;
  plan: Plan;
  random: Random;
  subject: number;
  /** Tokens of reasoning, content and calls together. */
  tokensMax: number;
  newCallId: () => string;
}

/** A text without a wanted length ends with a sentence after this many tokens and up to as many more. */
const TEXT_TOKENS = 40;
const encoder = new TextEncoder();

/** The steps of a choice: one per token, the last with `finish`. */
export function* runChoice(options: ChoiceOptions): Generator<Step> {
  const { request, plan, tokensMax } = options;
  const writer = new Writer(request, options.random, options.subject);
  let said = 0;
  for (const reasoning of plan.reasoning) {
    said += 1;
    const isFull = said >= tokensMax;
    yield isFull ? { reasoning, finish: "length" } : { reasoning };
    if (isFull) return;
  }
  if (plan.calls.length > 0) yield* runCalls(plan.calls, options.newCallId);
  else yield* runText(options, writer, tokensMax - said);
}

/** They were chosen so that they fit. */
function* runCalls(
  calls: readonly PlannedCall[],
  newCallId: () => string,
): Generator<Step> {
  for (const [index, { name, tokens }] of calls.entries()) {
    yield {
      call: {
        index,
        id: newCallId(),
        type: "function",
        function: { name, arguments: "" },
      },
    };
    for (const [at, token] of tokens.entries()) {
      const call = { index, function: { arguments: token } };
      const isLast = index === calls.length - 1 && at === tokens.length - 1;
      yield isLast ? { call, finish: "tool_calls" } : { call };
    }
  }
}

function* runText(
  { request, plan, random }: ChoiceOptions,
  writer: Writer,
  tokensMax: number,
): Generator<Step> {
  const text = new StoppedText([request.stop ?? []].flat());
  const sentenceAfter = TEXT_TOKENS + random() * TEXT_TOKENS;
  for (let said = 1;; said++) {
    const given = plan.given[said - 1];
    const sampled = given === undefined ? writer.next() : writer.given(given);
    const step = text.add(sampled, request.logprobs === true);
    const isDone = plan.tokensWanted === null
      ? said > plan.given.length + sentenceAfter && sampled.token === "."
      : said >= plan.tokensWanted;
    const finish = text.isStopped || isDone
      ? "stop"
      : said >= tokensMax
      ? "length"
      : null;
    if (finish === null) {
      yield step;
      continue;
    }
    const rest = text.rest();
    yield {
      content: step.content + rest.content,
      logprobs: [...step.logprobs, ...rest.logprobs],
      finish,
    };
    return;
  }
}

type Said = Required<Pick<Step, "content" | "logprobs">>;

/** Text that ends before the first of some texts, and holds back what may be the begin of one. */
class StoppedText {
  isStopped = false;
  readonly #stops: readonly string[];
  #held = "";
  #entries: { length: number; entry: LogprobEntry }[] = [];

  constructor(stops: readonly string[]) {
    this.#stops = stops;
  }

  /** Adds a token and returns what can be said now. */
  add(sampled: Sampled, hasLogprobs: boolean): Said {
    const { token } = sampled;
    this.#held += token;
    if (hasLogprobs) {
      const entry = entryOf(sampled);
      this.#entries.push({ length: token.length, entry });
    }
    let stopAt = -1;
    for (const stop of this.#stops) {
      const at = this.#held.indexOf(stop);
      if (at >= 0 && (stopAt < 0 || at < stopAt)) stopAt = at;
    }
    if (stopAt >= 0) {
      this.isStopped = true;
      const step = this.#take(stopAt);
      this.#held = "";
      this.#entries = [];
      return step;
    }
    return this.#take(this.#firstDoubt());
  }

  /** What was held back, when nothing comes any more. */
  rest(): Said {
    return this.#take(this.#held.length);
  }

  /** Where a stop text may have begun. */
  #firstDoubt(): number {
    for (let at = 0; at < this.#held.length; at++) {
      const end = this.#held.slice(at);
      if (this.#stops.some((stop) => stop.startsWith(end))) return at;
    }
    return this.#held.length;
  }

  #take(length: number): Said {
    const content = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    const logprobs: LogprobEntry[] = [];
    let room = length;
    // A token that is said in part is said, as far as its entry goes.
    while (this.#entries[0] !== undefined && room > 0) {
      const first = this.#entries[0];
      room -= first.length;
      if (room < 0 && !this.isStopped) {
        this.#entries[0] = { ...first, length: -room };
      } else {
        logprobs.push(first.entry);
        this.#entries.shift();
      }
    }
    return { content, logprobs };
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
