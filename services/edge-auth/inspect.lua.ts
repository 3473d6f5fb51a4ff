import { STORE_KEY } from "@gateway/shared/keys/record";
import { defineScript, type RedisScript } from "@gateway/shared/redis/script";

/**
 * Looks at a key and changes nothing: for calls that are not limited, and for
 * refusals that only a caller with a right to be here may hear.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>, only to find the server in a cluster
 * ARGV  1 record key   2 scope, or empty
 *
 * reply {"unknown"} {"expired"} {"disabled"} {"scope"}
 *       {"empty"}        no such key, but no other either: the data is gone
 *       {"ok", models}   comma-separated ids, empty: all
 * ```
 */
export const INSPECT: RedisScript = defineScript(
  "inspect",
  `
local rec = redis.call('HMGET', ARGV[1], 'state', 'expires_at', 'scopes', 'models')
if not rec[1] then return {redis.call('GET', '${STORE_KEY}') and 'unknown' or 'empty'} end
local time = redis.call('TIME')
local expires = tonumber(rec[2] or 0)
if not (expires and expires >= 0) then error('corrupt expires_at in the record of a key') end
if expires > 0 and expires <= time[1] * 1000 + time[2] / 1000 then return {'expired'} end
if rec[1] ~= 'enabled' then return {'disabled'} end
if ARGV[2] ~= '' and not string.find(',' .. (rec[3] or '') .. ',', ',' .. ARGV[2] .. ',', 1, true) then
  return {'scope'}
end
return {'ok', rec[4] or ''}
`,
);
