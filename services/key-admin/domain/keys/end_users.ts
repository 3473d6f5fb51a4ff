/** The limits of each end user of a key, as owners write and read them. */
import { type EndUsers, isEndUserSource } from "@gateway/shared/keys/end_user";
import {
  AMOUNT_FAULTS,
  formatAmount,
  parseAmount,
} from "@gateway/shared/money/amount";
import { clip, didYouMean } from "@gateway/shared/process/error_text";
import { z } from "zod";

const REQUESTS_MAX = 1_000_000;
const TOKENS_MAX = 1_000_000_000_000;
/** The limits by the names in the text. */
const LIMITS = {
  rpm: "requestsPerMinute",
  tpm: "tokensPerMinute",
  "budget-day": "budgetDay",
} as const;
type LimitWord = keyof typeof LIMITS;
const WORDS: readonly LimitWord[] = ["rpm", "tpm", "budget-day"];

/** An example, which texts and messages show. */
export const END_USERS_EXAMPLE = "header:x-user-id rpm=60 budget-day=2.50";
const SOURCES =
  "Begin with what tells end users apart: header:<name>, user or session";

/**
 * Reads `header:x-user-id rpm=60 tpm=10000 budget-day=2.50`, of which one limit must be
 * there. An empty text is null.
 */
export const endUsersSetting = z.string().transform((text, context) => {
  const [from = "", ...words] = text.trim().split(/\s+/);
  if (from === "") return null;
  const source = from.toLowerCase();
  if (!isEndUserSource(source)) {
    context.addIssue(`${clip(from)}: ${SOURCES}`);
    return z.NEVER;
  }
  const limits = { requestsPerMinute: 0, tokensPerMinute: 0, budgetDay: 0 };
  for (const each of words) {
    const limit = readLimit(each);
    if (typeof limit === "string") {
      context.addIssue(`${clip(each)}: ${limit}`);
      return z.NEVER;
    }
    limits[LIMITS[limit.word]] = limit.value;
  }
  if (Object.values(limits).every((limit) => limit === 0)) {
    context.addIssue(`Name a limit, as in ${END_USERS_EXAMPLE}`);
    return z.NEVER;
  }
  return { from: source, ...limits };
});

/** Reads `rpm=60`. Returns a text that names the mistake if it cannot be read. */
function readLimit(text: string): { word: LimitWord; value: number } | string {
  const [name = "", value = ""] = text.split("=", 2);
  const word = WORDS.find((each) => each === name);
  if (word === undefined) {
    const hint = didYouMean(name, WORDS) || `: ${WORDS.join(", ")}`;
    return `There is no such limit${hint}`;
  }
  if (word === "budget-day") {
    const nanos = parseAmount(value);
    return typeof nanos === "number"
      ? { word, value: nanos }
      : AMOUNT_FAULTS[nanos].replace("expected", "Expected");
  }
  const max = word === "rpm" ? REQUESTS_MAX : TOKENS_MAX;
  const count = /^\d+$/.test(value) ? Number(value) : NaN;
  return count <= max
    ? { word, value: count }
    : `Must be a whole number, at most ${max.toLocaleString("en")}`;
}

/** The setting as {@link endUsersSetting} reads it; empty: none. */
export function endUsersWords(users: EndUsers | null): string {
  if (users === null) return "";
  const { from, requestsPerMinute, tokensPerMinute, budgetDay } = users;
  return [
    from,
    requestsPerMinute > 0 && `rpm=${requestsPerMinute}`,
    tokensPerMinute > 0 && `tpm=${tokensPerMinute}`,
    budgetDay > 0 && `budget-day=${formatAmount(budgetDay)}`,
  ].filter((word) => word !== false).join(" ");
}
