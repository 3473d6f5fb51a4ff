import { Buffer } from "node:buffer";
import {
  LIMITER_EPOCH_MS,
  LIMITER_FIELDS,
  limiterDay,
} from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  leaseKey,
  limiterKey,
  type Limits,
  ownerLeaseKey,
  ownerLimiterKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { defineScript } from "@gateway/shared/redis/script";
import { asList, asNumber, asText } from "../store/redis.ts";
import { LIMIT_NAMES } from "./settings.ts";

/** Use against the limits of a key and of its owner, from the state that the edges keep. */

export interface Meter {
  whose: "key" | "owner";
  name: keyof Limits;
  limit: number;
  /** More than the limit if a large request has left tokens to wait for. */
  used: number;
  /** The same with the fraction of a request or token that is not free yet. */
  exact: number;
}

/**
 * Reads the time and the states at one moment.
 *
 * ```
 * KEYS  1 lim:{owner}   2 lease:{owner}   3 lim:{owner}:<key>   4 lease:{owner}:<key>
 *
 * reply {unix ms, state in hexadecimal, running, state, running}
 * ```
 */
const METERS_SCRIPT = defineScript(
  "key-admin/meters",
  `
local time = redis.call('TIME')
local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {nowMs}
for at = 1, #KEYS, 2 do
  local state = redis.call('HGET', KEYS[at], '${LIMITER_FIELDS.state}') or ''
  local hex = string.gsub(state, '.', function(char) return string.format('%02x', string.byte(char)) end)
  table.insert(reply, hex)
  table.insert(reply, redis.call('ZCOUNT', KEYS[at + 1], nowMs - ${LIMITER_EPOCH_MS}, '+inf'))
end
return reply
`,
);

/** Sums of fractions are not exact: as at admission, a hundredth is nothing. */
const TOLERANCE = 0.01;

/**
 * What a state says about limits, as the admission script counts: `state` is the
 * packed field in hexadecimal (empty: never used), `running` the leases that have
 * not expired, `nowMs` the time by Redis' clock. Use per minute falls evenly with
 * time, and tokens beyond their limit are debt: with 60 requests per minute, 10 are
 * used right after a burst of 10, and 5 five seconds later.
 */
function limitUse(
  state: string,
  running: number,
  limits: Limits,
  nowMs: number,
): Record<keyof Limits, number> {
  const now = nowMs - LIMITER_EPOCH_MS;
  const packed = Buffer.from(state, "hex");
  const field = (at: number) =>
    packed.length < 8 * (at + 1) ? 0 : packed.readDoubleLE(8 * at);
  // A clock that was set back moves the times of the state with it.
  const ahead = Math.max(0, field(0) - now);
  const perMinute = (fullAtMs: number, limit: number) =>
    Math.max(0, fullAtMs - ahead - now) * limit / 60_000;
  const daysAhead = field(3) - limiterDay(nowMs);
  return {
    requestsPerMinute: perMinute(field(1), limits.requestsPerMinute),
    tokensPerMinute: perMinute(field(2), limits.tokensPerMinute),
    tokensPerDay: daysAhead === 0 || daysAhead === 1 ? field(4) : 0,
    concurrency: running,
  };
}

/** Reads the meters of the limits that are set of an owner and, if one is given, of a key of this owner; `nowMs` is the time by Redis' clock. */
export async function readMeters(
  redis: RedisLink,
  { ownerId, limits }: { ownerId: string; limits: Limits },
  key?: Pick<KeyRecord, "id" | "limits">,
) {
  const names = [ownerLimiterKey(ownerId), ownerLeaseKey(ownerId)];
  if (key !== undefined) {
    const ids = { ownerId, keyId: key.id };
    names.push(limiterKey(ids), leaseKey(ids));
  }
  const reply = asList(await redis.evalScript(METERS_SCRIPT, names, []));
  const nowMs = asNumber(reply[0]);
  const metersOf = (
    whose: Meter["whose"],
    limits: Limits,
    at: number,
  ): Meter[] => {
    const state = asText(reply[at]);
    const used = limitUse(state, asNumber(reply[at + 1]), limits, nowMs);
    return LIMIT_NAMES.map((name) => ({
      ...{ whose, name, limit: limits[name], exact: used[name] },
      used: Math.max(0, Math.ceil(used[name] - TOLERANCE)),
    })).filter(({ limit }) => limit > 0);
  };
  return {
    nowMs,
    meters: [
      ...key === undefined ? [] : metersOf("key", key.limits, 3),
      ...metersOf("owner", limits, 1),
    ],
  };
}

/** The limit of which the largest share is used: it refuses requests first. Undefined while none is used. */
export const bindingMeter = (meters: readonly Meter[]): Meter | undefined =>
  meters.filter(({ used }) => used > 0)
    .toSorted((a, b) => b.used / b.limit - a.used / a.limit)[0];
