import assert from "node:assert/strict";
import { Bus } from "./bus.ts";
import { Edge, type Outcome, type Request } from "./edge.ts";
import { makeProfile, type Profile } from "./profile.ts";
import { Random } from "./random.ts";
import { Scheduler } from "./scheduler.ts";
import { Worker } from "./worker.ts";
import { type Counts, noCounts, type World } from "./world.ts";

/** Longer than any run can take: what is not over then waits for ever. */
const HORIZON_MS = 600_000;

/**
 * Plays one run to its end and fails unless every promise held: bytes in order and
 * none missing, exactly one outcome, everything over in time, nothing left behind.
 * `log` gets a line for everything that happens.
 */
export function simulate(seed: number, log: (text: string) => void = () => {}) {
  const random = new Random(seed);
  const profile = makeProfile(random);
  const scheduler = new Scheduler();
  const bus = new Bus(scheduler, random, profile.link, profile.linkFaultsEndMs);
  const world: World = {
    scheduler,
    random,
    bus,
    limits: profile.limits,
    profile,
    counts: noCounts(),
    log: (text) => log(`${scheduler.nowMs.toFixed(1)} ${text}`),
  };
  const workers = Array.from(
    { length: profile.workers },
    (_, i) => new Worker(`w${i}`, world),
  );
  const edges = Array.from(
    { length: profile.edges },
    (_, i) => new Edge(`e${i}`, world, workers),
  );
  planFaults(world, workers, edges);
  planRequests(world, edges);
  while (scheduler.step(HORIZON_MS));
  assert(scheduler.isIdle, "something never ends");
  assertNothingLeft(workers, edges);
  for (const edge of edges) {
    for (const request of edge.requests) assertOutcome(request, world);
  }
  assertCalm(profile, world.counts);
  return world.counts;
}

function planFaults(world: World, workers: Worker[], edges: Edge[]): void {
  const { profile, random, scheduler } = world;
  const nodes = [...edges, ...workers];
  for (const { atMs, durationMs, kind, target } of profile.pauses) {
    const node = nodes[target];
    const isTickFirst = random.chance(0.5);
    scheduler.at(atMs, () => {
      world.log(`${node?.process.name} ${kind} for ${durationMs.toFixed(0)}`);
      if (kind === "freeze") node?.process.freeze(durationMs, isTickFirst);
      else node?.connection.cut(scheduler, durationMs);
    });
  }
  for (const { atMs, target } of profile.kills) {
    const node = nodes[target];
    scheduler.at(atMs, () => {
      world.log(`${node?.process.name} is killed`);
      if (node instanceof Edge) node.kill();
      else node?.process.kill();
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
      if (!edge.process.isDead) edge.startRequest(id);
    });
    if (!random.chance(profile.leaveShare)) continue;
    scheduler.at(startMs + random.between(0, 3_000), () => {
      edge.process.post(() => {
        edge.requests.find((request) => request.id === id)?.leave();
      });
    });
  }
}

function assertNothingLeft(workers: Worker[], edges: Edge[]): void {
  for (const { runCount, id } of workers) {
    assert.equal(runCount, 0, `${id} still runs something`);
  }
  for (const { openCount } of edges) {
    assert.equal(openCount, 0, "a request is still open");
  }
}

/** Every request has its outcome, and in anything but rough weather the right one. */
function assertOutcome(request: Request, world: World): void {
  const { counts, profile } = world;
  const { outcome, record } = request;
  assert(outcome !== null, `${request.id} has no outcome`);
  if (outcome !== "rejected") counts[COUNTED[outcome] ?? "lost"]++;
  if (profile.weather === "rough" || outcome === "client_gone") return;
  if (outcome === "complete" || outcome === "error") {
    const isComplete = record?.script.end === "complete";
    assert.equal(outcome === "complete", isComplete, request.id);
    return;
  }
  // Nothing has begun: there was no worker for it, three times.
  assert(outcome === "rejected" || outcome === "not_accepted", `${outcome}`);
  if (profile.weather !== "gentle") assert.equal(outcome, "rejected");
}

const COUNTED: Partial<Record<Outcome, keyof Counts>> = {
  complete: "complete",
  error: "error",
  client_gone: "clientGone",
  edge_dead: "edgeDead",
};

/** Without faults nothing is asked for twice, sent twice or given up. */
function assertCalm(profile: Profile, counts: Counts): void {
  if (profile.weather !== "calm") return;
  assert.equal(counts.naks, 0, "NAK without a fault");
  assert.equal(counts.resentFrames, 0, "replay without a fault");
  assert.equal(counts.forgotten, 0, "forgotten without a fault");
}
