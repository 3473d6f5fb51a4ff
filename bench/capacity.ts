/**
 * What one edge, worker, NATS and Redis carry, for docs/sizing.md:
 *
 *     deno run --allow-all bench/capacity.ts dispatch    # simulated, up to 200 x 200
 *     deno run --allow-all bench/capacity.ts dispatch --size 200x200
 *     deno run --allow-all bench/capacity.ts queue       # simulated: four edges
 *     deno run --allow-all --v8-flags=--expose-gc bench/capacity.ts waiting
 *     deno run --allow-all bench/capacity.ts beats       # on a real NATS
 *     deno run --allow-all bench/capacity.ts admissions  # of a real Redis
 *     deno run --allow-all bench/capacity.ts scripts     # for docs/evidence/limits.md
 *     deno run --allow-all bench/capacity.ts processes   # requests, tokens, memory
 *
 * All but the first three want a machine that does nothing else.
 */
import { parseArgs } from "node:util";
import { print } from "../tests/support/process.ts";
import { measureAdmissions } from "./capacity/admissions.ts";
import { measureBeats } from "./capacity/beats.ts";
import { DISPATCH_SIZES, measureDispatch } from "./capacity/dispatch.ts";
import { measureProcesses } from "./capacity/processes.ts";
import { measureQueue } from "./capacity/queue.ts";
import { measureScripts } from "./capacity/scripts.ts";
import { measureWaiting } from "./capacity/waiting.ts";

const { values: { size }, positionals } = parseArgs({
  args: Deno.args,
  allowPositionals: true,
  options: { size: { type: "string" } },
});
const PARTS: ReadonlyMap<string, () => Promise<void>> = new Map([
  ["dispatch", () => measureDispatch(size)],
  ["queue", measureQueue],
  ["waiting", () => Promise.resolve(measureWaiting())],
  ["beats", measureBeats],
  ["admissions", measureAdmissions],
  ["scripts", measureScripts],
  ["processes", measureProcesses],
]);

const chosen = positionals.length === 0 ? [...PARTS.keys()] : positionals;
const unknown = chosen.filter((name) => !PARTS.has(name));
if (unknown.length > 0) {
  refuse(
    `Unknown: ${unknown.join(", ")}. Known: ${[...PARTS.keys()].join(", ")}`,
  );
}
if (size !== undefined && !DISPATCH_SIZES.has(size)) {
  refuse(`--size is of dispatch: one of ${[...DISPATCH_SIZES].join(", ")}`);
}
for (const name of chosen) await PARTS.get(name)?.();

function refuse(why: string): never {
  print(why);
  Deno.exit(2);
}
