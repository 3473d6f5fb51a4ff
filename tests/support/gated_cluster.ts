// Edges with the real admission: a Redis, a NATS server, a worker whose backend is the
// test's, and any number of edges, each with a connection of its own to Redis.
import { createKeyLookup } from "../../services/edge-auth/keys/authenticate.ts";
import { createAdmission } from "../../services/edge-auth/limits/admission.ts";
import {
  createLimiter,
  LIMITER_PROBE,
} from "../../services/edge-auth/limits/limiter.ts";
import { EDGE_SCRIPTS } from "../../services/edge-auth/limits/scripts.ts";
import type { AppDependencies } from "../../services/edge-auth/app.ts";
import { monotonicNow } from "@gateway/shared/process/clock";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { randomBytes } from "@gateway/shared/process/ids";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import {
  hashKey,
  leaseKey,
  ownerLeaseKey,
  type Principal,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import type { CallOptions, RedisLink } from "@gateway/shared/redis/link";
import {
  type KeyOptions,
  startRedisWorld,
  STORE_NAME,
} from "./admission_fixture.ts";
import { startMiniEdge, startMiniWorker } from "./mini_cluster.ts";
import { startNatsServer } from "./nats_server.ts";
import { owning } from "./process.ts";
import { assertNoKeys, createRecordingLog } from "./recording_log.ts";
import { changedLink, testRedisLink } from "./redis_link.ts";
import {
  hello,
  type ModelServer,
  type ScriptedCall,
  scriptedModelServer,
} from "./scripted_model_server.ts";
import { startTcpProxy, type Toxics } from "./tcp_proxy.ts";
import { until } from "./wait_for.ts";
import { callApi, postChat } from "./chat_request.ts";

export type GatedEdge = Awaited<ReturnType<typeof startEdge>>;
export type GatedCluster = Awaited<ReturnType<typeof startGatedCluster>>;

export interface TestKey extends Principal {
  readonly value: string;
}

interface GatedClusterOptions {
  edges?: number;
  door?: Partial<AppDependencies>;
  /** Default {@link KEY_LIMITS}. */
  unknownPerSecond?: number;
  /** What the backend does; it says "Hello" if left out. */
  onCall?: (call: ScriptedCall) => void;
  /** Another backend, in place of the scripted one. */
  runsOn?: ModelServer;
  /**
   * Where the edges find Redis, which was started on `port`: asked for every
   * connection.
   */
  redisAt?: (port: number) => number;
  /**
   * How long edges wait for Redis at least; if left out, as long as a busy machine
   * needs.
   */
  redisMsMin?: number;
  /** Lines of a redis.conf. */
  redisConfig?: string[];
}

/** Enough that nothing waits for the worker where a test does not mean it to. */
const SLOTS = 4_096;
const PATIENT_MS = 30_000;
/** A worker has 250 ms to answer an offer: no test with limits is about that. */
const SLOWER = 8;
const STOP_MS = 2_000;
/** Errors too, which JSON leaves out. */
const WHOLE = { depth: 10, iterableLimit: Infinity, strAbbreviateSize: 1e9 };

export async function startGatedCluster(options: GatedClusterOptions = {}) {
  await using started = new AsyncDisposableStack();
  const edges: GatedEdge[] = [];
  started.defer(() => {
    for (const { log } of edges) {
      assertNoKeys(Deno.inspect(log.lines, WHOLE), "the log of an edge");
    }
  });
  const config = options.redisConfig ?? [];
  const world = started.use(await startRedisWorld({ config }));
  const { port } = world.redis;
  await world.command("SET", STORE_KEY, STORE_NAME);
  const nats = started.use(await startNatsServer());
  const servers = [nats.server];
  const { onCall = hello } = options;
  const model = scriptedModelServer(onCall);
  const backend = options.runsOn ?? model;
  const worker = { servers, backend, slots: SLOTS, slower: SLOWER };
  started.use(await startMiniWorker(worker));
  const start = () => startEdge(started, { ...options, servers, port });
  const first = await start();
  edges.push(first);
  while (edges.length < (options.edges ?? 1)) edges.push(await start());
  /** Writes whose key a value is. */
  const nameKey = (value: string, { keyId, ownerId }: Principal) => {
    const name = hashKey(hashKeyValue(value));
    return world.command("SET", name, `${keyId}:${ownerId}`);
  };
  /** Sends a chat request to edge `edge`. */
  const ask = (
    { value }: TestKey,
    { edge = 0, body = {}, signal = null }: {
      edge?: number;
      body?: object;
      signal?: AbortSignal | null;
    } = {},
  ) => {
    const { baseUrl = "" } = edges[edge] ?? {};
    return postChat(baseUrl, value, { max_tokens: 16, ...body }, { signal });
  };
  return owning(started, {
    edges,
    world,
    backend: model,
    nameKey,
    ask,
    /** The first of them. */
    edge: first,
    /** Between all edges and Redis. */
    proxy: {
      set: (toxics: Toxics) => edges.forEach(({ proxy }) => proxy.set(toxics)),
      cut: () => edges.forEach(({ proxy }) => proxy.cut()),
    },
    async addKey(keyOptions?: KeyOptions): Promise<TestKey> {
      const value = mintKey(randomBytes);
      const principal = await world.addKey(keyOptions);
      await nameKey(value, principal);
      return { ...principal, value };
    },
    /** The status of its answer. */
    status: (...asked: Parameters<typeof ask>) => statusOf(ask(...asked)),
    /** Gets a path below `/v1` of the first edge. */
    get: ({ value }: TestKey, path: string) =>
      callApi(`${first.baseUrl}/${path}`, value),
    /** Leases of a key in Redis, dead or alive. */
    leases: async (key: TestKey) =>
      Number(await world.command("ZCARD", leaseKey(key))),
    /**
     * Waits until the key and its owner hold no lease and every edge knows that: all is
     * settled.
     */
    async settled(key: TestKey, timeoutMs?: number) {
      const ofOwner = ownerLeaseKey(key.ownerId);
      for (const name of [leaseKey(key), ofOwner]) {
        const isFree = async () => await world.command("ZCARD", name) === 0;
        await until(isFree, timeoutMs);
      }
      // Redis has settled all of them; its last answers may be on their way.
      await until(() =>
        edges.every(({ limiter }) => limiter.leases.unsettled === 0)
      );
    },
  });
}

async function startEdge(
  started: AsyncDisposableStack,
  options: GatedClusterOptions & { servers: string[]; port: number },
) {
  const { servers, port, redisAt = () => port } = options;
  const log = createRecordingLog();
  const proxy = started.use(startTcpProxy(() => redisAt(port)));
  const url = `redis://${proxy.server}`;
  const scripts = { scripts: EDGE_SCRIPTS, probe: LIMITER_PROBE };
  const link = testRedisLink({ url }, { log, ...scripts });
  started.defer(() => link.close());
  await link.ready(PATIENT_MS);
  const redis = patient(link, options.redisMsMin ?? PATIENT_MS);
  const common = { redis, now: monotonicNow, random: Math.random, log };
  let admissions = 0;
  const { unknownPerSecond = KEY_LIMITS.unknownPerSecond } = options;
  const keys = createKeyLookup({ ...common, unknownPerSecond });
  const limiter = createLimiter(common);
  const admission = createAdmission({
    ...common,
    limiter,
    onUnknown: keys.forget,
    onDecision: (decision) => {
      if (typeof decision !== "string" && decision.isAdmitted) admissions += 1;
    },
  });
  const stopWatching = keys.watchStore();
  started.defer(async () => {
    stopWatching();
    await limiter.leases.stop(STOP_MS);
  });
  const door = { keys, admission, ...options.door };
  const edge = await startMiniEdge({ servers, door, log, slower: SLOWER });
  return {
    ...started.use(edge),
    keys,
    limiter,
    redis,
    log,
    /** Between this edge and Redis. */
    proxy,
    /** Requests that Redis has admitted. */
    get admissions() {
      return admissions;
    },
  };
}

/** Gives each call this much time at least. */
function patient(link: RedisLink, ms: number): RedisLink {
  const given = (options: CallOptions = {}) =>
    ms === 0
      ? options
      : { ...options, deadlineMs: Math.max(ms, options.deadlineMs ?? 0) };
  return changedLink(link, {
    command: (args, options) => link.command(args, given(options)),
    evalScript: (script, input, options) =>
      link.evalScript(script, input, given(options)),
  });
}

/** Reads an answer to its end. */
export async function statusOf(response: Response | Promise<Response>) {
  const answer = await response;
  await answer.body?.cancel();
  return answer.status;
}
