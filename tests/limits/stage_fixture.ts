/** Four edges that share nothing but Redis, and what one asks them at once. */
import assert from "node:assert/strict";
import type { Grant } from "../../services/edge-auth/limits/limiter.ts";
import type { Cost, Units } from "../../services/edge-auth/limits/cost.ts";
import type { Principal } from "@gateway/shared/keys/record";
import {
  type RedisWorld,
  startRedisWorld,
} from "../support/limits/admission_fixture.ts";
import {
  type Fleet,
  type FleetEdge,
  startFleet,
} from "../support/limits/edge_fleet.ts";
import { owning } from "../support/process.ts";
import { until } from "../support/wait_for.ts";

/** Every one of 2,000 shall have an answer, however busy the machine is. */
const PATIENT_MS = 10_000;

/** A Redis, and edges that share it. */
export interface Stage extends AsyncDisposable {
  readonly world: RedisWorld;
  readonly fleet: Fleet;
}

/** Starts a Redis, and edges that wait `deadlineMs` for its answers. */
export async function startStage(deadlineMs = PATIENT_MS): Promise<Stage> {
  await using started = new AsyncDisposableStack();
  const config = ["appendonly yes"];
  const world = started.use(await startRedisWorld({ config }));
  const redisPort = () => world.redis.port;
  const fleet = started.use(await startFleet(redisPort, deadlineMs));
  return owning(started, { world, fleet });
}

/** Calls `count` times at once, on all edges in turn. */
export function atOnce<T>(
  { fleet: { at, size } }: Stage,
  count: number,
  call: (edge: FleetEdge) => Promise<T>,
): Promise<T[]> {
  const places = Array.from({ length: count }, (_, n) => n % size);
  return Promise.all(places.map((place) => call(at(place))));
}

/** Asks to be admitted `count` times at once. All have an answer. */
export async function askAtOnce(
  stage: Stage,
  principal: Principal,
  { count, wantTokens = 0, wantUnits = null }: {
    count: number;
    /** What each of them wants. */
    wantTokens?: number;
    wantUnits?: Units | null;
  },
) {
  const ask = (edge: FleetEdge) => edge.ask(principal, wantTokens, wantUnits);
  const decisions = await atOnce(stage, count, ask);
  const admitted = decisions.filter((each) => each?.isAdmitted === true);
  const refused = decisions.filter((each) => each?.isAdmitted === false);
  assert.equal(admitted.length + refused.length, count, "all have an answer");
  return { admitted, refused };
}

/** Asks the first edge. */
export async function ask(
  { fleet }: Stage,
  principal: Principal,
  wantTokens = 0,
) {
  return await fleet.at(0).ask(principal, wantTokens) ?? assert.fail("unsure");
}

/** Asks the first edge, which admits. */
export async function isAdmitted(...args: Parameters<typeof ask>) {
  const decision = await ask(...args);
  assert.ok(decision.isAdmitted);
  return decision;
}

/** Uses up what a principal may do, and returns the last refusal. */
export async function exhaust(...args: Parameters<typeof ask>) {
  for (;;) {
    const decision = await ask(...args);
    if (decision.isAdmitted) continue;
    assert.ok(decision.reason === "limited");
    return decision;
  }
}

/** Settles at the first edge, and waits until Redis has it. */
export async function settle({ fleet }: Stage, admitted: Grant, cost: Cost) {
  fleet.at(0).settle(admitted, cost);
  await until(() => fleet.isSettled);
}
