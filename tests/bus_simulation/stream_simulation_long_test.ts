/** The promises of the bus in many more simulated runs, see `simulation.ts`. */
import { playSeeds } from "./simulation.ts";

/** A minute or two. Rarer faults are left to `deno task test:bus`. */
const SEEDS = 20_000;

Deno.test("a stream is a prefix of the backend's answer in 20,000 simulated runs", () => {
  playSeeds(1, SEEDS);
});
