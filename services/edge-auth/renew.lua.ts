import { defineScript, type RedisScript } from "@gateway/shared/redis/script";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import { LEASE_MS, LEASES_TTL_MS } from "./admit.lua.ts";

/**
 * Renews leases of running requests of one key.
 *
 * ```
 * KEYS  1 lease:{owner}:<key>   2 lease:{owner}
 * ARGV  1 "1": the owner counts leases as well   2 … lease ids
 * reply the lease ids that were not there
 * ```
 *
 * A lease that was not there (the server lost data) is taken anew: the request is
 * running, so it must be counted. What was reserved for it is lost, which is why
 * the edge is told.
 */
export const RENEW: RedisScript = defineScript(
  "renew",
  `
local call = redis.call
local time = call('TIME')
local ends = math.floor((time[1] - ${
    LIMITER_EPOCH_MS / 1000
  }) * 1000 + time[2] / 1000) + ${LEASE_MS}
local missing = {}
for i = 2, #ARGV do
  if call('ZADD', KEYS[1], ends, ARGV[i]) == 1 then missing[#missing + 1] = ARGV[i] end
  if ARGV[1] == '1' then call('ZADD', KEYS[2], ends, ARGV[i]) end
end
call('PEXPIRE', KEYS[1], ${LEASES_TTL_MS})
if ARGV[1] == '1' then call('PEXPIRE', KEYS[2], ${LEASES_TTL_MS}) end
return missing
`,
);
