// Repeats the property tests of the limits with new seeds until the time is up or
// one of them fails: `deno task test:soak 5` for five minutes. Ends with the seed
// that failed, which `TEST_SEED` repeats.
import { randomInt } from "node:crypto";

const FILES = [
  "services/edge-auth/limits/limiter_pressure_test.ts",
  "tests/limits/invariants_test.ts",
  "tests/limits/failover_timed_test.ts",
  "tests/limits/ledger_test.ts",
];
const MINUTES_DEFAULT = 5;
const MS_PER_MINUTE = 60_000;
const SEED_MAX = 1_000_000;

const minutes = Number(Deno.args[0] ?? MINUTES_DEFAULT);
if (!(minutes > 0)) throw new Error("Usage: deno task test:soak [MINUTES]");
const endsAtMs = performance.now() + minutes * MS_PER_MINUTE;
while (performance.now() < endsAtMs) {
  const seed = String(randomInt(1, SEED_MAX));
  const { success } = await new Deno.Command(Deno.execPath(), {
    args: ["test", "-P", ...FILES],
    env: { NO_COLOR: "1", TEST_SEED: seed },
    stdin: "null",
  }).spawn().status;
  if (!success) throw new Error(`A property does not hold: TEST_SEED=${seed}`);
}
