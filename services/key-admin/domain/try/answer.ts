import { z } from "zod";

/** Facts about an answer, and their labels. */
export const TRY_FACTS = [
  ["finish", "Finish reason"],
  ["input", "Input tokens"],
  ["output", "Output tokens"],
  ["first", "First token after"],
  ["total", "Complete after"],
  ["request", "Request ID"],
] as const;

/** The texts that the page "Try it" shows of an answer. */
export type TryAnswer = Readonly<
  Partial<
    Record<
      "error" | "thinking" | "content" | "calls" | typeof TRY_FACTS[number][0],
      string
    >
  >
>;

/** The header in which the API's id of a request reaches the page's script. */
export const API_REQUEST_ID = "x-api-request-id";

const text = z.string().nullish().transform((text) => text ?? "");
const count = z.number().transform((count) => count.toLocaleString("en-US"));

const answered = z.object({
  choices: z.tuple([z.object({
    message: z.object({
      content: text,
      reasoning_content: text,
      tool_calls: z.array(z.unknown()).optional()
        .transform((calls) => calls ? JSON.stringify(calls, null, 2) : ""),
    }),
    finish_reason: text,
  })]),
  usage: z.object({ prompt_tokens: count, completion_tokens: count }),
});
const refused = z.object({
  error: z.object({ message: z.string(), code: text }),
});

const UNREADABLE = "The answer is incomplete, or not one of the API.";

/** Reads a whole answer to a request that was sent at `startMs`. */
export async function readAnswer(
  response: Response,
  startMs: number,
): Promise<TryAnswer> {
  // It may be cut off, or come from something other than an edge.
  const body: unknown = await response.json().catch(() => undefined);
  const { data } = z.union([answered, refused]).safeParse(body);
  const facts = {
    total: `${((performance.now() - startMs) / 1_000).toFixed(2)} s`,
    request: response.headers.get("x-request-id") ?? "",
  };
  if (data === undefined || "error" in data) {
    const { code = "", message = UNREADABLE } = data?.error ?? {};
    return { ...facts, error: `${code || response.status}: ${message}` };
  }
  const { choices: [{ message, finish_reason }], usage } = data;
  return {
    ...facts,
    thinking: message.reasoning_content,
    content: message.content,
    calls: message.tool_calls,
    finish: finish_reason,
    input: usage.prompt_tokens,
    output: usage.completion_tokens,
  };
}
