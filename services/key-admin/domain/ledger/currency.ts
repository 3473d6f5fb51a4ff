/** In which currency money was counted so far: amounts in Redis have none of their own. */
import type { RedisLink } from "@gateway/shared/redis/link";

const KEY = "ledger:currency";

/**
 * Keeps the currency of this configuration. Returns the one before, if that is another:
 * what was counted and every budget stay as they are, and are now read in this one.
 */
export async function keepCurrency(
  redis: Pick<RedisLink, "command">,
  currency: string,
): Promise<string | null> {
  const before = await redis.command(["SET", KEY, currency, "GET"]);
  return before === null || before === currency ? null : String(before);
}
