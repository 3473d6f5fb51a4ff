/** One chat completion: its choices in parallel, at their pace, as chunks or whole. */
import type { ChunkDelta } from "@gateway/shared/openai/completion";
import { promptTokens } from "@gateway/shared/openai/tokens";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { type LogprobEntry, runChoice, type Step } from "./choice.ts";
import { readControls } from "../serving/controls.ts";
import { HttpError } from "../serving/errors.ts";
import type { Received } from "../serving/fields.ts";
import { checkModel } from "../serving/models.ts";
import { type Pacing, sleep } from "../serving/pacing.ts";
import { EVENT_STREAM, type Planned } from "../serving/run.ts";
import { checkSchemas, planChoice, randomFor } from "./plan.ts";
import { type ChatRequest, parseRequest, textOf } from "./request.ts";

const CONTEXT_TOKENS = 200_000;
/** The longest answer if the request sets no limit. */
const OUTPUT_TOKENS = 32_768;
const FINGERPRINT = "simulator-2";
/** The longest time it works before it yields to the event loop. */
const WORK_MS_MAX = 2;

/** Plans the answer to `POST /v1/chat/completions`. Throws an `HttpError` for a wrong request. */
export function chatCompletion({ text }: Received): Planned {
  const request = parseRequest(text);
  checkModel(request, "chat");
  // Only phrases in the last user message count.
  const asked = request.messages.findLast(({ role }) => role === "user");
  return {
    controls: asked === undefined ? {} : readControls(textOf(asked)),
    answer: async (pacing) => {
      const completion = await Completion.start(request, pacing);
      return request.stream
        ? { contentType: EVENT_STREAM, pieces: completion.stream() }
        : { contentType: "application/json", pieces: completion.whole() };
    },
  };
}

interface Choice {
  readonly index: number;
  readonly hasCalls: boolean;
  readonly steps: Iterator<Step>;
  isBegun: boolean;
  isOver: boolean;
}

class Completion {
  readonly #request: ChatRequest;
  readonly #pacing: Pacing;
  readonly #choices: Choice[] = [];
  readonly #head: { id: string; created: number; model: string };
  readonly #promptTokens: number;
  #tokens = 0;
  #reasoningTokens = 0;

  private constructor(request: ChatRequest, pacing: Pacing) {
    this.#request = request;
    this.#pacing = pacing;
    this.#promptTokens = promptTokens(request);
    if (this.#promptTokens > CONTEXT_TOKENS) {
      throw new HttpError(
        `This model's maximum context length is ${CONTEXT_TOKENS} tokens. ` +
          `However, your messages have ${this.#promptTokens} tokens.`,
        { param: "messages", code: "context_length_exceeded" },
      );
    }
    this.#head = {
      id: `chatcmpl-${newRequestId()}`,
      created: Math.floor(wallNow() / 1_000),
      model: request.model,
    };
  }

  /** Rejects with an `HttpError` for a request that the simulator does not support. */
  static async start(request: ChatRequest, pacing: Pacing) {
    const { controls, signal } = pacing.options;
    const completion = new Completion(request, pacing);
    checkSchemas(request);
    const tokensMax = request.max_tokens ?? OUTPUT_TOKENS;
    const newCallId = () => `call_${newRequestId()}`;
    for (let index = 0; index < request.n; index++) {
      // Planning may take some milliseconds, during which other answers should not wait.
      if (index > 0) await sleep(0, signal);
      const random = randomFor(request, index, Math.random());
      const plan = planChoice(request, controls, { random, tokensMax });
      const steps = runChoice(request, plan, { random, tokensMax, newCallId });
      const hasCalls = plan.calls.length > 0;
      const state = { isBegun: false, isOver: false };
      completion.#choices.push({ index, hasCalls, steps, ...state });
    }
    return completion;
  }

  /** The events of a stream as they become due; events due together are yielded as one text. */
  async *stream(): AsyncGenerator<string> {
    const { controls } = this.#pacing.options;
    for await (const batch of this.#batches()) {
      const chunks = batch.map(([choice, step]) => this.#chunks(choice, step));
      yield chunks.join("");
    }
    if (this.#pacing.isBroken) return yield this.#pacing.faultText;
    if (this.#request.include_usage && controls.isUsageMissing !== true) {
      yield this.#event({ choices: [], usage: this.#usage() });
    }
    yield "data: [DONE]\n\n";
  }

  async *whole(): AsyncGenerator<string> {
    const { isUsageMissing } = this.#pacing.options.controls;
    const said: Step[][] = this.#choices.map(() => []);
    for await (const batch of this.#batches()) {
      for (const [{ index }, step] of batch) said[index]?.push(step);
    }
    yield this.#pacing.isBroken ? this.#pacing.faultText : JSON.stringify({
      ...this.#head,
      object: "chat.completion",
      system_fingerprint: FINGERPRINT,
      choices: said.map((steps, index) => wholeChoice(index, steps)),
      usage: isUsageMissing ? undefined : this.#usage(),
    });
  }

  /** The steps of all choices, which advance together, until they end or break as requested. */
  async *#batches(): AsyncGenerator<[Choice, Step][]> {
    const { controls, signal, pace } = this.#pacing.options;
    const { stepMs } = this.#pacing;
    const isRunning = () => this.#choices.some(({ isOver }) => !isOver);
    const isBreakDue = () => round === controls.break?.afterTokens;
    let dueAt = monotonicNow() + pace.firstTokenMs;
    let round = 0;
    while (isRunning() && !isBreakDue()) {
      const waitMs = dueAt - monotonicNow();
      if (waitMs > 0 || round > 0) await sleep(waitMs, signal);
      const startedAt = monotonicNow();
      const batch: [Choice, Step][] = [];
      do {
        this.#advance(batch);
        round += 1;
        dueAt += stepMs;
      } while (
        isRunning() && !isBreakDue() && dueAt <= startedAt &&
        monotonicNow() - startedAt < WORK_MS_MAX
      );
      yield batch;
    }
    if (isBreakDue()) await this.#pacing.break();
  }

  #advance(batch: [Choice, Step][]): void {
    for (const choice of this.#choices) {
      if (choice.isOver) continue;
      const { value, done } = choice.steps.next();
      choice.isOver = done === true || value.finish !== undefined;
      if (done === true) continue;
      this.#tokens += 1;
      if (value.delta.reasoning_content) this.#reasoningTokens += 1;
      batch.push([choice, value]);
    }
  }

  #chunks(choice: Choice, { delta, logprobs = [], finish }: Step): string {
    let chunks = "";
    if (!choice.isBegun) {
      choice.isBegun = true;
      const content = choice.hasCalls ? null : "";
      chunks += this.#chunk(choice, { role: "assistant", content });
    }
    if (Object.values(delta).some(Boolean) || logprobs.length > 0) {
      chunks += this.#chunk(choice, delta, { logprobs: wireOf(logprobs) });
    }
    return finish === undefined
      ? chunks
      : chunks + this.#chunk(choice, {}, { finish_reason: finish });
  }

  #chunk({ index }: Choice, delta: ChunkDelta, more: object = {}): string {
    const { include_usage } = this.#request;
    const choice = { index, delta, logprobs: null, finish_reason: null };
    return this.#event({
      choices: [{ ...choice, ...more }],
      // Undefined members are left out of the JSON.
      usage: include_usage ? null : undefined,
    });
  }

  #event(members: object): string {
    const event = {
      ...this.#head,
      object: "chat.completion.chunk",
      system_fingerprint: FINGERPRINT,
      ...members,
    };
    return `data: ${JSON.stringify(event)}\n\n`;
  }

  #usage() {
    return {
      prompt_tokens: this.#promptTokens,
      completion_tokens: this.#tokens,
      total_tokens: this.#promptTokens + this.#tokens,
      completion_tokens_details: this.#reasoningTokens === 0
        ? undefined
        : { reasoning_tokens: this.#reasoningTokens },
    };
  }
}

function wireOf(content: readonly LogprobEntry[]) {
  return content.length > 0 ? { content } : null;
}

function wholeChoice(index: number, steps: readonly Step[]) {
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
