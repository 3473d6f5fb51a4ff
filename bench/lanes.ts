/** What is asked besides chat completions: the lanes of forwarded endpoints. */

/** How the model server streams: it reads this from the prompt. */
export interface Pace {
  tokens: number;
  paceMs: number;
}

/** One kind of request, and what distinguishes a right answer. */
export interface Lane {
  readonly name: string;
  /** Below `/v1`. */
  readonly path: string;
  /** The body for a prompt; `stream` asks for events. */
  body(prompt: string, stream: boolean): object;
}

const MODEL = "neutral-3.7-plus";
/** The model of the lanes of vectors. */
export const VECTOR_MODEL = "bge-m3";
const TOKENS_MAX = 100;
/** The model server counts how often this stands in a request. */
export const INPUT = "A text";

const userSays = (content: string) => [{ role: "user", content }];

/** Chat completions, with which the others are compared. */
export const CHAT: Lane = {
  name: "chat",
  path: "/chat/completions",
  body: (prompt, stream) => ({
    model: MODEL,
    messages: userSays(prompt),
    max_tokens: TOKENS_MAX,
    stream,
  }),
};

/** The lanes that can be streamed. */
export const TEXT_LANES: readonly Lane[] = [
  {
    name: "messages",
    path: "/messages",
    body: (prompt, stream) => ({
      model: MODEL,
      messages: userSays(prompt),
      max_tokens: TOKENS_MAX,
      stream,
    }),
  },
  {
    name: "responses",
    path: "/responses",
    body: (input, stream) => ({
      model: MODEL,
      input,
      max_output_tokens: TOKENS_MAX,
      stream,
    }),
  },
];

/** The lanes of vectors with 1,536 numbers each. */
export const VECTOR_LANES: readonly Lane[] = [1, 100].flatMap((count) =>
  ["float", "base64"].map((encoding): Lane => ({
    name: `embeddings, ${count} as ${encoding}`,
    path: "/embeddings",
    body: () => ({
      model: VECTOR_MODEL,
      input: Array.from({ length: count }, () => INPUT),
      encoding_format: encoding,
    }),
  }))
);

/** A chat model whose server has limits, which are never reached. */
const LIMITED_MODEL = "limited";
/** One whose server has several keys besides, each with limits. */
const POOLED_MODEL = "pooled";
/** A chat model with prices. */
export const PRICED_MODEL = "priced";
const PRICES = { input: "2.5", cached_input: "0.25", output: "10" };
/** The variables of these keys, and what they hold. */
export const POOL_KEYS = { BENCH_A_KEY: "a", BENCH_B_KEY: "b" };
const NEVER_REACHED = {
  requests_per_minute: 10_000_000,
  tokens_per_minute: 1_000_000_000,
  concurrency: 100_000,
};

/** Chat completions of models whose servers have limits. */
export const LIMITED_LANES: readonly Lane[] = [
  { name: "limits of the server", model: LIMITED_MODEL },
  { name: "limits of two keys", model: POOLED_MODEL },
].map(({ name, model }) => ({
  ...CHAT,
  name,
  body: (prompt, stream) => ({ ...CHAT.body(prompt, stream), model }),
}));

/**
 * A models file for this gateway, whose model server has all lanes. Prices count for
 * each request, also to models without one, so only `isPriced` has some.
 */
export function modelsFile(
  modelUrl: string,
  { isPriced }: { isPriced: boolean },
): string {
  const backend = { type: "openai", base_url: modelUrl };
  const speaks = ["chat", "messages", "responses"];
  const chat = { ...backend, model: MODEL, speaks };
  const pool = {
    api_key_envs: Object.keys(POOL_KEYS),
    key_limits: { "*": NEVER_REACHED },
  };
  return JSON.stringify({
    models: [
      { id: MODEL, backends: [chat] },
      {
        id: PRICED_MODEL,
        backends: [chat],
        ...isPriced && { prices: PRICES },
      },
      { id: LIMITED_MODEL, backends: [{ ...chat, ...NEVER_REACHED }] },
      { id: POOLED_MODEL, backends: [{ ...chat, ...pool }] },
      {
        id: VECTOR_MODEL,
        kind: "embedding",
        backends: [{ ...backend, model: VECTOR_MODEL }],
      },
    ],
  });
}
