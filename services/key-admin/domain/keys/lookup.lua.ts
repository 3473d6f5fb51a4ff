import { defineScript, type RedisScript } from "@gateway/shared/redis/script";

/**
 * Writes the look-up of a new key, and with the very first one the name of the
 * store: never one without the other, or an edge would doubt a good key.
 *
 * KEYS: 1 the look-up, 2 the name of the store.
 * ARGV: 1 what the look-up says, 2 a name for a store that has none.
 * Reply: 1.
 */
export const LOOKUP_SCRIPT: RedisScript = defineScript(
  "key-admin/lookup",
  `
redis.call('SET', KEYS[2], ARGV[2], 'NX')
redis.call('SET', KEYS[1], ARGV[1])
return 1
`,
);
