/** Wires the worker: bus, backends, jobs. */
import { setTimeout } from "node:timers/promises";
import { connectBus } from "@gateway/shared/bus/link_nats";
import type { ModelConfig } from "@gateway/shared/models/catalog";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId, publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { observeBus } from "@gateway/shared/process/own_metrics";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { serveOps } from "@gateway/shared/process/ops_server";
import {
  type RunningService,
  runService,
} from "@gateway/shared/process/service";
import { INBOX_PREFIXES } from "@gateway/shared/process/service_variables";
import { UpstreamError } from "./backends/errors.ts";
import { OpenAiBackend } from "./backends/openai.ts";
import { type AttemptReport, BackendPool } from "./backends/pool.ts";
import { readConfig, type WorkerConfig } from "./config.ts";
import {
  createWorkerMetrics,
  observeWorker,
  type WorkerMetrics,
} from "./metrics.ts";
import { ChatWorker, WORKER_TICK_MS } from "./worker.ts";

await runService({ name: "chat-worker", readConfig, start });

async function start(config: WorkerConfig, log: Log): Promise<RunningService> {
  const workerId = newInstanceId();
  const bus = await connectBus({
    ...config.bus,
    inboxPrefix: INBOX_PREFIXES.worker,
    name: `chat-worker ${workerId}`,
    log,
    now: monotonicNow,
    random: Math.random,
  });
  const registry = new MetricRegistry();
  const metrics = createWorkerMetrics(registry);
  const backends = createBackends(config, log, metrics);
  const worker = new ChatWorker({
    bus,
    workerId,
    slots: config.slots,
    backends,
    now: monotonicNow,
    wallNow,
    log,
    schedule: (flush, waitMs) =>
      waitMs === 0
        ? void setImmediate(flush)
        : void setTimeout(waitMs).then(flush),
    metrics,
  });
  const ticker = setInterval(() => worker.tick(), WORKER_TICK_MS);
  await worker.start();
  let isStopping = false;
  const notReady = () => [
    ...(bus.isReady ? [] : ["bus"]),
    ...(isStopping ? ["stopping"] : []),
  ];
  observeWorker(registry, { worker, slots: config.slots, backends });
  observeBus(registry, bus);
  const ops = serveOps({ ...config.ops, notReady, registry });
  return {
    ready: { workerId, opsPort: ops.port, slots: config.slots },
    stop: async () => {
      isStopping = true;
      await worker.drain(config.drainMs);
      clearInterval(ticker);
      for (const backend of backends.values()) backend.close();
      await bus.drain();
      await ops.stop();
    },
  };
}

/** One pool for each model, by the model's id. */
function createBackends(
  { catalog, backendKeys }: WorkerConfig,
  log: Log,
  metrics: WorkerMetrics,
): ReadonlyMap<string, BackendPool> {
  const createPool = ({ id, backends }: ModelConfig) =>
    new BackendPool({
      backends: backends.map((config) =>
        new OpenAiBackend({
          config,
          publicModel: id,
          apiKey: backendKeys.get(config.api_key_env ?? "") ?? null,
          now: monotonicNow,
        })
      ),
      now: monotonicNow,
      random: Math.random,
      sleep: (ms, signal) => setTimeout(ms, undefined, { signal }),
      onAttempt: (report) => {
        metrics.attempted(id, report);
        logAttempt(log, id, report);
      },
    });
  return new Map(
    [...catalog.values()].map((model) => [model.id, createPool(model)]),
  );
}

function logAttempt(log: Log, model: string, report: AttemptReport): void {
  const { error, ...line } = report;
  const requestId = publicRequestId(report.requestId);
  // Neither a client that left nor an invalid request is the backend's fault.
  if (/^(success|aborted|request)$/.test(report.outcome)) {
    return log.debug("backend_attempt", { ...line, requestId, model });
  }
  // The error of a model server, without our own stack trace, which would not help.
  const cause = error instanceof UpstreamError ? error.logText : error;
  const fields = { ...line, requestId, model, error: cause };
  log.warn("backend_attempt_failed", fields);
}
