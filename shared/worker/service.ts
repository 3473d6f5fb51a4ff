/** The life of a worker service: bus, backends, jobs, drain. */
import { setTimeout as delay } from "node:timers/promises";
import { connectBus } from "../bus/link_nats.ts";
import type { JobRequest } from "../bus/job.ts";
import type { WorkerFamily } from "../bus/subjects.ts";
import type { ModelConfig } from "../models/catalog.ts";
import { monotonicNow, wallNow } from "../process/clock.ts";
import { newInstanceId, publicRequestId } from "../process/ids.ts";
import type { Log } from "../process/log.ts";
import { MetricRegistry } from "../process/metrics.ts";
import { serveOps } from "../process/ops_server.ts";
import { type RunningService, runService } from "../process/service.ts";
import { INBOX_PREFIXES } from "../process/service_variables.ts";
import { UpstreamError } from "../upstream/errors.ts";
import type { ModelServerOptions } from "../upstream/model_server.ts";
import type { AttemptReport, PoolBackend } from "../upstream/pool.ts";
import { BackendPool } from "../upstream/pool.ts";
import type { WorkerConfig } from "./config.ts";
import type { JobCall, JobCost } from "./job.ts";
import { createWorkerMetrics, observeWorker } from "./metrics.ts";
import { Worker, WORKER_TICK_MS } from "./worker.ts";

/** The backends of each model, by the model's id. */
export type Pools<Backend extends PoolBackend> = ReadonlyMap<
  string,
  Pick<BackendPool<Backend>, "run">
>;

/** What distinguishes the worker of one family. */
export interface WorkerServiceOptions<Backend extends PoolBackend> {
  family: WorkerFamily;
  /** Throws `ConfigError`. */
  readConfig: () => WorkerConfig;
  createBackend: (options: ModelServerOptions) => Backend;
  /** Runs a request, see `JobHost`. */
  run: (
    request: JobRequest,
    call: JobCall,
    pools: Pools<Backend>,
  ) => Promise<JobCost>;
}

export function runWorkerService<Backend extends PoolBackend>(
  options: WorkerServiceOptions<Backend>,
): Promise<never> {
  return runService({
    name: `${options.family}-worker`,
    readConfig: options.readConfig,
    start: (config, log) => start(config, log, options),
  });
}

async function start<Backend extends PoolBackend>(
  config: WorkerConfig,
  log: Log,
  { family, createBackend, run }: WorkerServiceOptions<Backend>,
): Promise<RunningService> {
  if (config.catalog.size === 0) {
    log.warn("no_models", {
      why: "MODELS_FILE has no models for this service",
    });
  }
  const workerId = newInstanceId();
  const bus = await connectBus({
    ...config.bus,
    inboxPrefix: INBOX_PREFIXES[family],
    name: `${family}-worker ${workerId}`,
    log,
    now: monotonicNow,
    random: Math.random,
  });
  const registry = new MetricRegistry();
  const metrics = createWorkerMetrics(registry, config.catalog);
  const pools = createPools(config, createBackend, (model, report) => {
    metrics.attempted(model, report);
    logAttempt(log, model, report);
  });
  const worker = new Worker({
    bus,
    family,
    workerId,
    slots: config.slots,
    models: new Set(pools.keys()),
    run: (request, call) => run(request, call, pools),
    now: monotonicNow,
    wallNow,
    log,
    schedule: (flush, waitMs) =>
      void (waitMs === 0 ? setImmediate(flush) : setTimeout(flush, waitMs)),
    metrics,
  });
  const ticker = setInterval(() => worker.tick(), WORKER_TICK_MS);
  await worker.start();
  let isStopping = false;
  observeWorker(registry, { worker, slots: config.slots, backends: pools });
  const ops = serveOps({
    ...{ ...config.ops, registry, bus },
    isStopping: () => isStopping,
  });
  return {
    ready: { workerId, opsPort: ops.port, slots: config.slots },
    stop: async () => {
      isStopping = true;
      await worker.drain(config.drainMs);
      clearInterval(ticker);
      for (const pool of pools.values()) pool.close();
      await bus.drain();
      await ops.stop();
    },
  };
}

/** One pool for each model, by the model's id. */
function createPools<Backend extends PoolBackend>(
  { catalog, backendKeys }: WorkerConfig,
  createBackend: WorkerServiceOptions<Backend>["createBackend"],
  onAttempt: (model: string, report: AttemptReport) => void,
): ReadonlyMap<string, BackendPool<Backend>> {
  const now = monotonicNow;
  const createPool = ({ id: publicModel, backends }: ModelConfig) =>
    new BackendPool({
      backends: backends.map((config) => {
        const apiKey = backendKeys.get(config.api_key_env ?? "") ?? null;
        return createBackend({ config, publicModel, apiKey, now });
      }),
      now,
      random: Math.random,
      sleep: (ms, signal) => delay(ms, undefined, { signal }),
      onAttempt: (report) => onAttempt(publicModel, report),
    });
  return new Map([...catalog].map(([id, model]) => [id, createPool(model)]));
}

function logAttempt(log: Log, model: string, report: AttemptReport): void {
  const { error, firstTokenMs, ...rest } = report;
  const requestId = publicRequestId(report.requestId);
  const at = { ...rest, firstTokenMs: firstTokenMs ?? undefined };
  const line = { ...at, requestId, model };
  // Neither a client that left nor an invalid request is the backend's fault.
  if (/^(success|aborted|request)$/.test(report.outcome)) {
    return log.debug("backend_attempt", line);
  }
  // The error of a model server, without our own stack trace, which would not help.
  const cause = error instanceof UpstreamError ? error.logText : error;
  log.warn("backend_attempt_failed", { ...line, error: cause });
}
