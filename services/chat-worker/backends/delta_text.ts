/** The texts of a delta or message, in the forms in which model servers send them. */
import {
  isJsonObject,
  type JsonObject,
  textOf,
} from "@gateway/shared/upstream/json";

/** The thinking of a delta, under the names that servers give it. */
export function reasoningIn(delta: JsonObject): string {
  return textOf(delta.reasoning_content) || textOf(delta.reasoning) ||
    thinkingIn(delta.content);
}

/**
 * Content is text; of a list of parts, which some servers send, the text parts count.
 */
export function contentOf(content: unknown): string {
  if (!Array.isArray(content)) return textOf(content);
  return content.filter(isJsonObject).map(({ text }) => textOf(text)).join("");
}

/** Mistral's parts with thinking are lists of parts themselves. */
function thinkingIn(content: unknown): string {
  const parts = Array.isArray(content) ? content.filter(isJsonObject) : [];
  return parts.map(({ thinking }) => contentOf(thinking)).join("");
}
