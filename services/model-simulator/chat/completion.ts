/**
 * `POST /v1/chat/completions`: its choices in parallel, at their pace, as chunks or
 * whole.
 */
import { wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { eventAnswer, type Planned, wholeAnswer } from "../serving/answer.ts";
import { type Controls, readControls } from "../serving/controls.ts";
import { checkModel, type Received } from "../serving/fields.ts";
import type { PromptCache } from "../serving/prompt_cache.ts";
import { checkSchemas, choiceOf } from "./choice.ts";
import { measured, type MeasuredPrompt } from "./prompt.ts";
import { type ChatRequest, lastQuestion, parseRequest } from "./request.ts";
import { Rounds, type Written } from "./rounds.ts";
import type { Step } from "./step.ts";

/** Plans the answer. Throws an `ApiError` for a wrong request. */
export function chatCompletion(
  { text }: Received,
  cache: PromptCache,
): Planned {
  const request = parseRequest(text);
  checkModel(request.model, "chat");
  // Only phrases in the last user message count.
  const controls = readControls(lastQuestion(request));
  const prompt = measured(request, cache);
  checkSchemas(request);
  const completion = new Completion(request, controls, prompt);
  return request.stream
    ? eventAnswer(controls, completion.events(), {
      end: () => completion.lastEvents(),
    })
    : wholeAnswer(controls, {
      pieces: completion.rounds.run(),
      end: () => completion.whole(),
    });
}

/** One answer. */
class Completion {
  readonly rounds: Rounds;
  readonly #request: ChatRequest;
  readonly #prompt: MeasuredPrompt;
  readonly #hasUsage: boolean;
  /** The members that all chunks of the answer share. */
  readonly #head: object;

  constructor(
    request: ChatRequest,
    controls: Controls,
    prompt: MeasuredPrompt,
  ) {
    this.#request = request;
    this.#prompt = prompt;
    this.#hasUsage = controls.isUsageMissing !== true;
    const choices = Array.from({ length: request.n }, (_, index) => {
      const otherSeed = Math.random();
      return choiceOf(request, controls, { index, otherSeed });
    });
    this.rounds = new Rounds(choices);
    this.#head = {
      id: `chatcmpl-${newRequestId()}`,
      created: Math.floor(wallNow() / 1_000),
      model: request.model,
    };
  }

  /** The same rounds, each as the events of a stream. */
  *events(): Generator<string> {
    for (const round of this.rounds.run()) {
      yield round.map((step) => this.#chunks(step)).join("");
    }
  }

  /** What follows the last round of a stream. */
  lastEvents(): string {
    const isWanted = this.#request.include_usage && this.#hasUsage;
    const usage = isWanted
      ? this.#event({ choices: [], usage: this.#usage() })
      : "";
    return `${usage}data: [DONE]\n\n`;
  }

  /** The body of an answer that is no stream, when all rounds are over. */
  whole(): string {
    return this.#json("chat.completion", {
      choices: this.rounds.steps.map(wholeChoice),
      usage: this.#hasUsage ? this.#usage() : undefined,
    });
  }

  #usage(): object {
    return usageOf(this.#prompt, this.rounds.steps.flat());
  }

  /** The role before the first step, its content, and the reason after the last. */
  #chunks({ step, index, isFirst }: Written): string {
    const { delta, logprobs = [], finish } = step;
    const content = delta.tool_calls === undefined ? "" : null;
    const isEmpty = !Object.values(delta).some(Boolean) && logprobs.length < 1;
    const chunks: string[] = [];
    if (isFirst) {
      chunks.push(this.#chunk(index, {
        delta: { role: "assistant", content },
      }));
    }
    if (!isEmpty) {
      const choice = { delta, logprobs: wireOf(logprobs) };
      chunks.push(this.#chunk(index, choice));
    }
    if (finish !== undefined) {
      chunks.push(this.#chunk(index, { finish_reason: finish }));
    }
    return chunks.join("");
  }

  #chunk(index: number, members: object): string {
    const nothing = { delta: {}, logprobs: null, finish_reason: null };
    const usage = this.#request.include_usage ? null : undefined;
    return this.#event({ choices: [{ index, ...nothing, ...members }], usage });
  }

  #event(members: object): string {
    return `data: ${this.#json("chat.completion.chunk", members)}\n\n`;
  }

  #json(kind: string, members: object): string {
    return JSON.stringify({
      ...this.#head,
      object: kind,
      system_fingerprint: "simulator-2",
      // Undefined members are left out.
      ...members,
    });
  }
}

function usageOf({ tokens, cached }: MeasuredPrompt, steps: readonly Step[]) {
  const reasoning_tokens =
    steps.filter(({ delta }) => delta.reasoning_content).length;
  return {
    prompt_tokens: tokens,
    completion_tokens: steps.length,
    total_tokens: tokens + steps.length,
    prompt_tokens_details: cached.readTokens === 0
      ? undefined
      : { cached_tokens: cached.readTokens },
    completion_tokens_details: reasoning_tokens === 0
      ? undefined
      : { reasoning_tokens },
  };
}

function wireOf(content: readonly object[]) {
  return content.length > 0 ? { content } : null;
}

function wholeChoice(steps: readonly Step[], index: number) {
  const deltas = steps.map(({ delta }) => delta);
  const joined = (name: "content" | "reasoning_content") =>
    deltas.map((delta) => delta[name] ?? "").join("");
  const fragments = deltas.flatMap(({ tool_calls = [] }) => tool_calls);
  const calls = [...Map.groupBy(fragments, (each) => each.index).values()]
    .map(([head, ...rest]) => ({
      id: head?.id,
      type: head?.type,
      function: {
        name: head?.function.name,
        arguments: rest.map((each) => each.function.arguments).join(""),
      },
    }));
  return {
    index,
    message: {
      role: "assistant",
      content: calls.length > 0 ? null : joined("content"),
      refusal: null,
      reasoning_content: joined("reasoning_content") || undefined,
      tool_calls: calls.length > 0 ? calls : undefined,
    },
    logprobs: wireOf(steps.flatMap(({ logprobs = [] }) => logprobs)),
    finish_reason: steps.at(-1)?.finish ?? "stop",
  };
}
