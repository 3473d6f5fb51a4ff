/**
 * `POST /v1/embeddings`: texts with the same words get vectors that are near each
 * other.
 */
import { Buffer } from "node:buffer";
import { integer, model } from "@gateway/shared/openai/fields";
import { textTokens } from "@gateway/shared/openai/tokens";
import { z } from "zod";
import { hashText } from "../chat/language.ts";
import { type Planned, wholeAnswer } from "../serving/answer.ts";
import { readControls } from "../serving/controls.ts";
import { readMedia, type Received } from "../serving/fields.ts";

const INPUTS_MAX = 2_048;
const DIMENSIONS = 256;
const DIMENSIONS_MAX = 4_096;
const BYTES_PER_NUMBER = 4;

const tokens = z.array(z.int().min(0)).min(1);
const text = z.string().min(1);
const input = z.union([
  text,
  tokens,
  z.array(text).min(1).max(INPUTS_MAX),
  z.array(tokens).min(1).max(INPUTS_MAX),
]);
const embeddingRequest = z.object({
  model,
  input,
  dimensions: integer(1, DIMENSIONS_MAX).default(DIMENSIONS),
  encoding_format: z.enum(["float", "base64"]).default("float"),
});

/** Plans the vectors of texts. Throws an `ApiError` for an invalid request. */
export function embed(received: Received): Planned {
  const { input, dimensions, encoding_format, ...request } = readMedia(
    "embedding",
    embeddingRequest,
    received,
  );
  const inputs = inputsOf(input);
  const controls = readControls(inputs.join(" "), "input");
  const end = () => {
    const data = inputs.map((words, index) => {
      const numbers = vectorOf(words, dimensions);
      const embedding = encoding_format === "base64"
        ? base64Of(numbers)
        : numbers;
      return { object: "embedding", index, embedding };
    });
    const prompt_tokens = tokensOf(input);
    const usage = controls.isUsageMissing
      ? undefined
      : { prompt_tokens, total_tokens: prompt_tokens };
    return JSON.stringify({
      object: "list",
      data,
      model: request.model,
      usage,
    });
  };
  return wholeAnswer(controls, { pieces: inputs, end });
}

/** Texts; tokens stand for words of which nothing but their numbers is known. */
function inputsOf(input: z.output<typeof embeddingRequest>["input"]): string[] {
  if (typeof input === "string") return [input];
  const isTokens = input.every((each) => typeof each === "number");
  if (isTokens) return [input.join(" ")];
  return input.map((each) =>
    typeof each === "string" ? each : [each].flat().join(" ")
  );
}

/** The tokens of all inputs: each text has at least one. */
function tokensOf(input: z.output<typeof embeddingRequest>["input"]): number {
  if (typeof input === "string") return Math.ceil(textTokens(input));
  return input.reduce((sum: number, each) => {
    if (typeof each === "number") return sum + 1;
    const own = typeof each === "string"
      ? Math.ceil(textTokens(each))
      : each.length;
    return sum + own;
  }, 0);
}

/** The words of a text, without regard to their case and order. */
export const wordsOf = (text: string): string[] =>
  text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [text];

/**
 * A vector of length 1. Each word adds to a few of the numbers, always the same ones.
 */
function vectorOf(text: string, dimensions: number): number[] {
  const numbers = new Array<number>(dimensions).fill(0);
  for (const word of wordsOf(text)) {
    for (const part of ["a", "b", "c"]) {
      const hash = hashText(`${part}${word}`);
      const at = hash % dimensions;
      const sign = hash & 0x10000 ? 1 : -1;
      numbers[at] = (numbers[at] ?? 0) + sign;
    }
  }
  const length = Math.hypot(...numbers) || 1;
  return numbers.map((number) => Math.fround(number / length));
}

/** The form that OpenAI's SDKs ask for: 32-bit floats, the lowest byte first. */
function base64Of(numbers: readonly number[]): string {
  const bytes = Buffer.alloc(numbers.length * BYTES_PER_NUMBER);
  numbers.forEach((number, index) => {
    bytes.writeFloatLE(number, index * BYTES_PER_NUMBER);
  });
  return bytes.toString("base64");
}
