/** The life of a worker service: bus, backends, jobs, drain. */
import { setTimeout as delay } from "node:timers/promises";
import { BackendTable } from "../backends/statistics.ts";
import { type BusLink, connectBus } from "../bus/link_nats.ts";
import { subjects, type WorkerFamily } from "../bus/subjects.ts";
import { monotonicNow, wallNow } from "../process/clock.ts";
import { newInstanceId, publicRequestId } from "../process/ids.ts";
import type { Log } from "../process/log.ts";
import {
  type RunningService,
  runService,
  type ServiceTools,
} from "../process/lifecycle/service.ts";
import { INBOX_PREFIXES } from "../process/service_variables.ts";
import { UpstreamError } from "../upstream/http/errors.ts";
import {
  ModelServer,
  type ModelServerOptions,
} from "../upstream/model_server.ts";
import {
  type AttemptReport,
  BackendPool,
  type PoolBackend,
} from "../upstream/pool.ts";
import {
  BackendReporter,
  type BackendReporterOptions,
  countAttempt,
} from "./backend_reporter.ts";
import type { WorkerConfig } from "./config.ts";
import { Discovery, withStandIn } from "./discovery.ts";
import type { JobEnvironment, RunRequest } from "./job.ts";
import { type AnswerMemory, type JobMemory, WorkerMemory } from "./memory.ts";
import { askModels } from "./model_lists.ts";
import { ModelPools } from "./model_pools.ts";
import { observeWorker, WorkerMetrics } from "./metrics.ts";
import { OddityLog } from "./oddity_log.ts";
import { Worker, WORKER_TICK_MS } from "./worker.ts";

/** The backends of a model, of which `run` chooses one for each attempt. */
export type Pool<Backend extends PoolBackend> = Pick<
  BackendPool<Backend>,
  "run"
>;

/** What differs between the services of the families. */
export interface WorkerService<Backend extends PoolBackend> {
  family: WorkerFamily;
  /** Throws `ConfigError`. */
  readConfig: () => WorkerConfig;
  /** Called once for each backend of the models file. */
  createBackend: (options: ModelServerOptions, config: WorkerConfig) => Backend;
  /** Runs a request on the backends of its model, within the memory of the process. */
  run: RunRequest<[{ pool: Pool<Backend>; memory: AnswerMemory }]>;
}

/**
 * Runs the worker of a family until a signal drains it; jobs that are still running
 * after `DRAIN_SECONDS` are stopped. Ends the process.
 */
export function runWorkerService<Backend extends PoolBackend>(
  service: WorkerService<Backend>,
): Promise<never> {
  return runService({
    name: nameOf(service.family),
    readConfig: service.readConfig,
    start: (config, tools) => startWorker(service, { config, tools }),
  });
}

const nameOf = (family: WorkerFamily) => `${family}-worker`;

async function startWorker<Backend extends PoolBackend>(
  { family, createBackend, run }: WorkerService<Backend>,
  { config, tools: { log, registry } }: {
    config: WorkerConfig;
    tools: ServiceTools;
  },
): Promise<RunningService> {
  warnWithoutModels(config, log);
  const workerId = newInstanceId();
  const bus = await connect(config, { family, workerId, log });
  const metrics = new WorkerMetrics(registry, config.catalog);
  const statistics = new BackendTable(monotonicNow);
  const counters = { metrics, statistics };
  const pools = createPools({ config, createBackend, log, counters });
  const memory = new WorkerMemory(config.heldBytesMax);
  // Those that servers list are told apart from them.
  const models = [...config.catalog.keys()];
  const lists = await startDiscovery(config, { family, pools, log });
  const worker = new Worker({
    bus,
    family,
    workerId,
    slots: config.slots,
    models,
    ...lists && { lists },
    runners: runnersOf(pools, run),
    memory,
    now: monotonicNow,
    wallNow,
    log,
    schedule,
    metrics,
  });
  const reporter = startReporter(bus, {
    family,
    pools,
    statistics,
    subject: subjects.backends(workerId),
  });
  const ticker = setInterval(() => {
    worker.tick();
    reporter.tick();
  }, WORKER_TICK_MS);
  await worker.start();
  observeWorker(registry, { worker, slots: config.slots, backends: pools });
  return {
    bus,
    ready: { workerId, slots: config.slots },
    async stop() {
      await worker.drain(config.drainMs);
      clearInterval(ticker);
      lists?.stop();
      pools.close();
      await bus.drain();
    },
  };
}

function warnWithoutModels({ catalog }: WorkerConfig, log: Log): void {
  if (catalog.size + catalog.servers.length > 0) return;
  log.warn("no_models", { why: "MODELS_FILE has no models for this service" });
}

function connect(
  { bus }: WorkerConfig,
  { family, workerId, log }: {
    family: WorkerFamily;
    workerId: string;
    log: Log;
  },
): Promise<BusLink> {
  return connectBus({
    ...bus,
    inboxPrefix: INBOX_PREFIXES[family],
    name: `${nameOf(family)} ${workerId}`,
    log,
    now: monotonicNow,
    random: Math.random,
  });
}

/** Tells of the backends on this subject. Must be ticked. */
function startReporter(
  bus: BusLink,
  { subject, ...options }:
    & Pick<BackendReporterOptions, "family" | "pools" | "statistics">
    & { subject: string },
): BackendReporter {
  const reporter = new BackendReporter({
    ...options,
    now: monotonicNow,
    publish(message) {
      if (bus.isConnected) bus.publish(subject, message);
    },
  });
  bus.subscribe(subjects.backendsWanted, () => reporter.want());
  return reporter;
}

/** What runs the requests of the models that have pools. */
function runnersOf<Backend extends PoolBackend>(
  pools: ModelPools<Backend>,
  run: WorkerService<Backend>["run"],
): JobEnvironment["runners"] {
  return {
    has: (id) => pools.has(id),
    keys: () => pools.keys(),
    get(id) {
      const pool = pools.get(id);
      if (pool === undefined) return undefined;
      return (request, call, memory: JobMemory) =>
        run(request, call, { pool, memory });
    },
  };
}

function schedule(run: () => void, waitMs: number): void {
  if (waitMs === 0) setImmediate(run);
  else setTimeout(run, waitMs);
}

/** The backends of each model, by its id. */
function createPools<Backend extends PoolBackend>(
  { config, createBackend, log, counters: { metrics, statistics } }: {
    config: WorkerConfig;
    createBackend: WorkerService<Backend>["createBackend"];
    log: Log;
    counters: { metrics: WorkerMetrics; statistics: BackendTable };
  },
): ModelPools<Backend> {
  const oddityLog = new OddityLog(log, monotonicNow);
  const pools = new ModelPools<Backend>((id, backends) =>
    new BackendPool({
      backends: backends.map((backend) =>
        createBackend({
          publicModel: id,
          apiKey: config.backendKeys.get(backend.api_key_env ?? "") ?? null,
          config: backend,
          now: monotonicNow,
          proxies: config.proxies,
        }, config)
      ),
      now: monotonicNow,
      random: Math.random,
      sleep: (ms, signal) => delay(ms, undefined, { signal }),
      onStart: (backend) => statistics.begin(id, backend),
      onAttempt: (report) => {
        countAttempt(statistics, id, report);
        metrics.attempted(id, report);
        logAttempt(log, id, report);
      },
      onOddity: (report) => {
        metrics.odd(id, report);
        oddityLog.note(id, report);
      },
    })
  );
  pools.follow(config.catalog.values());
  return pools;
}

/** Finds the models of servers, and has pools for them; null without such servers. */
async function startDiscovery(
  { catalog, backendKeys, proxies }: WorkerConfig,
  { family, pools, log }: {
    family: WorkerFamily;
    pools: ModelPools<PoolBackend>;
    log: Log;
  },
): Promise<Discovery | null> {
  const { servers } = catalog;
  if (servers.length === 0) return null;
  const askable = new Map(servers.map(({ name, template }) => [
    name,
    new ModelServer({
      config: { ...template, model: name },
      publicModel: name,
      apiKey: backendKeys.get(template.api_key_env ?? "") ?? null,
      now: monotonicNow,
      proxies,
    }),
  ]));
  const fixed = [...catalog.values()];
  const discovery = new Discovery({
    servers,
    family,
    now: monotonicNow,
    random: Math.random,
    sleep: (ms, signal) => delay(ms, undefined, { signal }),
    log,
    ask({ name }, signal) {
      const server = askable.get(name);
      return server === undefined
        ? Promise.resolve([])
        : askModels(server, signal);
    },
    onChange() {
      catalog.list(discovery.current);
      const named = fixed.map((model) =>
        withStandIn(model, discovery, catalog)
      );
      const listed = [...catalog.values()].slice(fixed.length);
      pools.follow([...named, ...listed]);
    },
  });
  await discovery.start();
  return discovery;
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
