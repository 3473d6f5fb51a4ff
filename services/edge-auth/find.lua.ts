import { STORE_KEY } from "@gateway/shared/keys/record";
import { defineScript, type RedisScript } from "@gateway/shared/redis/script";

/**
 * Finds whose key it is, and whose data that was looked for in: both at one
 * moment, so that a server that loses its data meanwhile knows no key wrongly.
 *
 * ```
 * KEYS  none: read only, and in KEYS EVALSHA demands write access
 * ARGV  1 hash key
 *
 * reply {"<key id>:<owner id>" or nil, name of the store or nil}
 * ```
 */
export const FIND: RedisScript = defineScript(
  "find",
  `
return {redis.call('GET', ARGV[1]), redis.call('GET', '${STORE_KEY}')}
`,
);
