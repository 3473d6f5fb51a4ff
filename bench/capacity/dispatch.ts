/** How well edges spread requests over workers, simulated. */
import { print } from "../../tests/support/process.ts";
import { percentile } from "../figures.ts";
import { type Scenario, simulate } from "./simulation.ts";

const [FAST_MS, SLOW_MS] = [1_000, 20_000];
/** How large a gateway is, and how many streams its clients want at a time. */
const SIZES: readonly Pick<Scenario, "edges" | "workers" | "streams">[] = [
  { edges: 1, workers: 1, streams: 10 },
  { edges: 2, workers: 2, streams: 100 },
  { edges: 2, workers: 20, streams: 1_000 },
  { edges: 20, workers: 2, streams: 1_000 },
  { edges: 10, workers: 10, streams: 1_000 },
  { edges: 50, workers: 50, streams: 10_000 },
  { edges: 200, workers: 200, streams: 10_000 },
  { edges: 200, workers: 200, streams: 100_000 },
];
/** How many streams are wanted, as a share of all slots. */
const LOADS = [0.7, 0.95, 1.2];
/** Half of all workers' slots. */
const SERVER_LIMIT = 0.5;
/** Whoever waits longer was not taken at once. */
const WAITED_MS = 10;
const COLUMNS = [
  "edges x workers",
  "streams",
  "load",
  "answer s",
  "requests",
  "refused %",
  "waited %",
  "p99 ms",
  "sent back %",
  "fullest +%",
  "edge core %",
];

/** The sizes that there are, as {@link measureDispatch} is told them: `2x20`. */
export const DISPATCH_SIZES: ReadonlySet<string> = new Set(SIZES.map(nameOf));

/** Prints a table of all loads and speeds, of all sizes or the one of this name. */
export async function measureDispatch(size?: string): Promise<void> {
  print("\nDispatch, simulated");
  print(row(COLUMNS));
  for (const each of SIZES) {
    if (size !== undefined && nameOf(each) !== size) continue;
    for (const answerMs of [FAST_MS, SLOW_MS]) {
      for (const load of LOADS) await measure({ ...each, load, answerMs });
    }
  }
  if (size === undefined) await measureLimited();
}

/** Prints the same for one size whose model servers have limits. */
async function measureLimited(): Promise<void> {
  print("\nThe same; the model servers run half of what workers would");
  print(row(COLUMNS));
  for (const load of [0.45, 0.6]) {
    const size = { edges: 10, workers: 10, streams: 1_000 };
    const serverLimit = SERVER_LIMIT;
    await measure({ ...size, load, answerMs: FAST_MS, serverLimit });
    await measure({ ...size, load, answerMs: SLOW_MS, serverLimit });
  }
}

function nameOf({ edges, workers }: Pick<Scenario, "edges" | "workers">) {
  return `${edges}x${workers}`;
}

async function measure(scenario: Scenario): Promise<void> {
  const { edges, workers, streams, load, answerMs } = scenario;
  const result = await simulate(scenario);
  const { requests, refused, takenMs, sentBack } = result;
  const waited = takenMs.filter((ms) => ms > WAITED_MS).length;
  const share = (count: number) => (100 * count / requests).toFixed(1);
  print(row([
    `${edges} x ${workers}`,
    String(streams),
    String(load),
    String(answerMs / 1_000),
    String(requests),
    share(refused),
    share(waited),
    percentile(takenMs, 0.99).toFixed(0),
    share(sentBack),
    (100 * result.imbalance).toFixed(0),
    (100 * result.edgeShare).toFixed(1),
  ]));
}

const row = (cells: readonly string[]): string =>
  cells.map((cell, at) => cell.padStart(COLUMNS[at]?.length ?? 0)).join("  ");
