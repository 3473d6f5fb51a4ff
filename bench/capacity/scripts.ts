/**
 * What the scripts that admit and settle cost Redis, for docs/evidence/limits.md: the
 * real limiter and a real Redis, which counts the time of its commands.
 */
import type { Principal } from "@gateway/shared/keys/record";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import {
  type Grant,
  Limiter,
} from "../../services/edge-auth/limits/limiter.ts";
import { print } from "../../tests/support/process.ts";
import {
  DONE,
  type KeyOptions,
  type RedisWorld,
  startRedisWorld,
} from "../../tests/support/limits/admission_fixture.ts";

/** Enough keys that none of them is still at hand when its turn comes again. */
const KEYS = 1_000;
const KEYS_PER_ROUND = 20;
const ROUNDS = 400;
/** The rounds in which each key is new. */
const ROUNDS_OF_WARM_UP = KEYS / KEYS_PER_ROUND;
/** Requests of a key that share a call. */
const TOGETHER = 10;
const FASTEST_TENTH = 0.1;
const MEDIAN = 0.5;
/** Counted, but never reached. */
const REQUESTS = { requestsPerMinute: 1_000_000 };
const FOUR = {
  ...REQUESTS,
  tokensPerMinute: 1_000_000_000,
  tokensPerDay: 1_000_000_000_000,
  concurrency: 100_000,
};
/** In billionths: never reached, either. */
const BUDGET_NANOS = 1e15;
const ONE_BUDGET = { ...FOUR, budgetDay: BUDGET_NANOS };
const THREE_BUDGETS = {
  ...ONE_BUDGET,
  budgetMonth: BUDGET_NANOS,
  budgetTotal: BUDGET_NANOS,
};
const CASES: readonly (KeyOptions & { name: string })[] = [
  { name: "none" },
  { name: "requests per minute", limits: REQUESTS },
  { name: "four of the key", limits: FOUR },
  { name: "four of key and owner", limits: FOUR, ownerLimits: FOUR },
  {
    name: "one budget of the key",
    limits: ONE_BUDGET,
    ownerLimits: FOUR,
  },
  {
    name: "three budgets of key and owner",
    limits: THREE_BUDGETS,
    ownerLimits: THREE_BUDGETS,
  },
  {
    name: "a budget of end users",
    limits: FOUR,
    ownerLimits: FOUR,
    endUsers: `user 0 0 ${BUDGET_NANOS}`,
  },
];
const ASK = {
  scope: "chat",
  model: "neutral-3.7-plus",
  wantTokens: 100,
  wantNanos: 1_000,
  endUser: () => "bench",
} as const;
const SPENT = { ...DONE, nanos: 700 };
/** A machine that is busy must not refuse. */
const DEADLINE_MS = 10_000;

/** The fastest tenth and the median of what calls cost, in microseconds a request. */
interface ScriptCosts {
  readonly admission: string;
  readonly settlement: string;
}

/** Prints the table of docs/evidence/limits.md. */
export async function measureScripts(): Promise<void> {
  print("\nMicroseconds of Redis per request, fastest tenth / median");
  print(
    "| limits set | admission, alone | of ten | settlement, alone | of ten |",
  );
  for (const { name, ...key } of CASES) {
    const alone = await measure(key, 1);
    const ofTen = await measure(key, TOGETHER);
    const cells = [
      name,
      alone.admission,
      ofTen.admission,
      alone.settlement,
      ofTen.settlement,
    ];
    print(`| ${cells.join(" | ")} |`);
  }
}

/** `together`: the requests of a key that share a call. */
async function measure(
  key: KeyOptions,
  together: number,
): Promise<ScriptCosts> {
  await using world = await startRedisWorld();
  const principals: Principal[] = [];
  for (let n = 0; n < KEYS; n += 1) principals.push(await world.addKey(key));
  const limiter = new Limiter({
    redis: await world.open(),
    now: monotonicNow,
    log: silentLog,
    deadlineMs: DEADLINE_MS,
  });
  const admissions: number[] = [];
  const settlements: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const asking = askingIn(round, principals)
      .flatMap((each) => Array.from({ length: together }, () => each));
    let grants: Grant[] = [];
    const admitUs = await scriptUs(world, async () => {
      grants = await admitAll(limiter, asking);
    });
    const settleUs = await scriptUs(world, async () => {
      await Promise.all(grants.map((each) => limiter.settle(each, SPENT)));
    });
    if (round < ROUNDS_OF_WARM_UP) continue;
    admissions.push(admitUs / asking.length);
    settlements.push(settleUs / asking.length);
  }
  await limiter.leases.stop(DEADLINE_MS);
  return {
    admission: figures(admissions),
    settlement: figures(settlements),
  };
}

/** The keys whose turn it is. */
function askingIn(
  round: number,
  principals: readonly Principal[],
): readonly Principal[] {
  const first = (round * KEYS_PER_ROUND) % principals.length;
  return principals.slice(first, first + KEYS_PER_ROUND);
}

async function admitAll(
  limiter: Limiter,
  asking: readonly Principal[],
): Promise<Grant[]> {
  const decisions = await Promise.all(
    asking.map((each) => limiter.admit(each, ASK)),
  );
  return decisions.map((decision) => {
    if (!decision.isAdmitted) throw new Error(decision.reason);
    return decision;
  });
}

/** The time that Redis spends in scripts meanwhile. */
async function scriptUs(
  world: RedisWorld,
  run: () => Promise<void>,
): Promise<number> {
  await world.command("CONFIG", "RESETSTAT");
  await run();
  const stats = String(await world.command("INFO", "commandstats"));
  return Number(/cmdstat_evalsha:calls=\d+,usec=(\d+)/.exec(stats)?.[1] ?? NaN);
}

function figures(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) =>
    (sorted[Math.floor(sorted.length * share)] ?? NaN).toFixed(1);
  return `${at(FASTEST_TENTH)} / ${at(MEDIAN)}`;
}
