/** Carries what a key has spent of its budgets over to the key that replaces it. */
import { TOTAL_WINDOW } from "@gateway/shared/keys/budget_calendar";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyRecord, spendKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";

type OwnedKey = Pick<KeyRecord, "ownerId" | "id">;

const DAY_MS = 86_400_000;
const MONTH_CHARS = "202611".length;

/**
 * Lets the budgets of a new key begin where those of another one are, before anybody
 * can use it: otherwise, a rotation would refill them. What requests hold that run is
 * not carried, because it comes back to the other one.
 */
export async function carrySpend(
  redis: Pick<RedisLink, "command">,
  [from, to]: readonly [from: OwnedKey, to: OwnedKey],
  nowMs: number,
): Promise<void> {
  for (const window of windowsAround(nowMs)) {
    const copy = nameOf(to, window);
    // With its expiry; 0: there is nothing.
    const copied = await redis.command(["COPY", nameOf(from, window), copy]);
    if (copied === 1) await redis.command(["HDEL", copy, "h"]);
  }
}

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
