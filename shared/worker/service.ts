/** The life of a worker service: bus, backends, jobs, drain. */
import { setTimeout as delay } from "node:timers/promises";
import { connectBus } from "../bus/link_nats.ts";
import type { WorkerFamily } from "../bus/subjects.ts";
import { monotonicNow, wallNow } from "../process/clock.ts";
import { newInstanceId, publicRequestId } from "../process/ids.ts";
import type { Log } from "../process/log.ts";
import { runService, type ServiceTools } from "../process/service.ts";
import { INBOX_PREFIXES } from "../process/service_variables.ts";
import { UpstreamError } from "../upstream/errors.ts";
import type { ModelServerOptions } from "../upstream/model_server.ts";
import {
  type AttemptReport,
  BackendPool,
  type PoolBackend,
} from "../upstream/pool.ts";
import type { WorkerConfig } from "./config.ts";
import type { RunRequest } from "./job.ts";
import { createWorkerMetrics, observeWorker } from "./metrics.ts";
import { Worker, WORKER_TICK_MS } from "./worker.ts";

export type Pool<Backend extends PoolBackend> = Pick<
  BackendPool<Backend>,
  "run"
>;

export function runWorkerService<Backend extends PoolBackend>(
  { family, readConfig, createBackend, run }: {
    family: WorkerFamily;
    /** Throws `ConfigError`. */
    readConfig: () => WorkerConfig;
    createBackend: (options: ModelServerOptions) => Backend;
    run: RunRequest<[Pool<Backend>]>;
  },
): Promise<never> {
  const name = `${family}-worker`;
  const start = async (
    config: WorkerConfig,
    { log, registry }: ServiceTools,
  ) => {
    if (config.catalog.size === 0) {
      log.warn("no_models", {
        why: "MODELS_FILE has no models for this service",
      });
    }
    const workerId = newInstanceId();
    const bus = await connectBus({
      ...config.bus,
      inboxPrefix: INBOX_PREFIXES[family],
      name: `${name} ${workerId}`,
      log,
      now: monotonicNow,
      random: Math.random,
    });
    const metrics = createWorkerMetrics(registry, config.catalog);
    const pools = new Map<string, BackendPool<Backend>>();
    const runners = new Map<string, RunRequest>();
    for (const [id, { backends }] of config.catalog) {
      const pool = new BackendPool({
        backends: backends.map((backend) => {
          const key = config.backendKeys.get(backend.api_key_env ?? "");
          const of = { publicModel: id, apiKey: key ?? null };
          return createBackend({ ...of, config: backend, now: monotonicNow });
        }),
        now: monotonicNow,
        random: Math.random,
        sleep: (ms, signal) => delay(ms, undefined, { signal }),
        onAttempt: (report) => {
          metrics.attempted(id, report);
          logAttempt(log, id, report);
        },
      });
      pools.set(id, pool);
      runners.set(id, (request, call) => run(request, call, pool));
    }
    const worker = new Worker({
      bus,
      family,
      workerId,
      slots: config.slots,
      runners,
      now: monotonicNow,
      wallNow,
      log,
      schedule: (flush, waitMs) =>
        void (waitMs === 0 ? setImmediate(flush) : setTimeout(flush, waitMs)),
      metrics,
    });
    const ticker = setInterval(() => worker.tick(), WORKER_TICK_MS);
    await worker.start();
    observeWorker(registry, { worker, slots: config.slots, backends: pools });
    return {
      bus,
      ready: { workerId, slots: config.slots },
      stop: async () => {
        await worker.drain(config.drainMs);
        clearInterval(ticker);
        for (const pool of pools.values()) pool.close();
        await bus.drain();
      },
    };
  };
  return runService({ name, readConfig, start });
}

function logAttempt(log: Log, model: string, report: AttemptReport): void {
  const { error, ...rest } = report;
  const requestId = publicRequestId(report.requestId);
  const line = { ...rest, requestId, model };
  // Neither a client that left nor an invalid request is the backend's fault.
  if (/^(success|aborted|request)$/.test(report.outcome)) {
    return log.debug("backend_attempt", line);
  }
  // The error of a model server, without our own stack trace, which would not help.
  const cause = error instanceof UpstreamError ? error.logText : error;
  log.warn("backend_attempt_failed", { ...line, error: cause });
}
