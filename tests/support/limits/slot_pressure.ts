/** Clients that want more requests at the same time than a limit allows. */
import type { Admitted } from "../../../services/edge-auth/limits/limiter.ts";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
  recordKey,
} from "@gateway/shared/keys/record";
import { DONE, type RedisWorld } from "../admission_fixture.ts";
import type { Fleet, FleetEdge } from "./edge_fleet.ts";
import { CLIENTS_PER_EDGE, disturb, type Disturbance } from "./pressure.ts";
import { type ScriptCommand, startRedisMonitor } from "./redis_monitor.ts";
import { sleep, waitFor } from "../wait_for.ts";

export interface SlotPressureOptions {
  world: RedisWorld;
  fleet: Fleet;
  principal: Principal;
  limit: number;
  /** Whose limit it is. */
  side: "key" | "owner";
  random: () => number;
  disturbance: Disturbance;
}

/** What a model server would have seen, and how Redis decided. */
export interface SlotsSeen {
  /** The most that ran at once. What a killed edge had begun runs on. */
  readonly most: number;
  readonly served: number;
  /** Requests whose edge was killed: their leases stay until they run out. */
  readonly orphans: number;
  /** Leases that were taken when a request was refused, each time; unknown over a restart. */
  readonly takenAtRefusals: readonly number[];
}

const PRESS_MS = 400;
const HOLD_MS = 40;
const PAUSE_MS = 5;

/** Presses for a while and waits until all that can end has ended. No lease is taken before. */
export async function pressSlots(options: SlotPressureOptions) {
  const { world, fleet, principal, limit, random, disturbance } = options;
  let running = 0;
  let most = 0;
  let served = 0;
  let orphans = 0;
  let isOver = false;
  const isFull = Promise.withResolvers<void>();
  await using monitor = await startRedisMonitor(world.redis.port);

  const run = async (edge: FleetEdge, admitted: Admitted) => {
    running += 1;
    most = Math.max(most, running);
    // However slowly the machine asks, the limit is reached.
    if (most >= limit) isFull.resolve();
    await isFull.promise;
    await sleep(HOLD_MS * (1 + random()) / 2);
    if (!edge.isAlive) {
      orphans += 1;
      return;
    }
    // Ended before it is settled: the slot is free only after that.
    running -= 1;
    served += 1;
    edge.settle(admitted, DONE);
  };
  const client = async (place: number) => {
    while (!isOver) {
      const edge = fleet.at(place);
      const decision = await edge.ask(principal);
      if (decision?.isAdmitted) await run(edge, decision);
      // Whoever just had a slot is not always the first to ask again.
      await sleep(PAUSE_MS * random());
    }
  };
  const clients = Array.from(
    { length: fleet.size * CLIENTS_PER_EDGE },
    (_, index) => client(index % fleet.size),
  );
  await waitFor(() => most >= limit, { what: "all slots to be taken" });
  await sleep(PRESS_MS / 2);
  await disturb(disturbance, { world, fleet, random });
  await sleep(PRESS_MS / 2);
  isOver = true;
  await Promise.all(clients);
  await waitFor(() => fleet.isSettled, { what: "all to be settled" });
  const takenAtRefusals = disturbance === "redis is killed"
    ? []
    : refusalsIn(await monitor.scriptCommands(), options);
  return { most, served, orphans, takenAtRefusals };
}

/** Follows the leases through what the scripts did. */
function refusalsIn(
  commands: readonly ScriptCommand[],
  { principal, side }: SlotPressureOptions,
): number[] {
  const record = recordKey(principal);
  const leases = side === "key"
    ? leaseKey(principal)
    : ownerLeaseKey(principal.ownerId);
  const refusals: number[] = [];
  const taken = new Set<string>();
  let isAsking = false;
  const decided = () => {
    if (isAsking) refusals.push(taken.size);
    isAsking = false;
  };
  for (const { words: [command, key, ...rest] } of commands) {
    if (command === "HMGET" && key === record) {
      decided();
      isAsking = true;
    }
    if (command === "ZREM") decided();
    if (key !== leases) continue;
    const id = rest.at(-1) ?? "";
    if (command === "ZADD") {
      taken.add(id);
      isAsking = false;
    } else if (command === "ZREM") taken.delete(id);
  }
  decided();
  return refusals;
}
