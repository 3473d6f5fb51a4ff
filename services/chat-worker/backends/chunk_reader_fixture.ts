/** Reads chunks as a model server would send them, and writes those of tool calls. */
import type { Usage } from "@gateway/shared/openai/completion";
import {
  choiceChunk,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import { newAnswer } from "./answer/answer_fixture.ts";
import { ChunkReader } from "./chunk_reader.ts";

/** A reader for an answer with `n` choices, which keeps `secret` to itself. */
export function newReader(n = 1) {
  const { answer, context } = newAnswer({ n });
  const redact = (text: string) => text.replaceAll("secret", "[redacted]");
  const { choices } = answer;
  const reader = new ChunkReader({ answer, choices, redact });
  return { reader, answer, context };
}

/** Reads chunks to their end, and returns the call that got the answer. */
export function read(
  chunks: readonly unknown[],
  n = 1,
  { isWhole = true } = {},
) {
  const { reader, answer, context } = newReader(n);
  for (const chunk of chunks) {
    const text = typeof chunk === "string" ? chunk : JSON.stringify(chunk);
    reader.take(text, "");
  }
  answer.end(reader.end({ isWhole }));
  return context;
}

/** A chunk of some words of one choice. */
export function say(content: string, reason: string | null = null, index = 0) {
  return choiceChunk({ content }, reason, index);
}

/** The chunk that ends a choice. */
export const stop = choiceChunk({}, "stop");
/** The usual end of an answer: its finish reason, then its usage. */
export const end = [stop, usageChunk(3, 2)];
/** The usage in {@link end}. */
export const counted: Usage = usage(3, 2);

/**
 * A fragment as `index id name arguments`, or `index arguments`; `-`: absent, `""`:
 * empty.
 */
export function fragmentOf(text: string): object {
  const words = text.split(" ").map((word) =>
    word === "-" ? undefined : word === "null" ? null : word.replace(`""`, "")
  );
  const [index, id, name] = words.length === 2 ? [words[0]] : words;
  const called = { name, arguments: words.at(-1) };
  return { index: index && Number(index), id, function: called };
}

/** Chunks with fragments: `|` is between chunks, `+` between fragments of one. */
export const fragmentsOf = (text: string): object[][] =>
  text.split(" | ").map((chunk) => chunk.split(" + ").map(fragmentOf));

/** A chunk with these tool calls. */
export const calls = (list: unknown) => choiceChunk({ tool_calls: list });

/** Usage as OpenAI counts it. */
export function usage(
  prompt: number,
  completion: number,
  more: object = {},
): Usage {
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...more,
  };
}
