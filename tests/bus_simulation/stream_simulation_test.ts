// The promise: what a client gets is a prefix of what the backend said, complete
// when it ends well; every request has exactly one outcome, in time; and nothing
// is left behind, whatever the bus and the processes do. Played many times with
// made-up answers and faults; the seed decides everything. `SIM_SEED=7` plays that
// one, with everything that happens; `SIM_SEEDS=20000` so many.
import assert from "node:assert/strict";
import { simulate } from "./run.ts";
import { type Counts, noCounts } from "./world.ts";

const COMMAND =
  "deno test --allow-env=SIM_SEED,SIM_SEEDS tests/bus_simulation/stream_simulation_test.ts";

function tell(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));
}

function play(seed: number, isTold: boolean): Counts {
  try {
    return simulate(seed, isTold ? tell : () => {});
  } catch (cause) {
    const again = `SIM_SEED=${seed} ${COMMAND}`;
    throw new Error(`Seed ${seed} failed; again: ${again}`, { cause });
  }
}

Deno.test("a stream is a prefix of the backend's answer whatever fails in between", () => {
  const one = Deno.env.get("SIM_SEED");
  const isTold = one !== undefined;
  const first = Number(one ?? 1);
  const count = isTold ? 1 : Number(Deno.env.get("SIM_SEEDS") ?? 500);
  const total = new Map<string, number>(Object.entries(noCounts()));
  for (let seed = first; seed < first + count; seed++) {
    for (const [name, seen] of Object.entries(play(seed, isTold))) {
      total.set(name, (total.get(name) ?? 0) + seen);
    }
  }
  if (count > 500 || isTold) tell(JSON.stringify(Object.fromEntries(total)));
  if (count < 500) return;
  for (const [name, seen] of total) assert(seen > 0, `no seed saw: ${name}`);
});
