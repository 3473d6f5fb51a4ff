/**
 * Edges and workers in this process, connected by a real nats-server: everything
 * between the HTTP server and the backend runs as in production, while the test
 * controls both ends. There is no Redis, and every key is admitted, unless a test
 * provides its own admission.
 */
import assert from "node:assert/strict";
import {
  CONTROL_WAIT_MS,
  Dispatcher,
} from "../../services/edge-auth/dispatch/dispatcher.ts";
import {
  type AppDependencies,
  createApp,
} from "../../services/edge-auth/app.ts";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import type { RunOutcome } from "../../services/edge-auth/dispatch/outcome.ts";
import { createEdgeMetrics } from "../../services/edge-auth/metrics.ts";
import { Worker, WORKER_TICK_MS } from "@gateway/shared/worker/worker";
import { createWorkerMetrics } from "@gateway/shared/worker/metrics";
import { runCompletion } from "../../services/chat-worker/completion.ts";
import { OpenAiBackend } from "../../services/chat-worker/backends/openai.ts";
import type { ModelServerOptions } from "@gateway/shared/upstream/model_server";
import { type BusLink, connectBus } from "@gateway/shared/bus/link_nats";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId, randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import {
  DISPATCH_LIMITS,
  REQUEST_LIMITS,
  SSE_LIMITS,
} from "@gateway/shared/limits";
import { type Log, silentLog } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import type {
  AttemptProgress,
  BackendCall,
} from "@gateway/shared/upstream/pool";
import type { GracefulServer } from "@gateway/shared/process/serve";
import {
  BodyBudget,
  RefusedBodies,
} from "../../services/edge-auth/http/read_body.ts";
import { noVideos } from "../../services/edge-auth/videos/keeper_fixture.ts";
import { RefusalLog } from "../../services/edge-auth/http/refusal_log.ts";
import { startServer } from "../../services/edge-auth/http/server.ts";
import type { ModelServer } from "./scripted_model_server.ts";
import { postChat } from "./chat_request.ts";
import { startNatsServer } from "./nats_server.ts";
import { startTcpProxy } from "./tcp_proxy.ts";
import { waitFor } from "./wait_for.ts";

/** A request that an edge admitted. */
export interface Admitted {
  request: object;
  /** How it ended, once for each settlement; null if it was released before it ran. */
  settlements: (RunOutcome | null)[];
}

/** The model of the specification. Edges read only its abilities, so no server is at that address. */
export const TEST_CATALOG: Catalog = catalogFromSimulator(
  "http://127.0.0.1:9/v1",
);

/** A key that every edge of a mini cluster admits. */
export const TEST_KEY: string = mintKey(randomBytes);

export type MiniEdge = Awaited<ReturnType<typeof startMiniEdge>>;
export type MiniWorker = Awaited<ReturnType<typeof startMiniWorker>>;
export type MiniCluster = Awaited<ReturnType<typeof startMiniCluster>>;

/** Options of an edge. */
export interface MiniEdgeOptions {
  servers: string[];
  /** How many times longer its runs wait for workers. */
  slower?: number;
  requestTimeoutMs?: number;
  busLostMs?: number;
  log?: Log;
  /** What of the app differs: keys and admission (every key is admitted if left out), models, hosts, bounds. */
  door?: Partial<AppDependencies>;
}

/** Options of a worker. */
export interface MiniWorkerOptions {
  servers: string[];
  /** The model server: at an address, or one of `scripted_model_server.ts`. */
  backend: ModelServer | { readonly baseUrl: string };
  slots?: number;
  busLostMs?: number;
  slower?: number;
}

function connect(servers: string[], name: string, log: Log): Promise<BusLink> {
  return connectBus({
    servers,
    name,
    log,
    now: monotonicNow,
    random: () => 0,
  });
}

/** Admits everything and writes down how it ended. */
function admitAll(
  admitted: Admitted[],
): Pick<AppDependencies, "keys" | "admission"> {
  const principal = { keyId: "key_test", ownerId: "own_test" };
  return {
    keys: { find: () => Promise.resolve(principal) },
    admission: {
      modelsOf: () => Promise.resolve([]),
      checkRefused: () => Promise.resolve(),
      admit: (_principal, { request }) => {
        const settlements: Admitted["settlements"] = [];
        admitted.push({ request, settlements });
        return Promise.resolve({
          slotFreed: null,
          headers: {},
          video: null,
          settle: (outcome) => settlements.push(outcome),
          release: () => settlements.push(null),
        });
      },
    },
  };
}

/** Timers that are gone when what they belong to is closed. */
function createTimers(usualMs = 0) {
  const timers = new Set<ReturnType<typeof setTimeout>>();
  return {
    schedule(run: () => void, waitMs = usualMs): void {
      const timer = setTimeout(() => {
        timers.delete(timer);
        run();
      }, waitMs);
      timers.add(timer);
    },
    clear(): void {
      for (const timer of timers) clearTimeout(timer);
      timers.clear();
    },
  };
}

/** Starts an edge and waits for nothing: workers are found by their beats. */
export async function startMiniEdge(options: MiniEdgeOptions) {
  const id = newInstanceId();
  const { slower = 1, log = silentLog } = options;
  const link = await connect(options.servers, `edge ${id}`, log);
  const soon = createTimers(CONTROL_WAIT_MS);
  const dispatcher = new Dispatcher({
    bus: link,
    edgeId: id,
    now: () => monotonicNow() / slower,
    random: Math.random,
    scheduleSoon: (flush) => soon.schedule(flush),
    log,
    requestTimeoutMs: options.requestTimeoutMs ?? 60_000,
    busLostMs: options.busLostMs ?? DISPATCH_LIMITS.busLostMs,
  });
  const admitted: Admitted[] = [];
  const deadlines = createDeadlines(monotonicNow);
  const leaveBus = await dispatcher.join(link);
  const app = createApp({
    catalog: TEST_CATALOG,
    ...admitAll(admitted),
    dispatcher: {
      start: (...run) => dispatcher.start(...run),
      isStoppedSince: (keyId, sinceMs) =>
        dispatcher.isStoppedSince(keyId, sinceMs / slower),
    },
    now: monotonicNow,
    log,
    bodyBytesMax: REQUEST_LIMITS.bodyBytesMax,
    streamHeadMs: SSE_LIMITS.headMs,
    bodyBudget: new BodyBudget(REQUEST_LIMITS),
    // Debts are paid at once: on a busy machine any body may take long.
    refusedBodies: new RefusedBodies(() => 1_000 * monotonicNow()),
    deadlines,
    metrics: createEdgeMetrics(new MetricRegistry()),
    refusals: new RefusalLog({ log, now: wallNow }),
    clientAddress: createClientAddress([]),
    corsOrigins: [],
    isDraining: () => false,
    failedRequests: { add: () => {} },
    videos: noVideos(TEST_CATALOG),
    ...options.door,
  });
  const server: GracefulServer = await startServer({
    hostname: "127.0.0.1",
    port: 0,
    deadlines,
    now: monotonicNow,
    handler: app,
    onError: (error) => log.error("request_fault", { error }),
  });
  return {
    ...{ id, link, dispatcher },
    baseUrl: `http://127.0.0.1:${server.port}/v1`,
    /** What was admitted, in order. */
    admitted,
    /** All settlements. */
    settlements: () => admitted.flatMap(({ settlements }) => settlements),
    [Symbol.asyncDispose]: async () => {
      await server.stop({ graceMs: 2_000, abortMs: 100 });
      deadlines.close();
      leaveBus();
      await link.close();
      soon.clear();
    },
  };
}

function backendOptions(
  server: MiniWorkerOptions["backend"],
): ModelServerOptions {
  const baseUrl = "baseUrl" in server ? server.baseUrl : "http://scripted/v1";
  const model = catalogFromSimulator(baseUrl).get(DEFAULT_MODEL_ID);
  const [config = assert.fail("no backend")] = model?.backends ?? [];
  return {
    publicModel: DEFAULT_MODEL_ID,
    config,
    apiKey: null,
    now: monotonicNow,
    ...("connect" in server ? { connect: server.connect } : {}),
  };
}

/** Starts a worker. */
export async function startMiniWorker(options: MiniWorkerOptions) {
  const id = newInstanceId();
  const link = await connect(options.servers, `worker ${id}`, silentLog);
  const soon = createTimers();
  const killed = new AbortController();
  const backend = new OpenAiBackend(backendOptions(options.backend));
  // One attempt: what a pool repeats is not what a test has said.
  const pools = new Map([[DEFAULT_MODEL_ID, {
    run: <Result>(
      _call: BackendCall,
      attempt: (
        of: OpenAiBackend,
        progress: AttemptProgress,
      ) => Promise<Result>,
    ) => attempt(backend, { hasSent: false, onBegun: () => {} }),
  }]]);
  const worker = new Worker({
    bus: link,
    family: "chat",
    busLostMs: options.busLostMs ?? DISPATCH_LIMITS.busLostMs,
    workerId: id,
    slots: options.slots ?? 64,
    models: new Set(pools.keys()),
    run: (request, call) => {
      const signal = AbortSignal.any([call.signal, killed.signal]);
      return runCompletion(request, { ...call, signal }, pools);
    },
    now: () => monotonicNow() / (options.slower ?? 1),
    wallNow,
    log: silentLog,
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
    ...{ id, link, worker },
    get isRunning() {
      return !killed.signal.aborted;
    },
    /** Vanishes as a killed process does: the connection is gone, the jobs with it. */
    kill,
    [Symbol.asyncDispose]: kill,
  };
}

/** Starts a bus with an edge, to which a test adds workers and further edges. All of them end with it. */
export async function startMiniCluster(
  edgeOptions: Partial<MiniEdgeOptions> = {},
) {
  await using starting = new AsyncDisposableStack();
  const nats = starting.use(await startNatsServer());
  const servers = [nats.server];
  const edge = starting.use(await startMiniEdge({ servers, ...edgeOptions }));
  const running = starting.move();
  const edges = [edge];
  const workers: MiniWorker[] = [];
  return {
    nats,
    edge,
    addEdge: async (options?: Partial<MiniEdgeOptions>) => {
      const more = await startMiniEdge({ servers, ...options });
      edges.push(running.use(more));
      return more;
    },
    addWorker: async (
      backend: MiniWorkerOptions["backend"],
      options?: Partial<MiniWorkerOptions>,
    ) => {
      const more = await startMiniWorker({ servers, backend, ...options });
      workers.push(running.use(more));
      return more;
    },
    /** Something between the bus and the one that connects to its `server`. */
    addProxy: () => running.use(startTcpProxy(nats.port)),
    /** Waits until the edge knows so many workers. */
    knows: async (workers: number) => {
      const { workers: table } = edge.dispatcher;
      await waitFor(() => table.totals().workers === workers, {
        what: `${workers} workers`,
      });
    },
    /** Waits until nothing runs or waits at its edges and living workers. */
    idle: async () => {
      for (const { dispatcher } of edges) {
        const isIdle = () => dispatcher.running + dispatcher.waiting === 0;
        await waitFor(isIdle, { what: "no runs" });
      }
      for (const { worker } of workers.filter((each) => each.isRunning)) {
        const isIdle = () => worker.inFlight + worker.unfinished === 0;
        await waitFor(isIdle, { what: "no jobs" });
      }
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Sends a chat request as a client does. */
export function chat(
  edge: MiniEdge,
  body: object,
  init: { signal?: AbortSignal } = {},
): Promise<Response> {
  return postChat(edge.baseUrl, TEST_KEY, body, init);
}
