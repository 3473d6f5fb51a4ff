/**
 * Repeats the property tests of the limits with new seeds until the time is up or
 * one of them fails: `deno task test:soak 5` for five minutes. Ends with the seed
 * that failed, which `TEST_SEED` repeats.
 */
import { randomInt } from "node:crypto";

const FILES = [
  "services/edge-auth/limits/limiter_pressure_test.ts",
  "tests/limits/invariants_test.ts",
  "tests/limits/failover_test.ts",
  "tests/limits/ledger_test.ts",
];
const MINUTES_DEFAULT = 5;
const MS_PER_MINUTE = 60_000;
const SEED_MAX = 1_000_000;

const minutes = Number(Deno.args[0] ?? MINUTES_DEFAULT);
if (!(minutes > 0)) throw new Error("Usage: deno task test:soak [MINUTES]");
const endsAtMs = performance.now() + minutes * MS_PER_MINUTE;
let runs = 0;
while (performance.now() < endsAtMs) {
  await run(randomInt(1, SEED_MAX));
  runs += 1;
}
await say(`${runs} runs of ${minutes} minutes, none failed`);

/** Throws, with all that the run said, when a property did not hold. */
async function run(seed: number): Promise<void> {
  const startedAtMs = performance.now();
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["test", "--allow-all", ...FILES],
    env: { NO_COLOR: "1", TEST_SEED: String(seed) },
    stdin: "null",
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  if (!success) {
    await say(text(stdout) + text(stderr));
    throw new Error(`A property does not hold: TEST_SEED=${seed}`);
  }
  const seconds = (performance.now() - startedAtMs) / 1_000;
  await say(`TEST_SEED=${seed} held, ${seconds.toFixed(1)} s`);
}

async function say(line: string): Promise<void> {
  await Deno.stdout.write(new TextEncoder().encode(`${line}\n`));
}
