/** Tokens that stand in headers, because the body of an answer is nothing but sound. */
import { USAGE_HEADER } from "@gateway/shared/bus/media_head";
import type { JsonObject } from "@gateway/shared/upstream/json";
import type { ServerResponse } from "@gateway/shared/upstream/model_server";

const COUNT = /^\d{1,10}$/;
/** What each header counts, under OpenAI's name. */
const MEMBERS: readonly [member: string, RegExp][] = [
  ["input_tokens", /-(?:tokens-in|input-tokens|prompt-tokens)$/],
  ["output_tokens", /-(?:tokens-out|output-tokens|completion-tokens)$/],
  ["total_tokens", /-total-tokens$/],
];

/** The headers of a response that state its tokens, by name in lower case. */
export function usageHeaders(
  { head: { fields } }: Pick<ServerResponse, "head">,
): Record<string, string> {
  return Object.fromEntries(
    [...fields].filter(([name, value]) =>
      USAGE_HEADER.test(name) && COUNT.test(value)
    ),
  );
}

/**
 * The usage that such headers state, as OpenAI writes it; undefined without a total.
 */
export function usageInHeaders(
  headers: Readonly<Record<string, string>>,
): JsonObject | undefined {
  const usage: JsonObject = {};
  for (const [name, value] of Object.entries(headers)) {
    const [member] = MEMBERS.find(([, form]) => form.test(name)) ?? [];
    if (member !== undefined) usage[member] = Number(value);
  }
  return "total_tokens" in usage ? usage : undefined;
}
