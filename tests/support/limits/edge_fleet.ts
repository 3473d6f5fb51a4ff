// Edges reduced to their limits: an admission with its own connection to Redis and
// its own clock. They can be killed and restarted within milliseconds, so that a
// property can be tried in hundreds of runs.
import assert from "node:assert/strict";
import type { Cost, Units } from "../../../services/edge-auth/limits/cost.ts";
import {
  type Grant,
  Limiter,
} from "../../../services/edge-auth/limits/limiter.ts";
import { EDGE_SCRIPTS } from "../../../services/edge-auth/limits/scripts.ts";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { startTcpProxy } from "../servers/tcp_proxy.ts";
import { testRedisLink } from "../servers/redis_link.ts";

/** The admission of an edge; killed, it settles nothing more. */
export type FleetEdge = Awaited<ReturnType<typeof startEdge>>;
/** Edges that share a Redis and are replaced when they are killed. */
export type Fleet = Awaited<ReturnType<typeof startFleet>>;

const EDGES = 4;
const READY_MS = 30_000;
const HOUR_MS = 3_600_000;
const STOP_MS = 2_000;

/**
 * Starts edges whose clocks are hours apart, and which wait long for Redis: a busy
 * machine must not decide about limits.
 */
export async function startFleet(redisPort: () => number, deadlineMs = 5_000) {
  let unsure = 0;
  const start = (place: number) => {
    const skewMs = (place - EDGES / 2) * HOUR_MS;
    const onUnsure = () => {
      unsure += 1;
    };
    return startEdge({ redisPort, deadlineMs, skewMs, onUnsure });
  };
  const edges = await Promise.all([0, 1, 2, 3].map(start));
  /** The edge that stands in this place now. */
  const at = (place: number): FleetEdge =>
    edges[place] ?? assert.fail(`No place ${place}`);
  return {
    size: EDGES,
    at,
    /**
     * Kills the edge of a place as `kill -9` does, and puts a new one there. As `kill`.
     */
    async replace(place: number) {
      const killed = at(place).kill();
      edges[place] = await start(place);
      return await killed;
    },
    /** All settlements of living edges have reached Redis. */
    get isSettled() {
      return edges.every(({ admission }) => admission.leases.unsettled === 0);
    },
    /** Requests so far that may or may not have been counted. */
    get unsure() {
      return unsure;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(edges.map(async (edge) => {
        await edge.admission.leases.stop(STOP_MS);
        await edge.kill();
      }));
    },
  };
}

async function startEdge({ redisPort, deadlineMs, skewMs, onUnsure }: {
  redisPort: () => number;
  deadlineMs: number;
  skewMs: number;
  onUnsure: () => void;
}) {
  // Each edge has a proxy of its own, so that it alone can be cut off.
  const proxy = startTcpProxy(redisPort);
  const url = `redis://${proxy.server}`;
  const redis = testRedisLink({ url }, { scripts: EDGE_SCRIPTS });
  await redis.ready(READY_MS);
  const now = () => monotonicNow() + skewMs;
  const admission = new Limiter({ redis, now, log: silentLog, deadlineMs });
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
      const ask = { scope: "chat", model: "m", wantTokens, wantUnits } as const;
      const answer = await admission.admit(principal, ask).catch((error) => {
        if (!(error instanceof ApiError)) throw error;
        const { cause } = error;
        const isOpen = cause instanceof RedisUnavailableError &&
          cause.mayHaveRun;
        return isOpen ? "unsure" : null;
      });
      if (answer !== "unsure" && isAlive) return answer;
      onUnsure();
      return null;
    },
    settle(admitted: Grant, outcome: Cost) {
      if (isAlive) admission.settle(admitted, outcome);
    },
    /**
     * Loses what is on its way, and leaves its leases behind. Returns how many
     * settlements may be lost.
     */
    async kill() {
      isAlive = false;
      await proxy[Symbol.asyncDispose]();
      const lost = await admission.leases.stop(0);
      await redis.close();
      return lost;
    },
  };
}
