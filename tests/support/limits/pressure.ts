// Clients on every edge of a fleet that want more than a limit allows, while edges and
// Redis are killed under them, and the judges of what they got.
import assert from "node:assert/strict";
import type { Grant } from "../../../services/edge-auth/limits/limiter.ts";
import type { Principal } from "@gateway/shared/keys/record";
import { DONE, type RedisWorld } from "./admission_fixture.ts";
import type { Fleet, FleetEdge } from "./edge_fleet.ts";
import { sleep, until } from "../wait_for.ts";

interface Stage {
  world: RedisWorld;
  fleet: Fleet;
  principal: Principal;
  random: () => number;
}

/**
 * What can happen while clients press. Returns how many settlements were lost by it.
 */
interface Disturbance {
  readonly name: string;
  act(stage: Stage): number | Promise<number>;
}
/** All of them, from harmless to a restart of Redis. */
export const DISTURBANCES: readonly Disturbance[] = [
  { name: "nothing", act: () => 0 },
  {
    name: "an edge is killed",
    act: ({ fleet, random }) =>
      fleet.replace(Math.floor(random() * fleet.size)),
  },
  {
    name: "the scripts are gone",
    async act({ world }) {
      await world.command("SCRIPT", "FLUSH");
      return 0;
    },
  },
  {
    name: "redis is killed",
    async act({ world }) {
      await world.redis.restart();
      return 0;
    },
  },
];

/** Three on each edge: requests that may run at the same time. */
export const CLIENTS = 12;
const PRESS_MS = 40;
/** A limit that is never reached tests nothing. */
const ROUND_MAX_MS = 60_000;
/** After a refusal, at most: less than the machine needs for the answers. */
const RETRY_MS = 10;
const READY_MS = 30_000;

async function onEveryEdge(
  { size }: Fleet,
  client: (place: number) => Promise<void>,
): Promise<void> {
  const places = Array.from({ length: CLIENTS }, (_, index) => index % size);
  await Promise.all(places.map(client));
}

/**
 * Presses for a round with each disturbance: clients ask until all are refused and
 * nothing is left unsettled.
 */
export async function press(stage: Stage, options: {
  /** Tokens the next request reserves. */
  wantTokens: () => number;
  /** What a request cost in the end; null: it keeps its reservation and its slot. */
  usedTokens: (wantTokens: number) => number | null;
  /**
   * Lets some time pass after a round, and returns how much in ms. On a slow machine
   * `passedMs` have passed by themselves since all were refused.
   */
  letPass: (passedMs: number) => Promise<number>;
}) {
  const { world, fleet, principal, random } = stage;
  /**
   * Times are Redis' clock and what was let pass beside it; tokens are what it cost in
   * the end.
   */
  const admitted: { atMs: number; round: number; usedTokens: number }[] = [];
  const unsureBefore = fleet.unsure;
  const first = Math.floor(random() * DISTURBANCES.length);
  let passedMs = 0;
  let lost = 0;
  for (let round = 0; round < DISTURBANCES.length; round += 1) {
    let isOver = false;
    const endsAtMs = performance.now() + ROUND_MAX_MS;
    const clients = onEveryEdge(fleet, async (place) => {
      for (;;) {
        const wasOver = isOver && fleet.isSettled;
        const edge = fleet.at(place);
        const decision = await edge.ask(principal, options.wantTokens());
        assert.ok(performance.now() < endsAtMs, "not refused in time");
        if (decision === null) await sleep(RETRY_MS);
        else if (decision.isAdmitted) {
          const { reservedTokens } = decision;
          const used = options.usedTokens(reservedTokens);
          const atMs = decision.atMs + passedMs;
          admitted.push({ atMs, round, usedTokens: used ?? reservedTokens });
          if (used === null) continue;
          const cost = { promptTokens: 0, completionTokens: used };
          edge.settle(decision, { ...cost, kind: "complete" });
        } else if (wasOver) return;
        else await sleep(RETRY_MS * random());
      }
    });
    await sleep(PRESS_MS * random());
    const next = DISTURBANCES[(first + round) % DISTURBANCES.length];
    lost += await next?.act(stage) ?? 0;
    await sleep(PRESS_MS * random());
    isOver = true;
    await clients;
    const refusedAtMs = performance.now();
    await until(() => fleet.isSettled);
    await world.link.ready(READY_MS);
    passedMs += await options.letPass(performance.now() - refusedAtMs);
  }
  /**
   * Beside requests that may or may not have been counted, settlements that were lost
   * with their edge: the reservation stays charged.
   */
  return { admitted, unsure: fleet.unsure - unsureBefore + lost };
}

const SLOTS_MS = 400;
const HOLD_MS = 40;
const PAUSE_MS = 5;

/** A slot, as a client sees it: it may be taken in this time, and in no other. */
interface Slot {
  fromMs: number;
  untilMs: number;
}

/** What clients saw of a limit of concurrent requests. */
class SlotRecord {
  /** Requests that run now, and the most that did. */
  running = 0;
  most = 0;
  served = 0;
  readonly #slots: Slot[] = [];
  readonly #refusals: { askedAtMs: number; answeredAtMs: number }[] = [];

  /** A request got a slot, or may have got one; it keeps it until that is changed. */
  take(askedAtMs: number): Slot {
    const slot = { fromMs: askedAtMs, untilMs: Infinity };
    this.#slots.push(slot);
    return slot;
  }

  refuse(askedAtMs: number): void {
    this.#refusals.push({ askedAtMs, answeredAtMs: performance.now() });
  }

  /** Refusals while fewer than `limit` slots can have been taken. */
  wrongRefusals(limit: number): number {
    return this.#refusals.filter(({ askedAtMs, answeredAtMs }) => {
      const overlapping = this.#slots.filter(({ fromMs, untilMs }) =>
        fromMs <= answeredAtMs && untilMs >= askedAtMs
      );
      return overlapping.length < limit;
    }).length;
  }
}

/**
 * Presses against a limit of `limit` concurrent requests, and waits until all that can
 * end has ended.
 */
export async function pressSlots(
  stage: Stage,
  { act }: Disturbance,
  limit: number,
): Promise<{ most: number; wrongRefusals: number }> {
  const { fleet, principal, random } = stage;
  const record = new SlotRecord();
  let isOver = false;
  const isFull = Promise.withResolvers<void>();
  const run = async (edge: FleetEdge, admitted: Grant, slot: Slot) => {
    record.running += 1;
    record.most = Math.max(record.most, record.running);
    // However slowly the machine asks, the limit is reached.
    if (record.most >= limit) isFull.resolve();
    await isFull.promise;
    await sleep(HOLD_MS * (1 + random()) / 2);
    // What a killed edge had begun runs on.
    if (!edge.isAlive) return;
    // Ended before it is settled: the slot is free only after that.
    record.running -= 1;
    record.served += 1;
    edge.settle(admitted, DONE);
    await until(() => edge.admission.leases.unsettled === 0 || !edge.isAlive);
    if (edge.isAlive) slot.untilMs = performance.now();
  };
  const clients = onEveryEdge(fleet, async (place) => {
    while (!isOver) {
      const edge = fleet.at(place);
      const askedAtMs = performance.now();
      const decision = await edge.ask(principal);
      // Without an answer it may have been admitted.
      if (decision === null) record.take(askedAtMs);
      else if (!decision.isAdmitted) record.refuse(askedAtMs);
      else await run(edge, decision, record.take(askedAtMs));
      // Whoever just had a slot is not always the first to ask again.
      await sleep(PAUSE_MS * random());
    }
  });
  await until(() => record.most >= limit);
  await sleep(SLOTS_MS / 2);
  await act(stage);
  await sleep(SLOTS_MS / 2);
  // However slow the machine is, slots are given back and taken again.
  await until(() => record.served > limit);
  isOver = true;
  await clients;
  await until(() => fleet.isSettled);
  return { most: record.most, wrongRefusals: record.wrongRefusals(limit) };
}

/**
 * What a limit let pass, in order of time: 1 for a request, its tokens for a token
 * limit; less than 0 gives back.
 */
type Passed = readonly { atMs: number; cost: number }[];

const MS_PER_MINUTE = 60_000;

/**
 * The most that passed in any window beyond what refills in it at `perMinute`: a
 * limiter with a burst of 600 holds when this is 600 at most. A window begins and
 * ends with something that passed, and may be as short as one event.
 */
export function worstBurst(passed: Passed, perMinute: number) {
  let [worst, sum, best] = [0, 0, Infinity];
  for (const { atMs, cost } of passed) {
    const refilled = atMs * perMinute / MS_PER_MINUTE;
    best = Math.min(best, sum - refilled);
    sum += cost;
    worst = Math.max(worst, sum - refilled - best);
  }
  return worst;
}

/** The most that passed in any window of `lengthMs`, both of its ends included. */
export function worstWindow(passed: Passed, lengthMs: number) {
  let [worst, sum, first] = [0, 0, 0];
  for (const { atMs, cost } of passed) {
    sum += cost;
    for (; atMs - (passed[first]?.atMs ?? atMs) > lengthMs; first += 1) {
      sum -= passed[first]?.cost ?? 0;
    }
    worst = Math.max(worst, sum);
  }
  return worst;
}
