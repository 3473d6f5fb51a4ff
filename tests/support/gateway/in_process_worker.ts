/** A chat worker in the process of a test, connected to a real nats-server. */
import assert from "node:assert/strict";
import {
  OpenAiBackend,
  runCompletion,
} from "../../../services/chat-worker/backends/openai.ts";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { WorkerMemory } from "@gateway/shared/worker/memory";
import { WorkerMetrics } from "@gateway/shared/worker/metrics";
import { Worker, WORKER_TICK_MS } from "@gateway/shared/worker/worker";
import { poolOf } from "../model_servers/recorded_call.ts";
import type { ModelServer } from "../model_servers/scripted_model_server.ts";
import { type BusConnection, connectTo, Timers } from "./in_process_edge.ts";

/** Where a worker calls: an address, or a server of `scripted_model_server.ts`. */
export type WorkerBackend = ModelServer | { readonly baseUrl: string };

/** What differs between workers. */
export interface WorkerOptions {
  /** NATS servers, `host:port`, in the order in which they are tried. */
  servers: string[];
  backend: WorkerBackend;
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
  readonly link: BusConnection;
  readonly worker: Worker;
  readonly isRunning: boolean;
  /** Vanishes as a killed process does: the connection is gone, the jobs with it. */
  kill(): Promise<void>;
}

/** Starts a worker of the default model. */
export async function startWorker(
  options: WorkerOptions,
): Promise<InProcessWorker> {
  const id = newInstanceId();
  const link = await connectTo(options.servers, `worker ${id}`);
  const soon = new Timers();
  const killed = new AbortController();
  const backend = openBackend(options.backend);
  const memory = new WorkerMemory(options.heldBytesMax);
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
    now: () => monotonicNow() / (options.slower ?? 1),
    schedule: (flush, waitMs) =>
      waitMs === 0 ? void setImmediate(flush) : soon.schedule(flush, waitMs),
    memory,
    metrics: new WorkerMetrics(new MetricRegistry()),
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
    kill,
    [Symbol.asyncDispose]: kill,
  };
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
    ...("connect" in at ? { connect: at.connect } : {}),
  });
}
