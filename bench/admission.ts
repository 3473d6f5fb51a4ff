// deno-lint-ignore-file no-console -- the result goes to the terminal
/**
 * What an admission and a settlement cost Redis: CPU per script call from
 * `INFO commandstats`, which a busy client does not distort. Starts its own
 * redis-server.
 *
 *   npx -y deno task bench:admission
 */

import { monotonicNow } from "@gateway/shared/process/clock";
import {
  type Limits,
  type Principal,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import {
  type Admitted,
  Limiter,
  LIMITER_SCRIPTS,
} from "../services/edge-auth/limits/limiter.ts";
import {
  type RedisWorld,
  startRedisWorld,
} from "../tests/support/admission_fixture.ts";
import { until } from "../tests/support/redis_fixture.ts";

/** Calls of a batch, and how many batches are measured. */
const BATCH = 32;
const BATCHES = 400;
const WARMUP_BATCHES = 50;

const WIDE: Limits = {
  requestsPerMinute: 1e9,
  tokensPerMinute: 1e9,
  tokensPerDay: 1e12,
  concurrency: 1e6,
};

const CASES: { name: string; limits: Limits; ownerLimits: Limits }[] = [
  { name: "no limits", limits: UNLIMITED, ownerLimits: UNLIMITED },
  {
    name: "requests/min",
    limits: { ...UNLIMITED, requestsPerMinute: 1e9 },
    ownerLimits: UNLIMITED,
  },
  { name: "four of the key", limits: WIDE, ownerLimits: UNLIMITED },
  { name: "four of key and owner", limits: WIDE, ownerLimits: WIDE },
];

async function scriptStats(world: RedisWorld): Promise<[number, number]> {
  const text = String(await world.command("INFO", "commandstats"));
  const match = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(text);
  return [Number(match?.[1] ?? 0), Number(match?.[2] ?? 0)];
}

/** Server microseconds per script call that `work` makes. */
async function serverUs(
  world: RedisWorld,
  work: () => Promise<void>,
): Promise<number> {
  const [callsBefore, usBefore] = await scriptStats(world);
  await work();
  const [callsAfter, usAfter] = await scriptStats(world);
  return (usAfter - usBefore) / (callsAfter - callsBefore);
}

/** Tenth percentile and median: on a shared machine the fast batches are the undisturbed ones. */
function spread(values: number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.floor(sorted.length * share)] ?? 0;
  return `${at(0.1).toFixed(1)} / ${at(0.5).toFixed(1)}`;
}

async function run(world: RedisWorld): Promise<void> {
  const admission = new Limiter({
    redis: world.link,
    now: monotonicNow,
    random: Math.random,
    log: silentLog,
    deadlineMs: 5_000,
  });
  const admit = async (principal: Principal): Promise<Admitted> => {
    const decision = await admission.admit(principal, {
      scope: "chat",
      model: "neutral-3.7-plus",
      wantTokens: 1_000,
    });
    if (!decision.isAdmitted) throw new Error(decision.reason);
    return decision;
  };
  const settle = (request: Admitted) =>
    admission.settle(request, {
      promptTokens: 50,
      completionTokens: 50,
      kind: "complete",
    });

  console.log("server us per call, fastest tenth / median of batches");
  for (const { name, limits, ownerLimits } of CASES) {
    const key = await world.addKey({ limits, ownerLimits });
    const admits: number[] = [];
    const settles: number[] = [];
    for (let batch = 0; batch < WARMUP_BATCHES + BATCHES; batch++) {
      let running: Admitted[] = [];
      const admitUs = await serverUs(world, async () => {
        running = await Promise.all(
          Array.from({ length: BATCH }, () => admit(key)),
        );
      });
      const settleUs = await serverUs(world, async () => {
        running.forEach(settle);
        await until(() => admission.unsettled === 0, 5_000);
      });
      if (batch < WARMUP_BATCHES) continue;
      admits.push(admitUs);
      settles.push(settleUs);
    }
    console.log(
      `${name.padEnd(24)} admit ${spread(admits)}   settle ${spread(settles)}`,
    );
  }
  await admission.stop(1_000);
}

await using world = await startRedisWorld({ scripts: LIMITER_SCRIPTS });
await run(world);
