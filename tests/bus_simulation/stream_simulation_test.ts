/**
 * The promises of the bus in 500 simulated runs, see `simulation.ts`. `SIM_SEED=7`
 * plays that run alone and prints everything that happens in it; `SIM_SEEDS=20000`
 * plays as many runs, from `SIM_FIRST` on.
 */
import { print } from "../support/process.ts";
import { playSeeds, simulate } from "./simulation.ts";

Deno.test("a stream is a prefix of the backend's answer whatever fails in between", () => {
  const seed = Deno.env.get("SIM_SEED");
  if (seed !== undefined) {
    const counts = simulate(Number(seed), print);
    return print(JSON.stringify(counts));
  }
  const first = Number(Deno.env.get("SIM_FIRST") ?? 1);
  playSeeds(first, Number(Deno.env.get("SIM_SEEDS") ?? 500));
});
