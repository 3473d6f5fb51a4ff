/**
 * Plays the bus with made-up answers and faults, and checks what must hold: what a
 * client gets is a prefix of what the backend said, complete when it ends well; every
 * request has exactly one outcome, in time; and nothing is left behind, whatever the
 * bus and the processes do. A seed decides everything that happens in a run.
 */
import assert from "node:assert/strict";
import { print } from "../support/process.ts";
import { Edge, type Outcome, type Request } from "./edge.ts";
import { Worker } from "./worker.ts";
import { type Counts, World } from "./world.ts";

/** Longer than any run can take: what is not over then waits for ever. */
const HORIZON_MS = 600_000;

/** Plays one run to its end. `tell` gets a line for everything that happens. */
export function simulate(seed: number, tell: (text: string) => void): Counts {
  const world = new World(seed, tell);
  const { profile, scheduler, counts } = world;
  const each = (count: number) => Array.from({ length: count }, (_, i) => i);
  const workers = each(profile.workers).map((i) => new Worker(`w${i}`, world));
  const edges = each(profile.edges)
    .map((i) => new Edge(`e${i}`, world, workers));
  planFaults(world, [...edges, ...workers]);
  planRequests(world, edges);
  while (scheduler.step(HORIZON_MS));
  assert(scheduler.isIdle, "something never ends");
  for (const { runCount, id } of workers) {
    assert.equal(runCount, 0, `${id} still runs something`);
  }
  for (const { openCount, requests } of edges) {
    assert.equal(openCount, 0, "a request is still open");
    for (const request of requests) assertOutcome(request);
  }
  // Without faults nothing is asked for twice, sent twice or given up.
  if (profile.weather === "calm") {
    assert.equal(counts.naks, 0, "NAK without a fault");
    assert.equal(counts.resentFrames, 0, "replay without a fault");
    assert.equal(counts.forgotten, 0, "forgotten without a fault");
  }
  return counts;
}

function planFaults(world: World, nodes: (Edge | Worker)[]): void {
  const { profile, random, scheduler } = world;
  for (const { atMs, durationMs, kind, target } of profile.pauses) {
    const node = nodes[target];
    const isTickFirst = random.chance(0.5);
    scheduler.at(atMs, () => {
      world.log(`${node?.id} ${kind} for ${durationMs.toFixed(0)}`);
      if (kind === "freeze") node?.freeze(durationMs, isTickFirst);
      else node?.cut(durationMs);
    });
  }
  for (const { atMs, target } of profile.kills) {
    const node = nodes[target];
    scheduler.at(atMs, () => {
      world.log(`${node?.id} is killed`);
      node?.kill();
    });
  }
}

function planRequests(world: World, edges: Edge[]): void {
  const { profile, random, scheduler } = world;
  for (let i = 0; i < profile.requests; i++) {
    const edge = edges[i % edges.length];
    assert(edge !== undefined);
    const id = (i + 1).toString(16).padStart(32, "0");
    const startMs = random.between(0, 3_000);
    scheduler.at(startMs, () => {
      if (!edge.isDead) edge.startRequest(id);
    });
    if (!random.chance(profile.leaveShare)) continue;
    scheduler.at(startMs + random.between(0, 3_000), () => {
      edge.post(() => {
        edge.requests.find((request) => request.id === id)?.leave();
      });
    });
  }
}

const COUNTED: Partial<Record<Outcome, keyof Counts>> = {
  complete: "complete",
  error: "error",
  client_gone: "clientGone",
  edge_dead: "edgeDead",
};

/** Every request has its outcome, and in anything but rough weather the right one. */
function assertOutcome({ id, outcome, record, world }: Request): void {
  const { counts, profile: { weather } } = world;
  assert(outcome !== null, `${id} has no outcome`);
  if (outcome !== "rejected") counts[COUNTED[outcome] ?? "lost"]++;
  if (weather === "rough" || outcome === "client_gone") return;
  if (outcome === "complete" || outcome === "error") {
    return assert.equal(outcome === "complete", !record?.script.fails, id);
  }
  // Nothing has begun: there was no worker for it, three times.
  assert(outcome === "rejected" || outcome === "not_accepted", `${outcome}`);
  if (weather !== "gentle") assert.equal(outcome, "rejected");
}

const COMMAND = "deno test -P tests/bus_simulation/stream_simulation_test.ts";
/** A long run says how far it is each time it has played this many seeds. */
const PROGRESS_SEEDS = 20_000;
/** With fewer seeds, some kinds of faults may not happen in any. */
const VARIED_SEEDS_MIN = 500;

/**
 * Plays `count` runs, the first with the seed `first`. Throws at the first that breaks
 * a promise, with the command that plays it again; and if no run, of many, saw a kind
 * of event that {@link Counts} counts, because then the runs prove little.
 */
export function playSeeds(first: number, count: number): void {
  const total = new Map<string, number>();
  for (let seed = first; seed < first + count; seed++) {
    try {
      addCounts(total, simulate(seed, () => {}));
    } catch (cause) {
      throw new Error(`SIM_SEED=${seed} ${COMMAND}`, { cause });
    }
    const played = seed - first + 1;
    if (played % PROGRESS_SEEDS === 0) {
      const text = JSON.stringify(Object.fromEntries(total));
      print(`${played} of ${count} seeds: ${text}`);
    }
  }
  if (count < VARIED_SEEDS_MIN) return;
  for (const [name, count] of total) assert(count > 0, `no seed saw: ${name}`);
}

function addCounts(total: Map<string, number>, counts: Counts): void {
  for (const [name, count] of Object.entries(counts)) {
    total.set(name, (total.get(name) ?? 0) + count);
  }
}
