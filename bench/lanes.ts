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

/** A models file for this gateway, whose model server has all lanes. */
export function modelsFile(modelUrl: string): string {
  const backend = { type: "openai", base_url: modelUrl };
  const speaks = ["chat", "messages", "responses"];
  return JSON.stringify({
    models: [
      { id: MODEL, backends: [{ ...backend, model: MODEL, speaks }] },
      {
        id: VECTOR_MODEL,
        kind: "embedding",
        backends: [{ ...backend, model: VECTOR_MODEL }],
      },
    ],
  });
}
