/**
 * Clients that ask for more than a limit allows, on every edge of a fleet, for
 * minutes of the limit's time, while edges and Redis are killed under them.
 */
import type { Admitted } from "../../../services/edge-auth/limits/limiter.ts";
import type { Principal } from "@gateway/shared/keys/record";
import type { RedisWorld } from "../admission_fixture.ts";
import type { Fleet, FleetEdge } from "./edge_fleet.ts";
import type { Passed } from "./sliding_window.ts";
import { sleep, waitFor } from "../wait_for.ts";

/** What can happen to a cluster while it is pressed. */
export const DISTURBANCES = [
  "nothing",
  "an edge is killed",
  "the scripts are gone",
  "redis is killed",
] as const;
export type Disturbance = typeof DISTURBANCES[number];

export interface PressureOptions {
  world: RedisWorld;
  fleet: Fleet;
  principal: Principal;
  random: () => number;
  /** Tokens the next request reserves. */
  wantTokens: () => number;
  /** What a request cost in the end; null: it keeps its reservation and its slot. */
  usedTokens: (wantTokens: number) => number | null;
  /** Lets some time pass after a round, and returns how much in ms. */
  letPass: () => Promise<number>;
}

/** What the clients saw. Times are Redis' clock and what was let pass beside it. */
export interface Pressed {
  readonly admitted: Admission[];
  /** Requests that may or may not have been counted. */
  unsure: number;
  /** Settlements that were lost with their edge: the reservation stays charged. */
  lost: number;
}

/** One request that was let in. */
export interface Admission {
  readonly atMs: number;
  readonly round: number;
  readonly wantTokens: number;
  /** What it cost in the end. */
  readonly usedTokens: number;
}

/** Clients on each edge. */
export const CLIENTS_PER_EDGE = 3;

const PRESS_MS = 40;
/** A limit that is never reached tests nothing. */
const ROUND_MAX_MS = 60_000;
const RETRY_MS = 10;
const READY_MS = 30_000;

/**
 * Presses for a round with each disturbance, from a random one on. In each, clients
 * ask until all of them are refused with nothing left unsettled.
 */
export async function press(options: PressureOptions): Promise<Pressed> {
  const { world, fleet, principal, random } = options;
  const pressed: Pressed = { admitted: [], unsure: 0, lost: 0 };
  const unsureBefore = fleet.unsure;
  const first = Math.floor(random() * DISTURBANCES.length);
  let passedMs = 0;
  let round = 0;
  let isOver = false;
  let endsAtMs = 0;

  const keep = (edge: FleetEdge, decision: Admitted) => {
    const wantTokens = decision.reservedTokens;
    const used = options.usedTokens(wantTokens);
    const atMs = decision.atMs + passedMs;
    const usedTokens = used ?? wantTokens;
    pressed.admitted.push({ atMs, round, wantTokens, usedTokens });
    if (used === null) return;
    edge.settle(decision, {
      promptTokens: 0,
      completionTokens: used,
      kind: "complete",
    });
  };

  const client = async (place: number) => {
    for (;;) {
      const wasOver = isOver && fleet.isSettled;
      const edge = fleet.at(place);
      const decision = await edge.ask(principal, options.wantTokens());
      if (performance.now() > endsAtMs) {
        throw new Error(`Not refused after ${ROUND_MAX_MS} ms of pressure`);
      }
      if (decision === null) await sleep(RETRY_MS);
      else if (decision.isAdmitted) keep(edge, decision);
      else if (wasOver) return;
    }
  };

  for (; round < DISTURBANCES.length; round += 1) {
    isOver = false;
    endsAtMs = performance.now() + ROUND_MAX_MS;
    const clients = Array.from(
      { length: fleet.size * CLIENTS_PER_EDGE },
      (_, index) => client(index % fleet.size),
    );
    await sleep(PRESS_MS * random());
    const kind = DISTURBANCES[(first + round) % DISTURBANCES.length];
    pressed.lost += await disturb(kind ?? "nothing", { world, fleet, random });
    await sleep(PRESS_MS * random());
    isOver = true;
    await Promise.all(clients);
    await waitFor(() => fleet.isSettled, { what: "all to be settled" });
    await world.link.ready(READY_MS);
    passedMs += await options.letPass();
  }
  pressed.unsure = fleet.unsure - unsureBefore;
  return pressed;
}

/** Does it, and returns how many settlements were lost by it. */
export async function disturb(
  kind: Disturbance,
  { world, fleet, random }: {
    world: RedisWorld;
    fleet: Fleet;
    random: () => number;
  },
): Promise<number> {
  switch (kind) {
    case "nothing":
      return 0;
    case "an edge is killed":
      return await fleet.replace(Math.floor(random() * fleet.size));
    case "the scripts are gone":
      await world.command("SCRIPT", "FLUSH");
      return 0;
    case "redis is killed":
      await world.redis.kill();
      await world.redis.restart();
      return 0;
  }
}

/** As the judges of windows take it. */
export function passedOf(
  admitted: readonly Admission[],
  cost: (admission: Admission) => number,
): Passed[] {
  return admitted.map((each) => ({ atMs: each.atMs, cost: cost(each) }));
}
