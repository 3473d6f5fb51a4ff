/** The part of an answer of the API that the page "Try it" shows. */
import { videoSchema } from "@gateway/shared/openai/media";
import { parseJson } from "@gateway/shared/upstream/json";
import { z } from "zod";
import { TRY_LIMITS } from "./key.ts";
import { wholeBody } from "./edge.ts";

/** Facts about every answer, with their labels. Kinds of models add their own. */
export const TRY_FACTS = {
  status: "Status",
  total: "Complete after",
  request: "Request ID",
} as const;

/**
 * An image, audio or a video: its URL, and the name of the file that it is saved to.
 */
export type Medium = readonly [url: string, file: string];

/** What the page "Try it" shows of an answer. */
export interface TryAnswer {
  /** Texts and facts by their names. */
  texts: Readonly<Record<string, string>>;
  media: readonly Medium[];
  /** The path of a page that shows a video which is still being made. */
  again?: string | undefined;
}

const text = z.string().nullish().transform((text) => text ?? "");
const count = z.number().transform((count) => count.toLocaleString("en-US"));

const chat = z.object({
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
}).transform(({ choices: [{ message, finish_reason }], usage }) => ({
  texts: {
    thinking: message.reasoning_content,
    content: message.content,
    calls: message.tool_calls,
    finish: finish_reason,
    input: usage.prompt_tokens,
    output: usage.completion_tokens,
  },
}));
const response = z.object({
  object: z.literal("response"),
  status: text,
  output: z.array(z.looseObject({ type: z.string() })),
  usage: z.object({ input_tokens: count, output_tokens: count }),
}).transform(({ status, output, usage }) => ({
  texts: {
    thinking: textsIn(output, "reasoning", "summary"),
    content: textsIn(output, "message", "content"),
    calls: jsonOf(output.filter(({ type }) => type === "function_call")),
    finish: status,
    input: usage.input_tokens,
    output: usage.output_tokens,
  },
}));
const message = z.object({
  type: z.literal("message"),
  content: z.array(z.looseObject({ type: z.string() })),
  stop_reason: text,
  usage: z.object({
    input_tokens: z.number(),
    cache_read_input_tokens: z.number().nullish(),
    cache_creation_input_tokens: z.number().nullish(),
    output_tokens: count,
  }),
}).transform(({ content, stop_reason, usage }) => ({
  texts: {
    thinking: content.map(({ thinking }) => String(thinking ?? "")).join(""),
    content: content.map(({ text }) => String(text ?? "")).join(""),
    calls: jsonOf(content.filter(({ type }) => type === "tool_use")),
    finish: stop_reason,
    // Anthropic's input does not contain what concerns the cache.
    input: (usage.input_tokens + (usage.cache_read_input_tokens ?? 0) +
      (usage.cache_creation_input_tokens ?? 0)).toLocaleString("en-US"),
    output: usage.output_tokens,
  },
}));
const part = z.looseObject({ text: z.string() });

/** The texts in this member of items of this type. */
function textsIn(
  items: readonly { type: string; [member: string]: unknown }[],
  type: string,
  member: string,
): string {
  return items.filter((item) => item.type === type)
    .flatMap((item) => z.array(part).safeParse(item[member]).data ?? [])
    .map(({ text }) => text).join("");
}

const jsonOf = (calls: readonly object[]): string =>
  calls.length > 0 ? JSON.stringify(calls, null, 2) : "";

const vectors = z.object({
  data: z.array(z.object({ embedding: z.array(z.number()).min(1) })).min(1),
  usage: z.object({ prompt_tokens: count }).optional(),
}).transform(({ data, usage }) => {
  const all = data.map(({ embedding }) => embedding);
  const [one = [], other] = all;
  return {
    texts: {
      content: all.map((vector) => `[${vector.map(shortNumber).join(", ")}]`)
        .join("\n\n"),
      numbers: one.length.toLocaleString("en-US"),
      cosine: other === undefined ? "" : cosineOf(one, other).toFixed(4),
      input: usage?.prompt_tokens ?? "",
    },
  };
});

const shortNumber = (number: number): string => String(+number.toFixed(4));

/** How alike two vectors are: 1 if they have the same direction. */
function cosineOf(one: readonly number[], other: readonly number[]): number {
  const dot = one.reduce((sum, each, at) => sum + each * (other[at] ?? 0), 0);
  return dot / (Math.hypot(...one) * Math.hypot(...other) || 1);
}

const images = z.object({
  data: z.array(z.object({ b64_json: z.string() })),
  output_format: z.enum(["png", "jpeg", "webp"]).catch("png"),
  usage: z.object({ input_tokens: count, output_tokens: count }).optional(),
}).transform(({ data, output_format, usage }) => ({
  media: data.map(({ b64_json }, at): Medium => [
    `data:image/${output_format};base64,${b64_json}`,
    `image-${at + 1}.${output_format}`,
  ]),
  texts: usage
    ? { input: usage.input_tokens, output: usage.output_tokens }
    : {},
}));
const transcript = z.object({ text: z.string() })
  .transform(({ text }) => ({ texts: { content: text } }));
const STATES = {
  queued: "Queued",
  in_progress: "In progress",
  failed: "Failed",
};
const video = videoSchema.transform(({ id, status, progress, ...times }) => {
  const path = `/try/videos/${id}`;
  if (status === "completed") {
    const media: Medium[] = [[`${path}/content`, "video.mp4"]];
    const seconds = (times.completed_at ?? 0) - times.created_at;
    return { texts: { total: `${seconds} s` }, media };
  }
  const state = `${STATES[status]}, ${progress}%`;
  const again = status === "failed" ? undefined : path;
  return { texts: { state, total: "Not complete" }, again };
});
/** A video that has failed is one, too. */
const refused = z.object({
  error: z.object({ message: z.string(), code: text }),
});
const anyAnswer = z.union([
  refused,
  chat,
  response,
  message,
  vectors,
  images,
  transcript,
  video,
]);

const UNREADABLE = "The answer is incomplete, or did not come from the API.";
const { heldBytes: bytesMax } = TRY_LIMITS;
const TOO_LARGE = `The answer has more than ${
  bytesMax / 2 ** 20
} MiB, the most that the page shows. Ask for less.`;

/** Reads a whole answer to a request that was sent at `startMs`. */
export async function readAnswer(
  response: Response,
  startMs: number,
): Promise<TryAnswer> {
  const tooLarge = new Error();
  const bytes = await wholeBody(response.body, { bytesMax, tooLarge })
    .catch((error) => error === tooLarge ? TOO_LARGE : UNREADABLE);
  const type = response.headers.get("content-type") ?? "";
  const facts = {
    status: String(response.status),
    total: `${((performance.now() - startMs) / 1_000).toFixed(2)} s`,
    request: response.headers.get("x-request-id") ?? "",
  };
  const isWhole = typeof bytes !== "string";
  if (isWhole && response.ok && type.startsWith("audio/")) {
    const url = `data:${type};base64,${bytes.toString("base64")}`;
    const file = `speech.${type === "audio/mpeg" ? "mp3" : type.slice(6)}`;
    return { texts: facts, media: [[url, file]] };
  }
  const data = anyAnswer.safeParse(isWhole && parseJson(bytes.toString())).data;
  if (data === undefined || "error" in data) {
    const unread = { code: "", message: isWhole ? UNREADABLE : bytes };
    const { code, message } = data?.error ?? unread;
    const error = `${code || response.status}: ${message}`;
    return { texts: { ...facts, error }, media: [] };
  }
  return { media: [], ...data, texts: { ...facts, ...data.texts } };
}
