/** The life of a worker service: bus, backends, jobs, drain. */
import { setTimeout as delay } from "node:timers/promises";
import { followOverrides } from "../backends/override_follower.ts";
import type { Overrides } from "../backends/overrides.ts";
import { BackendTable } from "../backends/statistics.ts";
import { MISTAKE_CHARS_MAX, type WorkerBeat } from "../bus/job.ts";
import { type BusLink, connectBus } from "../bus/link_nats.ts";
import { subjects, type WorkerFamily } from "../bus/subjects.ts";
import { NatsKeptLog } from "../kept/log_nats.ts";
import { ModelCatalog } from "../models/catalog.ts";
import { monotonicNow, wallNow } from "../process/clock.ts";
import { newInstanceId, publicRequestId } from "../process/ids.ts";
import type { Log } from "../process/log.ts";
import {
  type RunningService,
  runService,
  type ServiceTools,
} from "../process/lifecycle/service.ts";
import { INBOX_PREFIXES } from "../process/service_variables.ts";
import { countsOf } from "../reload/list.ts";
import type { ReloadState } from "../reload/reloader.ts";
import { type Reloading, startReloading } from "../reload/watch.ts";
import { UpstreamError } from "../upstream/http/errors.ts";
import {
  ModelServer,
  type ModelServerOptions,
} from "../upstream/model_server.ts";
import type { AttemptReport } from "../upstream/attempt.ts";
import { BackendPool, type PoolBackend } from "../upstream/pool.ts";
import {
  BackendReporter,
  type BackendReporterOptions,
  countAttempt,
} from "./models/backend_reporter.ts";
import type { WorkerConfig } from "./config.ts";
import { EntryTurns } from "./jobs/entry_turns.ts";
import type { JobEnvironment, RunRequest } from "./jobs/job_ports.ts";
import {
  type AnswerMemory,
  type JobMemory,
  WorkerMemory,
} from "./jobs/memory.ts";
import { apiKeysOf, openListing } from "./models/model_lists.ts";
import type { ModelPools } from "./models/model_pools.ts";
import { observeWorker, WorkerMetrics } from "./metrics.ts";
import { OddityLog } from "./oddity_log.ts";
import { type Keyrings, logKeyEvent } from "./server_limits/keyrings.ts";
import { UseSharing } from "./server_limits/use_sharing.ts";
import { noteProofs } from "./probes/prober.ts";
import { createProber, type ProbingOptions } from "./probes/probing.ts";
import type { Proofs } from "../server_limits/proofs.ts";
import { Worker, WORKER_TICK_MS } from "./worker.ts";
import { type WorkerList, WorkerModels } from "./models/worker_models.ts";

/** The backends of a model, of which `run` chooses one for each attempt. */
export type Pool<Backend extends PoolBackend> = Pick<
  BackendPool<Backend>,
  "run"
>;

/** What differs between the services of the families. */
export interface WorkerService<Backend extends ModelServer> {
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
export function runWorkerService<Backend extends ModelServer>(
  service: WorkerService<Backend>,
): Promise<never> {
  return runService({
    name: nameOf(service.family),
    readConfig: service.readConfig,
    start: (config, tools) => startWorker(service, { config, tools }),
  });
}

const nameOf = (family: WorkerFamily) => `${family}-worker`;

async function startWorker<Backend extends ModelServer>(
  { family, createBackend, run }: WorkerService<Backend>,
  { config, tools }: { config: WorkerConfig; tools: ServiceTools },
): Promise<RunningService> {
  const { log, registry } = tools;
  const workerId = newInstanceId();
  const bus = await connect(config, { family, workerId, log });
  const catalog = new ModelCatalog([]);
  const metrics = new WorkerMetrics(registry, catalog);
  const statistics = new BackendTable(monotonicNow);
  const sharing = startSharing(bus, { workerId, log, metrics });
  const { keyrings, proofs } = sharing;
  const { slots } = config;
  const overrides = await followOverrides(bus, log);
  const counters = { metrics, statistics, overrides, keyrings, proofs };
  const options = { catalog, config, createBackend, log, counters };
  const models = createModels(family, options);
  const { pools } = models;
  const reloading = await startFollowing(models, config.list, tools);
  const worker = new Worker({
    bus,
    family,
    workerId,
    slots,
    // Without the models that servers list, which `lists` tells.
    models: () => models.ids(),
    lists: models.lists,
    listState: () => listStateOf(reloading.state),
    runners: runnersOf(pools, run),
    memory: new WorkerMemory(config.heldBytesMax),
    ...processOf(family, bus),
    log,
    metrics,
  });
  const prober = startProbing({ pools, proofs, catalog, metrics, log });
  const reporter = startReporter(bus, {
    family,
    pools,
    statistics,
    overrides,
    probeOf: (model, backend) => prober.stateOf(model, backend),
    subject: subjects.backends(workerId),
  });
  const ticker = startTicking([worker, models, reporter, sharing, prober]);
  await sharing.join();
  await worker.start();
  observeWorker(registry, { worker, slots, backends: pools, prober });
  return {
    bus,
    ready: { workerId, slots },
    async stop() {
      [reloading, prober].forEach((each) => each.stop());
      await worker.drain(config.drainMs);
      clearInterval(ticker);
      sharing.stop();
      models.close();
      await bus.drain();
    },
  };
}

/** What a worker uses of its process, and the log of answers if it keeps any. */
const processOf = (family: WorkerFamily, bus: BusLink) => ({
  now: monotonicNow,
  wallNow,
  schedule,
  ...family === "chat" && {
    keeping: { log: new NatsKeptLog(bus), turns: new EntryTurns(schedule) },
  },
});

/** Probes the backends whose list asks for it. Must be ticked. */
const startProbing = (options: Omit<ProbingOptions, "now" | "random">) =>
  createProber({ ...options, now: monotonicNow, random: Math.random });

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

/** Tells the state of the backends on this subject. Must be ticked. */
function startReporter(
  bus: BusLink,
  { subject, ...options }:
    & Pick<
      BackendReporterOptions,
      "family" | "pools" | "statistics" | "overrides" | "probeOf"
    >
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
function runnersOf<Backend extends ModelServer>(
  pools: ModelPools<Backend>,
  run: WorkerService<Backend>["run"],
): JobEnvironment["runners"] {
  return {
    has: (id) => pools.has(id),
    keys: () => pools.keys(),
    saturatedMs: (id) => pools.get(id)?.saturatedMs ?? 0,
    get(id) {
      const pool = pools.get(id);
      if (pool === undefined) return undefined;
      return (request, context, memory: JobMemory) =>
        run(request, context, { pool, memory });
    },
  };
}

function schedule(run: () => void, waitMs: number): void {
  if (waitMs === 0) setImmediate(run);
  else setTimeout(run, waitMs);
}

/** Shares the limits of model servers with the other workers. Must be ticked. */
function startSharing(
  bus: BusLink,
  { metrics, log, workerId }: {
    metrics: WorkerMetrics;
    log: Log;
    workerId: string;
  },
): UseSharing {
  return new UseSharing({
    bus,
    workerId,
    log,
    schedule,
    now: monotonicNow,
    random: Math.random,
    onEvent(place, event) {
      metrics.keyRefused(place, event.what);
      logKeyEvent(log, place, event);
    },
  });
}

/** Advances the time of parts of a worker, in this order. */
function startTicking(parts: readonly { tick(): void }[]) {
  return setInterval(
    () => parts.forEach((each) => each.tick()),
    WORKER_TICK_MS,
  );
}

/**
 * Lets models follow the list of a worker, as it is and as it changes. Resolves when
 * its servers have said which models they have, or could have.
 */
async function startFollowing(
  models: WorkerModels<PoolBackend>,
  reading: WorkerConfig["list"],
  tools: ServiceTools,
): Promise<Reloading> {
  const follow = (list: WorkerList) => {
    const { length } = [...list.file.models, ...list.file.servers];
    const why = "MODELS_FILE has no models for this service";
    if (length === 0) tools.log.warn("no_models", { why });
    models.follow(list);
    return countsOf(list.file);
  };
  follow(reading.value);
  await models.firstAnswers();
  return startReloading({ reading, onValue: follow }, tools);
}

/** What beats say of a list that has mistakes: the first of them. */
function listStateOf(
  { mistakes: [mistake] }: ReloadState,
): Pick<WorkerBeat, "mistake"> {
  return mistake === undefined
    ? {}
    : { mistake: mistake.slice(0, MISTAKE_CHARS_MAX) };
}

/** What counts and bounds the use of backends. */
interface Counters {
  metrics: WorkerMetrics;
  statistics: BackendTable;
  keyrings: Keyrings;
  overrides: Overrides;
  proofs: Proofs;
}

/** Makes the models of a worker, which has none yet. */
function createModels<Backend extends ModelServer>(
  family: WorkerFamily,
  { catalog, config, createBackend, log, counters }: {
    catalog: ModelCatalog;
    config: WorkerConfig;
    createBackend: WorkerService<Backend>["createBackend"];
    log: Log;
    counters: Counters;
  },
): WorkerModels<Backend> {
  const oddityLog = new OddityLog(log, monotonicNow);
  const { metrics, statistics, keyrings, overrides, proofs } = counters;
  const common = { now: monotonicNow, proxies: config.proxies };
  const sleep = (ms: number, signal: AbortSignal) =>
    delay(ms, undefined, { signal });
  const clocks = { now: monotonicNow, random: Math.random, sleep };
  return new WorkerModels<Backend>({
    ...clocks,
    catalog,
    family,
    log,
    openPool: (id, backends, keys) => {
      const noteProof = noteProofs(backends, proofs);
      return new BackendPool({
        ...clocks,
        ...keyrings.open(id, backends, {
          keys,
          create: (server, credential) => {
            const access = { ...common, ...credential, publicModel: id };
            return createBackend({ ...access, config: server }, config);
          },
        }),
        overrideOf: (backend) => overrides.forBackend(id, backend),
        onStart: (backend) => statistics.begin(id, backend),
        onAttempt: (report) => {
          countAttempt(statistics, id, report);
          metrics.attempted(id, report);
          noteProof(report);
          logAttempt(log, id, report);
        },
        onOddity: (report) => {
          metrics.odd(id, report);
          oddityLog.note(id, report);
        },
      });
    },
    openServer({ name, template }, keys) {
      const config = { ...template, model: name };
      const server = { ...common, config, publicModel: name };
      return openListing(
        apiKeysOf(config, keys)
          .map((apiKey) => new ModelServer({ ...server, apiKey })),
      );
    },
  });
}

function logAttempt(log: Log, model: string, report: AttemptReport): void {
  const { error } = report;
  const line = {
    requestId: publicRequestId(report.requestId),
    backend: report.backend,
    key: report.key,
    isProbe: report.isProbe,
    outcome: report.outcome,
    durationMs: report.durationMs,
    firstTokenMs: report.firstTokenMs,
    usage: report.usage,
    model,
  };
  // Neither a client that left nor an invalid request is the backend's fault.
  if (/^(success|aborted|request)$/.test(report.outcome)) {
    return log.debug("backend_attempt", line);
  }
  // The error of a model server, without our own stack trace, which would not help.
  const cause = error instanceof UpstreamError ? error.logText : error;
  log.warn("backend_attempt_failed", { ...line, error: cause });
}
