import type { RandomBytes } from "@gateway/shared/process/ids";
import { mintStoreName } from "@gateway/shared/keys/key";
import { keysKey, STORE_KEY } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { ownersKey } from "./names.ts";
import { asTexts } from "./reply.ts";

const OWNERS_AT_ONCE = 100;

/**
 * Names the store where it holds keys and has no name: they were made before
 * stores had one. A Redis without keys stays nameless, because it may be one that
 * has lost them; the next key that somebody makes will name it. Returns whether
 * it was named.
 */
export async function nameOldStore(
  redis: RedisLink,
  randomBytes: RandomBytes,
): Promise<boolean> {
  if (await redis.command(["EXISTS", STORE_KEY]) === 1) return false;
  if (!await holdsKeys(redis)) return false;
  const name = mintStoreName(randomBytes);
  return await redis.command(["SET", STORE_KEY, name, "NX"]) !== null;
}

async function holdsKeys(redis: RedisLink): Promise<boolean> {
  for (let offset = 0;; offset += OWNERS_AT_ONCE) {
    const end = String(offset + OWNERS_AT_ONCE - 1);
    const owners = asTexts(
      await redis.command(["ZRANGE", ownersKey, String(offset), end]),
    );
    if (owners.length === 0) return false;
    const counts = await Promise.all(
      owners.map((owner) => redis.command(["ZCARD", keysKey(owner)])),
    );
    if (counts.some((count) => Number(count) > 0)) return true;
  }
}
