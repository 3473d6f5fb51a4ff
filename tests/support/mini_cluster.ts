// Edges and workers in this process, connected by a real nats-server, between an HTTP
// client and a model server of the test. There is no Redis, and every key is admitted,
// unless a test provides its own admission.
import assert from "node:assert/strict";
import {
  CONTROL_WAIT_MS,
  Dispatcher,
} from "../../services/edge-auth/dispatch/dispatcher.ts";
import type { AppDependencies } from "../../services/edge-auth/app.ts";
import { startApp } from "../../services/edge-auth/app_fixture.ts";
import type { RunOutcome } from "../../services/edge-auth/dispatch/outcome.ts";
import { Worker, WORKER_TICK_MS } from "@gateway/shared/worker/worker";
import { AnswerMemory } from "@gateway/shared/worker/answer_memory";
import { createWorkerMetrics } from "@gateway/shared/worker/metrics";
import {
  OpenAiBackend,
  runCompletion,
} from "../../services/chat-worker/backends/openai.ts";
import { connectBus } from "@gateway/shared/bus/link_nats";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId, randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { type Log, silentLog } from "@gateway/shared/process/log";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import type { ModelServer } from "./scripted_model_server.ts";
import { postChat } from "./chat_request.ts";
import { startNatsServer } from "./nats_server.ts";
import { owning } from "./process.ts";
import { poolOf } from "./recorded_call.ts";
import { startTcpProxy } from "./tcp_proxy.ts";
import { until } from "./wait_for.ts";

/** A key that every edge of a mini cluster admits. */
const TEST_KEY = mintKey(randomBytes);

export type MiniEdge = Awaited<ReturnType<typeof startMiniEdge>>;
export type MiniCluster = Awaited<ReturnType<typeof startMiniCluster>>;
type MiniWorker = Awaited<ReturnType<typeof startMiniWorker>>;
type EdgeOptions = Parameters<typeof startMiniEdge>[0];
type WorkerOptions = Parameters<typeof startMiniWorker>[0];

const now = monotonicNow;

const connect = (servers: string[], name: string, log: Log) =>
  connectBus({ servers, name, log, now, random: () => 0 });

/** A request that an edge admitted. */
interface Admitted {
  request: object;
  /** How it ended, once for each settlement; null if it was released before it ran. */
  settlements: (RunOutcome | null)[];
}

/** Admits everything and writes down how it ended. */
function admitAll(
  admitted: Admitted[],
): Pick<AppDependencies, "keys" | "admission"> {
  const principal = { keyId: "key_test", ownerId: "own_test" };
  const reservation = {
    id: "l1",
    principal,
    model: null,
    atMs: 0,
    reservedTokens: 0,
    reservedUnits: null,
  };
  return {
    keys: { find: () => Promise.resolve(principal) },
    admission: {
      modelsOf: () => Promise.resolve([]),
      checkRefused: () => Promise.resolve(),
      admit: (_principal, { request }) => {
        const settlements: Admitted["settlements"] = [];
        admitted.push({ request, settlements });
        return Promise.resolve({
          headers: {},
          reservation,
          settle: (outcome) => settlements.push(outcome),
        });
      },
    },
  };
}

/** Timers that are gone when what they belong to is closed. */
function createTimers() {
  const timers = new Set<ReturnType<typeof setTimeout>>();
  return {
    schedule(run: () => void, waitMs: number): void {
      const timer = setTimeout(() => {
        timers.delete(timer);
        run();
      }, waitMs);
      timers.add(timer);
    },
    clear: () => timers.forEach(clearTimeout),
  };
}

/** Starts an edge and waits for nothing: workers are found by their beats. */
export async function startMiniEdge(options: {
  servers: string[];
  /** How many times longer its runs wait for workers. */
  slower?: number;
  busLostMs?: number;
  log?: Log;
  /**
   * What of the app differs: keys and admission (every key is admitted if left out),
   * models, hosts, bounds.
   */
  door?: Partial<AppDependencies>;
}) {
  const id = newInstanceId();
  const { slower = 1, log = silentLog } = options;
  const link = await connect(options.servers, `edge ${id}`, log);
  const soon = createTimers();
  const dispatcher = new Dispatcher({
    bus: link,
    edgeId: id,
    random: Math.random,
    log,
    now: () => now() / slower,
    scheduleSoon: (flush) => soon.schedule(flush, CONTROL_WAIT_MS),
    requestTimeoutMs: 60_000,
    busLostMs: options.busLostMs ?? DISPATCH_LIMITS.busLostMs,
  });
  const admitted: Admitted[] = [];
  const leaveBus = await dispatcher.join(link);
  const app = await startApp({
    ...admitAll(admitted),
    log,
    dispatcher: {
      start: (...run) => dispatcher.start(...run),
      isStoppedSince: (keyId, sinceMs) =>
        dispatcher.isStoppedSince(keyId, sinceMs / slower),
    },
    ...options.door,
  });
  return {
    id,
    link,
    dispatcher,
    baseUrl: `${app.origin}/v1`,
    admitted,
    settlements: () => admitted.flatMap(({ settlements }) => settlements),
    [Symbol.asyncDispose]: async () => {
      await app[Symbol.asyncDispose]();
      leaveBus();
      await link.close();
      soon.clear();
    },
  };
}

export async function startMiniWorker(options: {
  servers: string[];
  /** The model server: at an address, or one of `scripted_model_server.ts`. */
  backend: ModelServer | { readonly baseUrl: string };
  slots?: number;
  busLostMs?: number;
  slower?: number;
}) {
  const id = newInstanceId();
  const link = await connect(options.servers, `worker ${id}`, silentLog);
  const soon = createTimers();
  const killed = new AbortController();
  const at = { baseUrl: "http://scripted/v1", ...options.backend };
  const model = catalogFromSimulator(at.baseUrl).get(DEFAULT_MODEL_ID);
  const [config = assert.fail("no backend")] = model?.backends ?? [];
  const backend = new OpenAiBackend({
    publicModel: DEFAULT_MODEL_ID,
    config,
    apiKey: null,
    now,
    ...("connect" in at ? { connect: at.connect } : {}),
  });
  const memory = new AnswerMemory();
  const pool = poolOf(backend);
  const worker = new Worker({
    bus: link,
    family: "chat",
    workerId: id,
    wallNow,
    log: silentLog,
    busLostMs: options.busLostMs ?? DISPATCH_LIMITS.busLostMs,
    slots: options.slots ?? 64,
    runners: new Map([[DEFAULT_MODEL_ID, (request, call) => {
      const signal = AbortSignal.any([call.signal, killed.signal]);
      return runCompletion(request, { ...call, signal }, { pool, memory });
    }]]),
    now: () => now() / (options.slower ?? 1),
    schedule: (flush, waitMs) =>
      waitMs === 0 ? void setImmediate(flush) : soon.schedule(flush, waitMs),
    metrics: createWorkerMetrics(new MetricRegistry()),
  });
  await worker.start();
  const ticker = setInterval(() => worker.tick(), WORKER_TICK_MS);
  const kill = async () => {
    clearInterval(ticker);
    await link.close();
    soon.clear();
    killed.abort(new Error("Killed"));
    backend.close();
  };
  return {
    id,
    link,
    worker,
    get isRunning() {
      return !killed.signal.aborted;
    },
    /** Vanishes as a killed process does: the connection is gone, the jobs with it. */
    kill,
    [Symbol.asyncDispose]: kill,
  };
}

/**
 * Starts a bus with an edge, to which a test adds workers and further edges. All of
 * them end with it.
 */
export async function startMiniCluster(options: Partial<EdgeOptions> = {}) {
  await using starting = new AsyncDisposableStack();
  const nats = starting.use(await startNatsServer());
  const servers = [nats.server];
  const edge = starting.use(await startMiniEdge({ servers, ...options }));
  const running = starting.use(new AsyncDisposableStack());
  const edges = [edge];
  const workers: MiniWorker[] = [];
  return owning(starting, {
    nats,
    edge,
    addEdge: async (options?: Partial<EdgeOptions>) => {
      const more = await startMiniEdge({ servers, ...options });
      edges.push(running.use(more));
      return more;
    },
    addWorker: async (
      backend: WorkerOptions["backend"],
      options?: Partial<WorkerOptions>,
    ) => {
      const more = await startMiniWorker({ servers, backend, ...options });
      workers.push(running.use(more));
      return more;
    },
    /** Something between the bus and the one that connects to its `server`. */
    addProxy: () => running.use(startTcpProxy(nats.port)),
    /** Waits until nothing runs or waits at its edges and living workers. */
    idle: async () => {
      for (const { dispatcher } of edges) {
        await until(() => dispatcher.running + dispatcher.queue.length === 0);
      }
      for (const { worker } of workers.filter((each) => each.isRunning)) {
        await until(() => worker.inFlight + worker.jobs.size === 0);
      }
    },
  });
}

export const chat = (
  edge: MiniEdge,
  body: object,
  init: { signal?: AbortSignal } = {},
) => postChat(edge.baseUrl, TEST_KEY, body, init);
