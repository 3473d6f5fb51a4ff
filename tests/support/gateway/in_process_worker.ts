/** Workers in the process of a test, connected to a real nats-server. */
import assert from "node:assert/strict";
import {
  OpenAiBackend,
  runCompletion,
} from "../../../services/chat-worker/backends/openai.ts";
import { Forwarder } from "../../../services/chat-worker/forward/forwarder.ts";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import { isForwardRequest } from "@gateway/shared/forward/request";
import { NatsKeptLog } from "@gateway/shared/kept/log_nats";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import {
  type BackendConfig,
  type Catalog,
  DEFAULT_MODEL_ID,
} from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { BackendPool } from "@gateway/shared/upstream/pool";
import { EntryTurns } from "@gateway/shared/worker/jobs/entry_turns";
import type {
  JobEnvironment,
  RunRequest,
} from "@gateway/shared/worker/jobs/job_ports";
import {
  type JobMemory,
  WorkerMemory,
} from "@gateway/shared/worker/jobs/memory";
import { WorkerMetrics } from "@gateway/shared/worker/metrics";
import type { Pool } from "@gateway/shared/worker/service";
import { Worker, WORKER_TICK_MS } from "@gateway/shared/worker/worker";
import { poolOf } from "../model_servers/recorded_context.ts";
import type { ModelServer } from "../model_servers/scripted_model_server.ts";
import { connectTo, Timers } from "./in_process_edge.ts";

/** From which workers make the salts of accounts. */
const SALT_KEY = "test-salt-key";
/** The key of the backends of a catalog. */
export const BACKEND_KEY = "upstream-key-0123456789";

/** Where a worker calls: an address, or a server of `scripted_model_server.ts`. */
export type WorkerBackend = ModelServer | { readonly baseUrl: string };

/** What differs between workers. */
export interface WorkerOptions {
  /** NATS servers, `host:port`, in the order in which they are tried. */
  servers: string[];
  backend: WorkerBackend;
  /** Models with backends of their own, in place of `backend`. */
  catalog?: Catalog;
  /** Requests at the same time; 64 if left out. */
  slots?: number;
  /** What bodies and answers may hold; that of a real worker if left out. */
  heldBytesMax?: number;
  /** How long the bus may be away before jobs end. */
  busLostMs?: number;
  /** How many times longer it waits; 1 if left out. */
  slower?: number;
}

/** A running worker, and what is inside of it. */
export interface InProcessWorker extends AsyncDisposable {
  readonly id: string;
  readonly link: BusLink;
  readonly worker: Worker;
  readonly isRunning: boolean;
  /** Vanishes as a killed process does: the connection is gone, the jobs with it. */
  kill(): Promise<void>;
}

/** Starts a chat worker of the default model, or of the models of a catalog. */
export function startWorker(options: WorkerOptions): Promise<InProcessWorker> {
  const memory = new WorkerMemory(options.heldBytesMax);
  const pools = poolsOf(options);
  const forwarder = new Forwarder();
  const runnerOf = (pool: TestPool): Runner => (request, call, memory) =>
    isForwardRequest(request)
      ? forwarder.run(request, call, { pool, memory })
      : runCompletion(request, call, { pool, memory });
  return startFamily(options, {
    family: "chat",
    memory,
    runners: new Map([...pools].map(([id, pool]) => [id, runnerOf(pool)])),
    close: () => pools.forEach((pool) => pool.close()),
  });
}

type Runner = RunRequest<[JobMemory]>;

/** What a worker of one family runs. */
export interface Family {
  readonly family: WorkerFamily;
  /** Counts what bodies and answers hold. */
  readonly memory: WorkerMemory;
  /** By the id of the model. */
  readonly runners: ReadonlyMap<string, Runner>;
  /** Called once when it ends. */
  close(): void;
}

/** Starts a worker that runs requests as it is told. */
export async function startFamily(
  options: Omit<WorkerOptions, "backend">,
  { family, memory, runners, close }: Family,
): Promise<InProcessWorker> {
  const id = newInstanceId();
  const link = await connectTo(options.servers, `worker ${id}`);
  const soon = new Timers();
  const killed = new AbortController();
  const isKilled = Promise.withResolvers<void>();
  // The timers of a killed worker are gone, and nobody tells it that there is room.
  const orKilled = (wait: Promise<void> | undefined) =>
    wait && Promise.race([wait, isKilled.promise]);
  const untilKilled = (run: Runner): Runner => (request, call, memory) => {
    const signal = AbortSignal.any([call.signal, killed.signal]);
    return run(request, {
      ...call,
      signal,
      pause: () => orKilled(call.pause()),
      write: (part, tokens) => orKilled(call.write(part, tokens)),
    }, memory);
  };
  const schedule = scheduleWith(soon);
  const worker = new Worker({
    bus: link,
    family,
    workerId: id,
    wallNow,
    log: silentLog,
    busLostMs: options.busLostMs ?? DISPATCH_LIMITS.busLostMs,
    slots: options.slots ?? 64,
    runners: new Map(
      [...runners].map(([model, run]) => [model, untilKilled(run)]),
    ),
    now: () => monotonicNow() / (options.slower ?? 1),
    schedule,
    memory,
    keeping: keepingOf(family, { link, schedule }),
    metrics: new WorkerMetrics(new MetricRegistry()),
  });
  await worker.start();
  const ticker = setInterval(() => worker.tick(), WORKER_TICK_MS);
  const kill = async () => {
    clearInterval(ticker);
    await link.close();
    soon.close();
    killed.abort(new Error("Killed"));
    isKilled.resolve();
    close();
  };
  return {
    id,
    link,
    worker,
    get isRunning() {
      return !killed.signal.aborted;
    },
    kill,
    [Symbol.asyncDispose]: kill,
  };
}

type TestPool = Pool<OpenAiBackend> & { close(): void };

/** By the id of the model: those of the catalog, or one of the default model. */
function poolsOf(
  { backend: where, catalog }: Pick<WorkerOptions, "backend" | "catalog">,
): Map<string, TestPool> {
  if (catalog !== undefined) {
    return new Map(
      [...catalog].map(([id, { backends }]) => [id, poolOfModel(id, backends)]),
    );
  }
  const backend = openBackend(where);
  const pool = { ...poolOf(backend), close: () => backend.close() };
  return new Map([[DEFAULT_MODEL_ID, pool]]);
}

/** The pool of a model, as a worker has it. */
function poolOfModel(id: string, backends: readonly BackendConfig[]) {
  return new BackendPool({
    backends: backends.map((config) =>
      new OpenAiBackend({
        publicModel: id,
        config,
        apiKey: BACKEND_KEY,
        cacheSaltKey: SALT_KEY,
        now: monotonicNow,
      })
    ),
    now: monotonicNow,
    random: () => 0,
    sleep: () => Promise.resolve(),
    onAttempt: () => {},
    onOddity: () => {},
  });
}

function openBackend(backend: WorkerBackend): OpenAiBackend {
  const at = { baseUrl: "http://scripted/v1", ...backend };
  const model = catalogFromSimulator(at.baseUrl).get(DEFAULT_MODEL_ID);
  const [config = assert.fail("no backend")] = model?.backends ?? [];
  return new OpenAiBackend({
    publicModel: DEFAULT_MODEL_ID,
    config,
    apiKey: null,
    now: monotonicNow,
    ..."connect" in at && { connect: at.connect },
  });
}

type Schedule = (run: () => void, waitMs: number) => void;

const scheduleWith = (timers: Timers): Schedule => (run, waitMs) =>
  waitMs === 0 ? void setImmediate(run) : timers.schedule(run, waitMs);

const keepingOf = (
  family: WorkerFamily,
  { link, schedule }: { link: BusLink; schedule: Schedule },
): JobEnvironment["keeping"] =>
  family === "chat"
    ? { log: new NatsKeptLog(link), turns: new EntryTurns(schedule) }
    : undefined;
