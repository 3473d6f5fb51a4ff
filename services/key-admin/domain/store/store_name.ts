import { mintStoreName } from "@gateway/shared/keys/key";
import { keysKey, STORE_KEY } from "@gateway/shared/keys/record";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { ownersKey } from "./names.ts";
import { asTexts } from "./reply.ts";

/**
 * Names a store with keys from before stores had names. A Redis without keys stays
 * nameless, because it may have lost them; the next new key names it. Returns
 * whether it was named.
 */
export async function nameOldStore(
  redis: RedisLink,
  randomBytes: RandomBytes,
): Promise<boolean> {
  if (await redis.command(["EXISTS", STORE_KEY]) === 1) return false;
  const owners = asTexts(await redis.command(["ZRANGE", ownersKey, "0", "-1"]));
  for (const owner of owners) {
    if (await redis.command(["ZCARD", keysKey(owner)]) === 0) continue;
    const name = mintStoreName(randomBytes);
    return await redis.command(["SET", STORE_KEY, name, "NX"]) !== null;
  }
  return false;
}
