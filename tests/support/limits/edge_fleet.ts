/**
 * Edges reduced to their limits: an admission with its own connection to Redis and
 * its own clock. They can be killed and restarted within milliseconds, so that a
 * property can be tried in hundreds of runs.
 */
import type { Cost, Units } from "../../../services/edge-auth/limits/cost.ts";
import {
  type Admitted,
  type Ask,
  Limiter,
} from "../../../services/edge-auth/limits/limiter.ts";
import type { Refusal } from "../../../services/edge-auth/limits/refusal.ts";
import { EDGE_SCRIPTS } from "../../../services/edge-auth/limits/scripts.ts";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { startTcpProxy } from "../tcp_proxy.ts";
import { testRedisLink } from "../redis_link.ts";

/** One life of an edge. */
export type FleetEdge = Awaited<ReturnType<typeof startEdge>>;
export type Fleet = Awaited<ReturnType<typeof startFleet>>;

/** Where a fleet finds Redis: asked for every connection. */
export interface FleetOptions {
  redisPort: () => number;
  /** How long Redis may be silent; long, because a busy machine must not decide about limits. */
  deadlineMs?: number;
}

const EDGES = 4;
const READY_MS = 30_000;
const DEADLINE_MS = 5_000;
const HOUR_MS = 3_600_000;
const STOP_MS = 2_000;

/** Starts edges whose clocks are an hour and more apart. */
export async function startFleet(options: FleetOptions) {
  const size = EDGES;
  let unsure = 0;
  const start = (place: number) =>
    startEdge(options, {
      skewMs: (place - size / 2) * HOUR_MS,
      onUnsure: () => unsure += 1,
    });
  const edges = await Promise.all(
    Array.from({ length: size }, (_, place) => start(place)),
  );
  /** The edge that stands in this place now. */
  const at = (place: number): FleetEdge => {
    const edge = edges[place];
    if (edge === undefined) throw new Error(`No place ${place}`);
    return edge;
  };
  return {
    size,
    at,
    /** Kills the edge of a place as `kill -9` does, and puts a new one there. As `kill`. */
    async replace(place: number) {
      const killed = at(place).kill();
      edges[place] = await start(place);
      return await killed;
    },
    /** All settlements of living edges have reached Redis. */
    get isSettled() {
      return edges.every(({ admission }) => admission.unsettled === 0);
    },
    /** Requests so far that may or may not have been counted. */
    get unsure() {
      return unsure;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(edges.map(async (edge) => {
        await edge.admission.stop(STOP_MS);
        await edge.kill();
      }));
    },
  };
}

async function startEdge(
  { redisPort, deadlineMs = DEADLINE_MS }: FleetOptions,
  { skewMs, onUnsure }: { skewMs: number; onUnsure: () => void },
) {
  // Of its own, so that this edge alone can be cut off.
  const proxy = startTcpProxy(redisPort);
  const url = `redis://${proxy.server}`;
  const redis = testRedisLink({ url }, { scripts: EDGE_SCRIPTS });
  await redis.ready(READY_MS);
  const admission = new Limiter({
    redis,
    now: () => monotonicNow() + skewMs,
    log: silentLog,
    deadlineMs,
  });
  let isAlive = true;
  return {
    get isAlive() {
      return isAlive;
    },
    admission,
    /** Null: Redis could not be asked, or the edge was killed meanwhile. */
    async ask(
      principal: Principal,
      wantTokens = 0,
      wantUnits: Units | null = null,
    ) {
      const ask: Ask = { scope: "chat", model: "m", wantTokens, wantUnits };
      const answer = await decide(admission, principal, ask);
      const isLost = answer === "unsure" || !isAlive;
      if (isLost) onUnsure();
      return isLost || answer === "not asked" ? null : answer;
    },
    settle(admitted: Admitted, outcome: Cost) {
      if (isAlive) admission.settle(admitted, outcome);
    },
    /**
     * What was on its way is lost, leases stay behind, nothing is settled any more.
     * Returns how many settlements had not arrived for certain.
     */
    async kill() {
      isAlive = false;
      await proxy[Symbol.asyncDispose]();
      const lost = await admission.stop(0);
      await redis.close();
      return lost;
    },
  };
}

async function decide(
  admission: Limiter,
  principal: Principal,
  ask: Ask,
): Promise<Admitted | Refusal | "unsure" | "not asked"> {
  try {
    return await admission.admit(principal, ask);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { cause } = error;
    const mayHaveRun = cause instanceof RedisUnavailableError &&
      cause.mayHaveRun;
    return mayHaveRun ? "unsure" : "not asked";
  }
}
