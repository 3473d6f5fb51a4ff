/**
 * What one core of Redis admits: the real limiter with its real scripts, many keys with
 * four limits each and four of their owners.
 */
import type { Principal } from "@gateway/shared/keys/record";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { Limiter } from "../../services/edge-auth/limits/limiter.ts";
import { print } from "../../tests/support/process.ts";
import {
  DONE,
  type RedisWorld,
  startRedisWorld,
} from "../../tests/support/limits/admission_fixture.ts";
import { cpuSeconds, residentMib } from "../processes.ts";

const KEYS = 1_000;
const SECONDS = 10;
/** Requests at a time of one edge. */
const AT_A_TIME = [1, 8, 64, 256];
/** Counted, but never reached. */
const LIMITS = {
  requestsPerMinute: 1_000_000,
  tokensPerMinute: 1_000_000_000,
  tokensPerDay: 1_000_000_000_000,
  concurrency: 100_000,
};
const ASK = {
  scope: "chat",
  model: "neutral-3.7-plus",
  wantTokens: 100,
} as const;
/** A machine that is busy must not refuse. */
const DEADLINE_MS = 10_000;

/** Prints requests per second, and the CPU time of Redis for each. */
export async function measureAdmissions(): Promise<void> {
  print("\nAdmissions and settlements of a real Redis, each of another key");
  for (const durability of ["no", "yes"]) {
    const config = [`appendonly ${durability}`, "appendfsync everysec"];
    await using world = await startRedisWorld({ config });
    const principals: Principal[] = [];
    for (let n = 0; n < KEYS; n += 1) {
      const limits = { limits: LIMITS, ownerLimits: LIMITS };
      principals.push(await world.addKey(limits));
    }
    for (const count of AT_A_TIME) {
      const { rate, cpuUs } = await load(world, principals, count);
      print(
        `append-only file ${durability}, ${count} at a time: ` +
          `${rate.toFixed(0)} requests/s, ${
            cpuUs.toFixed(1)
          } us of CPU each: ` +
          `${(1e6 / cpuUs).toFixed(0)}/s on one core`,
      );
    }
    const mib = residentMib([world.redis.pid()]);
    print(`${KEYS} keys and owners: ${mib.toFixed(0)} MiB`);
  }
}

async function load(
  world: RedisWorld,
  principals: readonly Principal[],
  count: number,
): Promise<{ rate: number; cpuUs: number }> {
  const limiter = new Limiter({
    redis: await world.open(),
    now: monotonicNow,
    log: silentLog,
    deadlineMs: DEADLINE_MS,
  });
  const pid = [world.redis.pid()];
  const endsAtMs = performance.now() + 1_000 * SECONDS;
  const before = cpuSeconds(pid);
  let requests = 0;
  const one = async () => {
    while (performance.now() < endsAtMs) {
      const principal = principals[requests % principals.length];
      if (principal === undefined) return;
      requests += 1;
      const decision = await limiter.admit(principal, ASK);
      if (!decision.isAdmitted) throw new Error(decision.reason);
      await limiter.settle(decision, DONE);
    }
  };
  await Promise.all(Array.from({ length: count }, one));
  const cpuUs = 1e6 * (cpuSeconds(pid) - before) / requests;
  await limiter.leases.stop(DEADLINE_MS);
  return { rate: requests / SECONDS, cpuUs };
}
