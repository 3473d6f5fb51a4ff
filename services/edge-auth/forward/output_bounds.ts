/**
 * Bounds on the output of forwarded requests, lowered in place to what their model
 * allows: agents ask for 32,000 and 64,000 tokens by themselves, so it is no reason to
 * refuse them.
 */
import { edited, type ForwardBody, spanOf } from "@gateway/shared/forward/body";
import { type Edit, membersOf } from "@gateway/shared/forward/members";
import { isJsonObject } from "@gateway/shared/process/error_text";

/**
 * The names of the bound in any dialect. A server that converts the requests of one
 * dialect to another may read any of them.
 */
export const OUTPUT_BOUNDS = [
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
] as const;

/** The least that Anthropic's API takes as a budget of thinking. */
const THINKING_TOKENS_MIN = 1_024;

/** The body with no bound above `longest`, and with thinking that is below it. */
export function withinBounds(body: ForwardBody, longest: number): ForwardBody {
  const edits = OUTPUT_BOUNDS.flatMap((name): Edit[] => {
    const bound = body.value[name];
    const at = spanOf(body, name);
    if (typeof bound !== "number" || bound <= longest || at === null) return [];
    return [{ ...at, text: String(longest) }];
  });
  if (edits.length === 0) return body;
  return edited(body, [...edits, ...thinkingWithin(body, longest)]);
}

/**
 * Anthropic's API refuses a budget of thinking that leaves nothing of `max_tokens`: it
 * becomes half of what is left.
 */
function thinkingWithin(body: ForwardBody, longest: number): Edit[] {
  const { thinking, max_tokens: bound } = body.value;
  const at = spanOf(body, "thinking");
  if (at === null || !isJsonObject(thinking) || !Number.isFinite(longest)) {
    return [];
  }
  const { budget_tokens: budget } = thinking;
  const isBelow = typeof budget !== "number" || budget < longest ||
    typeof bound !== "number" || budget >= bound;
  if (isBelow) return [];
  const least = Math.min(THINKING_TOKENS_MIN, longest - 1);
  const text = String(Math.max(least, Math.floor(longest / 2)));
  const members = membersOf(body.text.slice(at.from, at.to)) ?? [];
  return members.filter(({ name }) => name === "budget_tokens")
    .map(({ from, to }) => ({ from: at.from + from, to: at.from + to, text }));
}
