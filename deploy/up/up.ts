import { monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { Cluster } from "./cluster.ts";
import {
  lockDir,
  makePrivateDir,
  removeFile,
  writePrivateFile,
} from "./files.ts";
import { checkFirstKey, firstKeyFile, provideFirstKey } from "./first_key.ts";
import { describeModels } from "./model_servers.ts";
import type { UpOptions } from "./options.ts";
import {
  planServices,
  type ProgramContext,
  requireFreePorts,
  serviceProgram,
  stopGraceMs,
} from "./services.ts";
import { readSettings, type Settings } from "./settings.ts";
import { startStores } from "./stores.ts";
import { describeSummary } from "./summary.ts";
import { sleep } from "./supervise.ts";
import type { Output } from "./terminal.ts";

/** The environment of the launcher, which tests replace. */
export interface UpDeps extends Omit<ProgramContext, "natsUrl" | "redisUrl"> {
  out: Output;
  stopping: AbortSignal;
}

/** `.run/up.json`: everything needed to call the cluster and to inspect it. */
export interface UpState {
  /** Pid of the launcher: SIGTERM to it stops everything. */
  pid: number;
  /** Of the first edge, without a path: `http://127.0.0.1:8080`. */
  edge_url: string;
  edge_urls: string[];
  console_url: string;
  /** One-time link that creates the first owner; null when there is one. */
  setup_url: string | null;
  /** Null without a first key that works. */
  api_key: string | null;
  nats_url: string;
  redis_url: string;
  models: string[];
  /** Health, readiness and metrics, by service. */
  ops_urls: { [service: string]: string[] };
  /** By service; empty for a server that the launcher did not start. */
  pids: { [service: string]: number[] };
}

/** How often `up.json` is updated, and retried after a full disk. */
const SAVE_EVERY_MS = 250;
const TIMER_MS_MAX = 2 ** 31 - 1;
const SIMULATOR_WARNING =
  "No model server is configured: the simulator answers with canned text. " +
  "Use UPSTREAM_BASE_URL or --models to serve a real model";

/** Runs the cluster until it is asked to stop. Throws an `UpError` when something does not start. */
export async function runUp(options: UpOptions, deps: UpDeps): Promise<void> {
  const { out, stopping } = deps;
  const { runDir } = options;
  const startedAtMs = monotonicNow();
  const stateFile = `${runDir}/up.json`;
  const logsDir = `${runDir}/logs`;
  await using cleanup = new AsyncDisposableStack();
  for (const dir of new Set([options.dataDir, runDir])) {
    cleanup.use(await lockDir(dir));
  }
  await removeFile(stateFile);
  await makePrivateDir(logsDir);
  const settings = readSettings(deps.env, deps.cwd);
  requireFreePorts(options);

  const cluster = new Cluster(out, logsDir, stateFile);
  const starting = startAll(cluster, options, settings, deps);
  cleanup.defer(async () => {
    // Clients should not find addresses that are about to close.
    await removeFile(stateFile).catch(() => {});
    out.say("Stopping");
    await cluster.stop(stopGraceMs(deps.env));
    // An interrupted start ends before the locks are released, with an error.
    await starting.catch(() => {});
  });

  const started = await Promise.race([starting, sleep(TIMER_MS_MAX, stopping)]);
  if (started === undefined) return;
  cluster.isReady = true;
  const seconds = (monotonicNow() - startedAtMs) / 1_000;
  const { firstKey, models, describe } = started;
  let saved = "";
  const save = async () => {
    const text = `${JSON.stringify(describe(), null, 2)}\n`;
    try {
      if (text !== saved) await writePrivateFile(stateFile, text);
      saved = text;
    } catch (error) {
      out.warn(`Cannot write ${stateFile}: ${errorMessage(error)}`);
    }
  };
  await save();
  out.say(describeSummary(describe(), firstKey, models, { runDir, seconds }));
  while (!stopping.aborted) {
    await sleep(SAVE_EVERY_MS, stopping);
    await save();
  }
}

/** Starts NATS and Redis, then all services at once, and creates the first key. */
async function startAll(
  cluster: Cluster,
  options: UpOptions,
  settings: Settings,
  deps: UpDeps,
) {
  const { out, stopping } = deps;
  const modelsDescribed = describeModels(settings);
  const urls = await startStores(cluster, options, settings, deps);
  const context = { ...deps, ...urls };
  const plan = planServices(options, context, settings);
  out.say(`Starting ${plan.units.map(({ name }) => name).join(", ")}`);
  if (settings.hasSimulator) out.warn(SIMULATOR_WARNING);
  const create = ["keys", "create", "--description", "First key", "--json"];
  const [edgeUrl = ""] = plan.edgeUrls;
  const keyCreated = provideFirstKey(
    firstKeyFile(options.dataDir, settings.REDIS_URL),
    serviceProgram(context, "keys", {}, create),
    stopping,
  );
  await Promise.all(plan.units.map((unit) => cluster.start(unit)));
  const firstKey = await checkFirstKey(edgeUrl, await keyCreated);
  const describe = (): UpState => ({
    pid: Deno.pid,
    edge_url: edgeUrl,
    edge_urls: plan.edgeUrls,
    console_url: plan.consoleUrl,
    setup_url: cluster.setupUrl,
    api_key: firstKey.key ?? null,
    nats_url: urls.natsUrl,
    redis_url: urls.redisUrl,
    models: [...settings.catalog.keys()],
    ...cluster.describe(),
  });
  return { firstKey, models: await modelsDescribed, describe };
}
