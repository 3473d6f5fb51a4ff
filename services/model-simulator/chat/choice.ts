import type {
  ChunkDelta,
  FinishReason,
} from "@gateway/shared/openai/completion";
import { type Random, type Sampled, Writer } from "./language.ts";
import type { Plan, PlannedCall } from "./plan.ts";
import type { ChatRequest } from "./request.ts";

/** The output of one step; the content is empty while a stop sequence may have begun. */
export interface Step {
  delta: ChunkDelta;
  logprobs?: object[];
  finish?: FinishReason;
}

/** A text without a requested length ends with the first sentence after this many tokens to twice as many. */
const TEXT_TOKENS = 40;

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
      const isLast = index === calls.length - 1 && at === tokens.length - 1;
      const finish = isLast ? { finish: "tool_calls" } as const : {};
      yield { delta: { tool_calls: [call] }, ...finish };
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
  const send = holdingStops(request.stop ?? []);
  const endAfter = given.length + TEXT_TOKENS * (1 + random());
  for (let count = 1;; count++) {
    const known = given[count - 1];
    const sampled = known === undefined ? writer.next() : writer.given(known);
    const isDone = tokensWanted === null
      ? count > endAfter && sampled.token === "."
      : count >= tokensWanted;
    const isLast = isDone || count >= tokensMax;
    const { content, logprobs, isStopped } = send(sampled, isLast);
    const step = { delta: { content }, logprobs };
    if (isDone || isStopped) return yield { ...step, finish: "stop" };
    if (isLast) return yield { ...step, finish: "length" };
    yield step;
  }
}

/** Takes tokens, and returns the text that can be sent: not what may begin a stop sequence, and nothing from one on. */
function holdingStops(stops: readonly string[]) {
  let text = "";
  /** The tokens that begin in `text`, and where. */
  let tokens: { at: number; sampled: Sampled }[] = [];
  return (sampled: Sampled, isLast: boolean) => {
    tokens.push({ at: text.length, sampled });
    text += sampled.token;
    const found = stops.map((stop) => text.indexOf(stop))
      .filter((at) => at >= 0);
    const isStopped = found.length > 0;
    let end = Math.min(...found, text.length);
    if (!isStopped && !isLast) {
      end = 0;
      const mayBegin = (stop: string) => stop.startsWith(text.slice(end));
      while (end < text.length && !stops.some(mayBegin)) end += 1;
    }
    const sent = tokens.filter(({ at }) => at < end);
    tokens = tokens.slice(sent.length)
      .map(({ at, sampled }) => ({ at: at - end, sampled }));
    const content = text.slice(0, end);
    text = text.slice(end);
    const logprobs = sent.flatMap(({ sampled }) => sampled.logprobs);
    return { content, isStopped, logprobs };
  };
}
