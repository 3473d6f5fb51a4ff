/** What a key has spent of its budgets goes over to the key that replaces it. */
import { TOTAL_WINDOW } from "@gateway/shared/keys/budget_calendar";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyRecord, spendKey } from "@gateway/shared/keys/record";

type OwnedKey = Pick<KeyRecord, "ownerId" | "id">;

const DAY_MS = 86_400_000;
const MONTH_CHARS = "202611".length;

/** Pairs of names of budgets: from the first one, spend goes over to the second one. */
export type CarriedBudgets = readonly (readonly [from: string, to: string])[];

/**
 * Where the budgets of a key count and where those of the key that replaces it do, in
 * pairs, for the script that makes this key: otherwise, a rotation would refill them.
 */
export const carriedBudgets = (
  from: OwnedKey,
  to: OwnedKey,
  nowMs: number,
): CarriedBudgets =>
  windowsAround(nowMs)
    .map((window) => [nameOf(from, window), nameOf(to, window)]);

const nameOf = ({ ownerId, id: keyId }: OwnedKey, window: string): string =>
  spendKey({ ownerId, keyId }, window);

/** The windows of budgets that this time may be in, in any time zone. */
function windowsAround(nowMs: number): readonly string[] {
  const days = [-1, 0, 1].map((n) => usageDay(nowMs + n * DAY_MS));
  const months = new Set(days.map((day) => day.slice(0, MONTH_CHARS)));
  return [
    TOTAL_WINDOW,
    ...days.map((day) => `d${day}`),
    ...Array.from(months, (month) => `m${month}`),
  ];
}
