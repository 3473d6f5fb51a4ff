/** Wires the worker: bus, backends, jobs. */
import { connectBus } from "@gateway/shared/bus/link_nats";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import { observeBus } from "@gateway/shared/process/own_metrics";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { serveOps } from "@gateway/shared/process/ops_server";
import {
  type RunningService,
  runService,
} from "@gateway/shared/process/service";
import { INBOX_PREFIXES } from "@gateway/shared/process/service_variables";
import { createBackends } from "./create_backends.ts";
import { readConfig, type WorkerConfig } from "./config.ts";
import { FRAME_WAIT_MS } from "./frame_outbox.ts";
import { createWorkerMetrics, observeWorker } from "./metrics.ts";
import { ChatWorker, WORKER_TICK_MS } from "./worker.ts";

/** After the grace period, jobs that are still running have this long to report that they were stopped. */
const LAST_WORD_MS = 1_000;

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
  const backends = createBackends({
    ...config,
    log,
    onAttempt: metrics.attempted,
  });
  const worker = new ChatWorker({
    bus,
    workerId,
    slots: config.slots,
    backends,
    now: monotonicNow,
    wallNow,
    log,
    scheduleSoon: (flush) => void setTimeout(flush, FRAME_WAIT_MS),
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
      await worker.drain({
        graceMs: config.drainMs,
        lastWordMs: LAST_WORD_MS,
      });
      clearInterval(ticker);
      for (const backend of backends.values()) backend.close();
      await bus.drain();
      await ops.stop();
    },
  };
}
