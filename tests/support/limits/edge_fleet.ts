// Edges reduced to their limits: an admission with its own connection to Redis and
// its own clock. They can be killed and restarted within milliseconds, so that a
// property can be tried in hundreds of runs.
import assert from "node:assert/strict";
import type { Cost, Units } from "../../../services/edge-auth/limits/cost.ts";
import {
  type Grant,
  Limiter,
} from "../../../services/edge-auth/limits/limiter.ts";
import type { Refusal } from "../../../services/edge-auth/limits/refusal.ts";
import { EDGE_SCRIPTS } from "../../../services/edge-auth/limits/scripts.ts";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import { silentLog } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { startTcpProxy } from "../servers/tcp_proxy.ts";
import { testRedisLink } from "../servers/redis_link.ts";

/** The admission of an edge; killed, it settles nothing more. */
export interface FleetEdge {
  readonly isAlive: boolean;
  readonly admission: Limiter;
  /** Null: Redis could not be asked, or the edge was killed meanwhile. */
  ask(
    principal: Principal,
    wantTokens?: number,
    wantUnits?: Units | null,
  ): Promise<Grant | Refusal | null>;
  settle(admitted: Grant, outcome: Cost): void;
  /**
   * Loses what is on its way, and leaves its leases behind. Returns how many
   * settlements may be lost.
   */
  kill(): Promise<number>;
}

/** Edges that share a Redis and are replaced when they are killed. */
export interface Fleet extends AsyncDisposable {
  readonly size: number;
  /** The edge that stands in this place now. */
  at(place: number): FleetEdge;
  /**
   * Kills the edge of a place as `kill -9` does, and puts a new one there. As `kill`.
   */
  replace(place: number): Promise<number>;
  /** Whether all settlements of living edges have reached Redis. */
  readonly isSettled: boolean;
  /** Requests so far that may or may not have been counted. */
  readonly unsure: number;
}

const EDGES = 4;
const READY_MS = 30_000;
const HOUR_MS = 3_600_000;
const STOP_MS = 2_000;

/**
 * Starts edges whose clocks are hours apart, and which wait long for Redis: a busy
 * machine must not decide about limits.
 */
export async function startFleet(
  redisPort: () => number,
  deadlineMs = 5_000,
): Promise<Fleet> {
  let unsure = 0;
  const start = (place: number) => {
    const skewMs = (place - EDGES / 2) * HOUR_MS;
    const onUnsure = () => {
      unsure += 1;
    };
    return startEdge({ redisPort, deadlineMs, skewMs, onUnsure });
  };
  const edges = await Promise.all([0, 1, 2, 3].map(start));
  const at = (place: number): FleetEdge =>
    edges[place] ?? assert.fail(`No place ${place}`);
  return {
    size: EDGES,
    at,
    async replace(place) {
      const killed = at(place).kill();
      edges[place] = await start(place);
      return await killed;
    },
    get isSettled() {
      return edges.every(({ admission }) => admission.leases.unsettled === 0);
    },
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
}): Promise<FleetEdge> {
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
    async ask(principal, wantTokens = 0, wantUnits = null) {
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
    settle(admitted, outcome) {
      if (isAlive) admission.settle(admitted, outcome);
    },
    async kill() {
      isAlive = false;
      await proxy[Symbol.asyncDispose]();
      const lost = await admission.leases.stop(0);
      await redis.close();
      return lost;
    },
  };
}
