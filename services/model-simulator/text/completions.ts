/** `POST /v1/completions`: texts that go on, or fill the gap before a `suffix`. */
import { fieldError } from "@gateway/shared/openai/error";
import {
  decimal,
  integer,
  listOf,
  model,
  nullable,
  stringOr,
} from "@gateway/shared/openai/fields";
import { parseJsonBody } from "@gateway/shared/openai/json_body";
import { checked } from "@gateway/shared/openai/request_fault";
import { wallNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import { z } from "zod";
import { choiceOf } from "../chat/choice.ts";
import { measured, type MeasuredPrompt } from "../chat/prompt.ts";
import { withDefaults } from "../chat/request.ts";
import { Rounds, type Written } from "../chat/rounds.ts";
import type { Step } from "../chat/step.ts";
import { eventAnswer, type Planned, wholeAnswer } from "../serving/answer.ts";
import { type Controls, readControls } from "../serving/controls.ts";
import { checkModel, type Received } from "../serving/fields.ts";
import type { PromptCache } from "../serving/prompt_cache.ts";

const PROMPTS_MAX = 64;
const CHOICES_MAX = 128;
const STOPS_MAX = 16;
const LOGPROBS_MAX = 5;
/** What OpenAI writes if nobody says how much. */
const TOKENS_DEFAULT = 16;
/** Each text says what wrote it. Editors insert what they get, so it is short. */
const OPENING = " (the model simulator goes on:) ";
const FILLING = "the model simulator fills this gap";

const tokens = z.array(z.int().min(0)).min(1);
const prompts = z.union([
  tokens.transform((tokens) => [tokens.join(" ")]),
  z.array(z.union([z.string(), tokens.transform((each) => each.join(" "))]))
    .min(1).max(PROMPTS_MAX),
]);
const stopText = z.string().min(1);
const requestSchema = nullable(z.looseObject({
  model,
  prompt: stringOr(z.string(), prompts, "an array"),
  suffix: z.string().default(""),
  echo: z.boolean().default(false),
  max_tokens: integer(0).default(TOKENS_DEFAULT),
  n: integer(1, CHOICES_MAX).default(1),
  logprobs: integer(0, LOGPROBS_MAX).optional(),
  seed: integer(Number.MIN_SAFE_INTEGER).optional(),
  stop: stringOr(stopText, listOf(stopText, STOPS_MAX), "an array of strings")
    .optional(),
  stream: z.boolean().default(false),
  stream_options: nullable(
    z.looseObject({ include_usage: z.boolean().optional() }),
  ).optional(),
  temperature: decimal(0, 2).optional(),
  top_p: decimal(0, 1).optional(),
  presence_penalty: decimal(-2, 2).optional(),
  frequency_penalty: decimal(-2, 2).optional(),
}));

type Request = z.output<typeof requestSchema>;

/** Plans the texts. Throws an `ApiError` for an invalid request. */
export function completions({ text }: Received, cache: PromptCache): Planned {
  const request = checked(requestSchema, parseJsonBody(text));
  checkModel(request.model, "chat");
  const texts = typeof request.prompt === "string"
    ? [request.prompt]
    : request.prompt;
  if (texts.length * request.n > CHOICES_MAX) {
    const message = `Invalid 'n': at most ${CHOICES_MAX} choices in all.`;
    throw fieldError("invalid_value", "n", message);
  }
  const controls = readControls(texts.join(" "), "prompt");
  const answer = new TextAnswer(request, { texts, controls, cache });
  return request.stream
    ? eventAnswer(controls, answer.events(), { end: () => answer.lastEvents() })
    : wholeAnswer(controls, {
      pieces: answer.rounds.run(),
      end: () => answer.whole(),
    });
}

/** What a {@link TextAnswer} is made for. */
interface TextParts {
  texts: readonly string[];
  controls: Controls;
  cache: PromptCache;
}

/** One answer: `n` texts for each prompt. */
class TextAnswer {
  readonly rounds: Rounds;
  readonly #request: Request;
  readonly #texts: readonly string[];
  readonly #prompt: MeasuredPrompt;
  readonly #hasUsage: boolean;
  readonly #head: object;

  constructor(request: Request, { texts, controls, cache }: TextParts) {
    this.#request = request;
    this.#texts = texts;
    this.#hasUsage = controls.isUsageMissing !== true;
    const chats = texts.map((content) => chatOf(request, content));
    const prompts = chats.map((chat) => measured(chat, cache));
    this.#prompt = sumOf(prompts);
    const opening = request.suffix === "" ? OPENING : FILLING;
    // A gap is small.
    const own = request.suffix === ""
      ? controls
      : { exactTokens: FILLING.split(" ").length, ...controls };
    const choices = chats.flatMap((chat) =>
      Array.from({ length: request.n }, (_, index) => {
        const otherSeed = Math.random();
        return choiceOf(chat, own, { index, otherSeed, opening });
      })
    );
    this.rounds = new Rounds(request.max_tokens === 0 ? [] : choices);
    this.#head = {
      id: `cmpl-${newRequestId()}`,
      object: "text_completion",
      created: Math.floor(wallNow() / 1_000),
      model: request.model,
      system_fingerprint: "simulator-2",
    };
  }

  *events(): Generator<string> {
    for (const round of this.rounds.run()) {
      yield round.map((step) => this.#event(step)).join("");
    }
  }

  lastEvents(): string {
    const isWanted = this.#request.stream_options?.include_usage === true;
    const usage = isWanted && this.#hasUsage
      ? eventOf({ ...this.#head, choices: [], usage: this.#usage() })
      : "";
    return `${usage}data: [DONE]\n\n`;
  }

  whole(): string {
    const choices = this.#texts.flatMap((prompt, nth) =>
      Array.from({ length: this.#request.n }, (_, each) => {
        const index = nth * this.#request.n + each;
        const steps = this.rounds.steps[index] ?? [];
        const text = steps.map(({ delta }) => delta.content ?? "").join("");
        const echo = this.#request.echo ? prompt : "";
        const finish_reason = steps.at(-1)?.finish ?? "length";
        const logprobs = logprobsOf(steps);
        return { index, text: echo + text, logprobs, finish_reason };
      })
    );
    const usage = this.#hasUsage ? this.#usage() : undefined;
    return JSON.stringify({ ...this.#head, choices, usage });
  }

  #event({ step, index, isFirst }: Written): string {
    const { n, echo } = this.#request;
    const prompt = this.#texts[Math.floor(index / n)] ?? "";
    const text = (echo && isFirst ? prompt : "") + (step.delta.content ?? "");
    const finish_reason = step.finish ?? null;
    if (text === "" && finish_reason === null) return "";
    const logprobs = logprobsOf([step]);
    const choices = [{ index, text, logprobs, finish_reason }];
    return eventOf({ ...this.#head, choices });
  }

  #usage(): object {
    const { tokens: prompt_tokens, cached } = this.#prompt;
    const completion_tokens = this.rounds.steps.flat().length;
    return {
      prompt_tokens,
      completion_tokens,
      total_tokens: prompt_tokens + completion_tokens,
      prompt_tokens_details: cached.readTokens === 0
        ? undefined
        : { cached_tokens: cached.readTokens },
    };
  }
}

const eventOf = (data: object): string => `data: ${JSON.stringify(data)}\n\n`;

function chatOf(
  { model, suffix, prompt: _, echo: __, ...request }: Request,
  content: string,
) {
  const { logprobs, stop = [], max_tokens, ...sampling } = request;
  return withDefaults({
    model,
    messages: [
      { role: "user", content },
      ...suffix === "" ? [] : [{ role: "user" as const, content: suffix }],
    ],
    include_usage: false,
    n: 1,
    stream: sampling.stream,
    max_tokens: Math.max(1, max_tokens),
    stop: [stop].flat(),
    seed: sampling.seed,
    temperature: sampling.temperature,
    top_p: sampling.top_p,
    presence_penalty: sampling.presence_penalty,
    frequency_penalty: sampling.frequency_penalty,
    ...logprobs !== undefined && { logprobs: true, top_logprobs: logprobs },
  });
}

function sumOf(prompts: readonly MeasuredPrompt[]): MeasuredPrompt {
  const sum = (count: (prompt: MeasuredPrompt) => number) =>
    prompts.map(count).reduce((total, each) => total + each, 0);
  return {
    tokens: sum(({ tokens }) => tokens),
    cached: {
      readTokens: sum(({ cached }) => cached.readTokens),
      writtenTokens: sum(({ cached }) => cached.writtenTokens),
    },
  };
}

const sampled = z.looseObject({
  token: z.string(),
  logprob: z.number(),
  top_logprobs: z.array(
    z.looseObject({ token: z.string(), logprob: z.number() }),
  ),
});

/** The older form of log probabilities: lists beside each other. */
function logprobsOf(steps: readonly Step[]): object | null {
  const entries = steps.flatMap(({ logprobs = [] }) => logprobs)
    .map((entry) => sampled.parse(entry));
  if (entries.length === 0) return null;
  let at = 0;
  return {
    tokens: entries.map(({ token }) => token),
    token_logprobs: entries.map(({ logprob }) => logprob),
    top_logprobs: entries.map(({ top_logprobs }) =>
      Object.fromEntries(
        top_logprobs.map(({ token, logprob }) => [token, logprob]),
      )
    ),
    text_offset: entries.map(({ token }) => {
      const offset = at;
      at += token.length;
      return offset;
    }),
  };
}
