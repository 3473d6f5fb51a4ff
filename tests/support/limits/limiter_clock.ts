// Redis' clock is the only one that limits know, and they know it only by its distance
// to what is written: to move that back is for them the same as if time had passed.
import { dayLimitField, USAGE_UNITS } from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  type Principal,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  readDoubles,
  readState,
  type RedisWorld,
  writeDoubles,
  writeState,
} from "./admission_fixture.ts";

const DEADLINE_MS = 30_000;
const DAY_MS = 86_400_000;

const limitersOf = (
  key: Principal,
) => [limiterKey(key), ownerLimiterKey(key.ownerId)];

/**
 * Lets `ms` pass for the limits of a key and of its owner, whose requests have ended,
 * but ends no day. Returns `ms`.
 */
export async function letTimePass(
  link: Pick<RedisLink, "command">,
  { principal, ms }: { principal: Principal; ms: number },
): Promise<number> {
  const command = (...args: string[]) =>
    link.command(args, { deadlineMs: DEADLINE_MS });
  for (const name of limitersOf(principal)) {
    const state = await readState({ command }, name);
    if (state === null) continue;
    await writeState({ command }, name, {
      ...state,
      lastAtMs: state.lastAtMs - ms,
      requestsTatMs: state.requestsTatMs - ms,
      tokensTatMs: state.tokensTatMs - ms,
    });
  }
  const ofOwner = ownerLeaseKey(principal.ownerId);
  for (const name of [leaseKey(principal), ofOwner]) {
    const ids = await command("ZRANGE", name, "0", "-1");
    for (const id of Array.isArray(ids) ? ids : []) {
      await command("ZINCRBY", name, String(-ms), String(id));
    }
  }
  return ms;
}

/**
 * Lets midnight UTC pass for the budgets of a key and of its owner. Returns a day in
 * ms.
 */
export async function letDayEnd(
  world: RedisWorld,
  principal: Principal,
) {
  for (const name of limitersOf(principal)) {
    const state = await readState(world, name);
    if (state === null) continue;
    await writeState(world, name, { ...state, day: state.day - 1 });
    for (const field of USAGE_UNITS.map(dayLimitField)) {
      const [day, count] = await readDoubles(world, name, field) ?? [];
      if (day === undefined || count === undefined) continue;
      await writeDoubles(world, [name, field], [day - 1, count]);
    }
  }
  return DAY_MS;
}
