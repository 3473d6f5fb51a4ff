import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import type { BackendEvent } from "./backend.ts";

type Batch = readonly BackendEvent[];

/** Runs a request for one choice until `signal` aborts. */
export type RunOne = (
  request: ChatRequest,
  signal: AbortSignal,
) => AsyncIterable<Batch>;

/**
 * Asks a server that gives one choice per request once for each choice, all at
 * the same time, and makes one answer of theirs: choices numbered as asked for,
 * usage added up. If one fails, all end and the answer has failed with its error.
 * With a seed each choice has the next one, or all would be the same.
 */
export async function* sideBySide(
  request: ChatRequest,
  signal: AbortSignal,
  runOne: RunOne,
): AsyncGenerator<Batch, void, void> {
  const controller = new AbortController();
  const stop = AbortSignal.any([signal, controller.signal]);
  const iterators = Array.from({ length: request.n }, (_, index) => {
    const { seed } = request;
    const one = {
      ...request,
      n: 1,
      ...(seed === undefined ? {} : { seed: seed + index }),
    };
    return runOne(one, stop)[Symbol.asyncIterator]();
  });
  const advance = (index: number) => {
    const next = Promise.resolve(iterators[index]?.next())
      .then((step) => ({ index, step }));
    // It may fail while nobody waits for it: the next race tells.
    next.catch(() => {});
    return next;
  };
  const pending = new Map(iterators.map((_, index) => [index, advance(index)]));
  let usage: Usage | null = null;
  let hasFingerprint = false;
  try {
    while (pending.size > 0) {
      const { index, step } = await Promise.race(pending.values());
      if (step === undefined || step.done) {
        pending.delete(index);
        continue;
      }
      pending.set(index, advance(index));
      const events: BackendEvent[] = [];
      for (const event of step.value) {
        if (event.type === "usage") usage = sum(usage, event.usage);
        else if (event.type !== "fingerprint") events.push({ ...event, index });
        else if (!hasFingerprint) {
          hasFingerprint = true;
          events.push(event);
        }
      }
      if (events.length > 0) yield events;
    }
    if (usage !== null) yield [{ type: "usage", usage }];
  } finally {
    controller.abort(new Error("Another choice ended the answer"));
    await Promise.allSettled(pending.values());
    await Promise.allSettled(iterators.map((each) => each.return?.()));
  }
}

function sum(a: Usage | null, b: Usage): Usage {
  if (a === null) return b;
  const total: Usage = {
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
  };
  const cached = (a.prompt_tokens_details?.cached_tokens ?? 0) +
    (b.prompt_tokens_details?.cached_tokens ?? 0);
  if (cached > 0) total.prompt_tokens_details = { cached_tokens: cached };
  const reasoning = (a.completion_tokens_details?.reasoning_tokens ?? 0) +
    (b.completion_tokens_details?.reasoning_tokens ?? 0);
  if (reasoning > 0) {
    total.completion_tokens_details = { reasoning_tokens: reasoning };
  }
  return total;
}
