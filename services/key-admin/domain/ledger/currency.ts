/** Remembers the currency in which money was counted: amounts in Redis name none. */
import type { RedisLink } from "@gateway/shared/redis/link";

const KEY = "ledger:currency";

/**
 * Stores the currency of this configuration. Returns the previous one if it was
 * another: counts and budgets stay as they are, and now mean this currency.
 */
export async function keepCurrency(
  redis: Pick<RedisLink, "command">,
  currency: string,
): Promise<string | null> {
  const before = await redis.command(["SET", KEY, currency, "GET"]);
  return before === null || before === currency ? null : String(before);
}
