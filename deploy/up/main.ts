/** `deno task up`: starts the whole gateway on this machine and stops it again. */
import { rm } from "node:fs/promises";
import { resolve } from "node:path";
import { idsOf } from "@gateway/shared/models/catalog_variables";
import { monotonicNow } from "@gateway/shared/process/clock";
import { ConfigError, errorMessage } from "@gateway/shared/process/env";
import { Cluster, sleep } from "./cluster.ts";
import * as files from "./files.ts";
import { parseOptions, ROOT, type UpOptions } from "./options.ts";
import * as plan from "./plan.ts";
import { requireFreePorts } from "./ports.ts";
import type { UpState } from "./state.ts";
import { startStores } from "./stores.ts";
import {
  createOutput,
  EXIT,
  listenForStop,
  type Output,
  UpError,
} from "./terminal.ts";
import * as welcome from "./welcome.ts";

/** The environment of the launcher, which tests replace. */
export interface UpDeps
  extends Omit<plan.ProgramContext, "natsUrl" | "redisUrl"> {
  out: Output;
  stopping: AbortSignal;
}

/** All services, ready. */
interface Started {
  firstKey: welcome.FirstKey;
  models: welcome.DescribedModel[];
  /** What `up.json` says now: pids change when a process is restarted. */
  describe(): UpState;
}

/** How often `up.json` is updated, and retried after a full disk. */
const SAVE_EVERY_MS = 250;
const TIMER_MS_MAX = 2 ** 31 - 1;
const SIMULATOR_WARNING =
  "No model server is configured: the simulator answers with canned text. " +
  "Use UPSTREAM_BASE_URL or --models to serve a real model";

/**
 * Runs the launcher in this process and returns the exit code. Tests pass their own
 * entry files.
 */
export async function runCli(scriptOf: (name: plan.ProgramName) => string) {
  // `deno task` runs in the root and sets INIT_CWD to the operator's directory.
  const cwd = Deno.env.get("INIT_CWD") || Deno.cwd();
  const out = createOutput();
  try {
    const options = parseOptions(Deno.args, cwd);
    if (typeof options === "string") {
      out.say(options);
      return EXIT.ok;
    }
    if (options.quiet) out.say = () => {};
    const { models } = options;
    const environment = Deno.env.toObject();
    const env = models ? { ...environment, MODELS_FILE: models } : environment;
    const stopping = await listenForStop();
    await scheduleAsBatch();
    await runUp(options, { cwd, scriptOf, env, out, stopping });
    return EXIT.ok;
  } catch (error) {
    if (error instanceof UpError || error instanceof ConfigError) {
      out.warn(error.message);
      return error instanceof UpError ? error.exitCode : EXIT.config;
    }
    const fault = error instanceof Error ? error.stack : String(error);
    out.warn(`Fault in the launcher, please report it: ${fault}`);
    return EXIT.failed;
  }
}

/**
 * On Linux, this process and all that it starts are scheduled as `SCHED_BATCH`: a
 * message interrupts no other process at its work, so each handles more at a time. That
 * saves 7 to 10 % of the CPU. Without `chrt` (macOS) everything runs as usual.
 */
async function scheduleAsBatch(): Promise<void> {
  const args = ["--all-tasks", "--batch", "--pid", "0", `${Deno.pid}`];
  const options = { args, stdout: "null", stderr: "null" } as const;
  await new Deno.Command("chrt", options).output().catch(() => {});
}

/**
 * Runs the cluster until it is asked to stop. Throws an `UpError` when something does
 * not start.
 */
async function runUp(options: UpOptions, deps: UpDeps): Promise<void> {
  const { out, stopping } = deps;
  const { runDir } = options;
  const startedAtMs = monotonicNow();
  const stateFile = `${runDir}/up.json`;
  const logsDir = `${runDir}/logs`;
  await using cleanup = new AsyncDisposableStack();
  for (const dir of new Set([options.dataDir, runDir])) {
    cleanup.use(await files.lockDir(dir));
  }
  await rm(stateFile, { force: true });
  await files.makePrivateDir(logsDir);
  const settings = plan.readSettings(deps.env, deps.cwd);
  requireFreePorts(options);

  const cluster = new Cluster(out, logsDir, stateFile);
  const starting = startAll(cluster, { options, settings, deps });
  cleanup.defer(async () => {
    // Clients should not find addresses that are about to close.
    await rm(stateFile, { force: true }).catch(() => {});
    out.say("Stopping");
    await cluster.stop(plan.stopGraceMs(deps.env));
    // An interrupted start ends before the locks are released, with an error.
    await starting.catch(() => {});
  });

  const startup = await Promise.race([starting, sleep(TIMER_MS_MAX, stopping)]);
  if (startup === undefined) return;
  cluster.isReady = true;
  const seconds = (monotonicNow() - startedAtMs) / 1_000;
  const { firstKey, models, describe } = startup;
  let saved = "";
  const save = async () => {
    const text = `${JSON.stringify(describe(), null, 2)}\n`;
    try {
      if (text !== saved) await files.writePrivateFile(stateFile, text);
      saved = text;
    } catch (error) {
      out.warn(`Cannot write ${stateFile}: ${errorMessage(error)}`);
    }
  };
  await save();
  out.say(
    welcome.describeSummary(describe(), {
      firstKey,
      models,
      runDir,
      seconds,
    }),
  );
  while (!stopping.aborted) {
    await sleep(SAVE_EVERY_MS, stopping);
    await save();
  }
}

/** Starts NATS and Redis, then all services at once, and creates the first key. */
async function startAll(
  cluster: Cluster,
  { options, settings, deps }: {
    options: UpOptions;
    settings: plan.Settings;
    deps: UpDeps;
  },
): Promise<Started> {
  const { out, stopping } = deps;
  const modelsDescribed = welcome.describeModels(settings);
  const urls = await startStores(cluster, { ...deps, ...options, settings });
  const context = { ...deps, ...urls };
  const { units, edgeUrls, consoleUrl, simulatorUrl } = plan.planServices(
    options,
    context,
    settings,
  );
  const [edgeUrl = ""] = edgeUrls;
  out.say(`Starting ${units.map(({ name }) => name).join(", ")}`);
  if (settings.hasSimulator) out.warn(SIMULATOR_WARNING);
  const create = ["keys", "create", "--description", "First key", "--json"];
  const keyCreated = welcome.provideFirstKey(
    welcome.firstKeyFile(options.dataDir, settings.REDIS_URL),
    plan.serviceProgram(context, "keys", { args: create }),
    stopping,
  );
  await Promise.all(units.map((unit) => cluster.start(unit)));
  const firstKey = await welcome.checkFirstKey(edgeUrl, await keyCreated);
  const describe = () => ({
    pid: Deno.pid,
    edge_url: edgeUrl,
    edge_urls: edgeUrls,
    console_url: consoleUrl,
    setup_url: cluster.setupUrl,
    api_key: firstKey.key ?? null,
    nats_url: urls.natsUrl,
    redis_url: urls.redisUrl,
    models: idsOf(settings.catalog),
    aliases: [...settings.catalog.values()]
      .filter(({ aliases }) => aliases.length > 0)
      .map(({ id, aliases }) => ({ id, aliases })),
    models_file: deps.env.MODELS_FILE
      ? resolve(deps.cwd, deps.env.MODELS_FILE)
      : null,
    simulator_url: simulatorUrl,
    ...cluster.describe(),
  });
  return { firstKey, models: await modelsDescribed, describe };
}

if (import.meta.main) {
  Deno.exit(
    await runCli((name) =>
      name === "keys"
        ? `${ROOT}/services/key-admin/cli.ts`
        : `${ROOT}/services/${name}/main.ts`
    ),
  );
}
