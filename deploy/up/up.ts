import type { MonotonicNow, WallNow } from "@gateway/shared/clock";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { type Cluster, createCluster } from "./cluster.ts";
import {
  FIRST_KEY_DESCRIPTION,
  type FirstKey,
  provideFirstKey,
} from "./first_key.ts";
import {
  awaitEarlierGuardian,
  type Guardian,
  startGuardian,
} from "./guardian.ts";
import type { Host } from "./install.ts";
import { createChildList, sweepLeftovers } from "./leftovers.ts";
import { takeDirLock } from "./lock.ts";
import type { UpOptions } from "./options.ts";
import type { Output } from "./output.ts";
import { requireFreePort } from "./ports.ts";
import { makePrivateDir, removeFile } from "./private_file.ts";
import { findRunners } from "./runners.ts";
import {
  createKeyProgram,
  type ProgramContext,
  type ServiceScripts,
  stopGraceMs,
} from "./service_programs.ts";
import { type Services, startServices } from "./start_services.ts";
import { startStores, type StoreUrls } from "./start_stores.ts";
import { createStateFile, type StateFile, type UpState } from "./state_file.ts";
import { describeSummary, firstModel } from "./summary.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { aborted } from "./wait.ts";

/** How the operator ends it. */
export interface StopRequest {
  /** Stop in order. */
  requested: AbortSignal;
  /** Stop waiting for streams under way. */
  hurry: AbortSignal;
}

export interface UpDeps {
  /** Root of the repository. */
  root: string;
  /** The running Deno, which also runs the services. */
  execPath: string;
  /** Of this process. */
  pid: number;
  env: Readonly<Record<string, string>>;
  host: Host;
  scripts: ServiceScripts;
  out: Output;
  stop: StopRequest;
  now: MonotonicNow;
  wallNow: WallNow;
}

const PROGRESS_EVERY_MS = 5_000;

/**
 * Runs the cluster until it is asked to stop, and answers with an exit code of
 * {@link EXIT}. Failures that an operator can do something about are printed.
 * When it returns or throws, all its processes have ended.
 */
export async function runUp(
  options: UpOptions,
  deps: UpDeps,
): Promise<number> {
  const exitCode = await runAndCleanUp(options, deps);
  return deps.stop.hurry.aborted ? EXIT.hurried : exitCode;
}

async function runAndCleanUp(
  options: UpOptions,
  deps: UpDeps,
): Promise<number> {
  await using cleanup = new AsyncDisposableStack();
  try {
    await runCluster(options, deps, cleanup);
    return EXIT.ok;
  } catch (error) {
    if (!(error instanceof UpError)) throw error;
    // Said before the clean-up, which may take a while.
    deps.out.warn(error.message);
    return error.exitCode;
  }
}

interface Run {
  options: UpOptions;
  deps: UpDeps;
  files: RunFiles;
  cluster: Cluster;
  guardian: Guardian;
}

async function runCluster(
  options: UpOptions,
  deps: UpDeps,
  cleanup: AsyncDisposableStack,
): Promise<void> {
  const startedAtMs = deps.now();
  await requireModelsFile(options);
  const files = runFiles(options.runDir);
  await claimDirs(options, files, deps, cleanup);
  requireFreePort(options.host, options.port, "--port");
  requireFreePort(options.host, options.consolePort, "--console-port");

  const guardian = startGuardian({
    launcherPid: deps.pid,
    markFile: files.guardian,
    stateFile: files.state,
  });
  cleanup.defer(() => guardian.quit());
  const watching = findRunners(deps.pid).then(guardian.watch);
  cleanup.defer(() => watching);
  const children = createChildList(files.children);
  cleanup.defer(() => children.close());

  const state = createStateFile(files.state);
  let describe: (() => UpState) | null = null;
  const saveState = async () => {
    if (describe) await state.write(describe());
  };
  const cluster = createCluster({
    now: deps.now,
    out: deps.out,
    guardian,
    children,
    logsDir: files.logs,
    onChange: () => {
      saveState().catch((error) =>
        deps.out.warn(`Cannot write ${files.state}: ${messageOf(error)}`)
      );
    },
  });
  const run: Run = { options, deps, files, cluster, guardian };
  const starting = startAll(run);
  // Whatever a start that is broken off still does, it ends before the guardian
  // leaves; its failure is no news then.
  cleanup.defer(() => starting.then(() => {}, () => {}));
  cleanup.defer(() => stopCluster(run, state));

  const stopping = aborted(deps.stop.requested);
  const started = await Promise.race([starting, stopping]);
  if (!started) return;
  describe = () => describeState(run, started);
  await saveState();
  await saySummary(run, started, deps.now() - startedAtMs);
  await stopping;
}

async function requireModelsFile({ modelsFile }: UpOptions): Promise<void> {
  if (modelsFile === undefined) return;
  try {
    await Deno.readTextFile(modelsFile);
  } catch (error) {
    throw new UpError(
      `Cannot read the list of models: ${messageOf(error)}`,
      EXIT.config,
    );
  }
}

interface RunFiles {
  /** `up.json`. */
  state: string;
  /** Directory of the services' logs. */
  logs: string;
  /** Mark of the guardian. */
  guardian: string;
  /** List of child processes. */
  children: string;
  installLog: string;
}

function runFiles(runDir: string): RunFiles {
  return {
    state: `${runDir}/up.json`,
    logs: `${runDir}/logs`,
    guardian: `${runDir}/guardian`,
    children: `${runDir}/children`,
    installLog: `${runDir}/logs/install.log`,
  };
}

/** Takes both directories for this launcher and ends what an earlier one left in them. */
async function claimDirs(
  { dataDir, runDir }: UpOptions,
  files: RunFiles,
  { pid, out }: UpDeps,
  cleanup: AsyncDisposableStack,
): Promise<void> {
  for (const dir of new Set([dataDir, runDir])) {
    try {
      await makePrivateDir(dir);
    } catch (error) {
      throw new UpError(`Cannot make ${dir}: ${messageOf(error)}`);
    }
    const lock = await takeDirLock(dir, pid);
    cleanup.defer(() => lock.release());
  }
  await makePrivateDir(files.logs);
  await awaitEarlierGuardian(
    files.guardian,
    isAlive,
    () => out.say("An earlier run was killed; waiting for its clean-up"),
  );
  const swept = await sweepLeftovers(files.children);
  if (swept.length > 0) {
    out.say(`Stopped what an earlier run left behind: ${swept.join(", ")}`);
  }
  await removeFile(files.state);
}

function isAlive(pid: number): boolean {
  try {
    Deno.kill(pid, 0);
    return true;
  } catch (error) {
    // Not ours to signal, but there.
    return error instanceof Deno.errors.PermissionDenied;
  }
}

interface Started {
  stores: StoreUrls;
  services: Services;
  firstKey: FirstKey;
}

async function startAll(run: Run): Promise<Started> {
  const { options, deps, cluster, guardian, files } = run;
  const { out, env, stop } = deps;
  const ticker = setInterval(() => {
    const names = cluster.waitingFor();
    if (names.length > 0) out.say(`  still waiting for ${names.join(", ")}`);
  }, PROGRESS_EVERY_MS);
  try {
    const stores = await startStores({
      host: deps.host,
      guardian,
      out,
      logPath: files.installLog,
      stopping: stop.requested,
      cluster,
      options,
      env,
    });
    const context: ProgramContext = { ...deps, ...stores, options };
    out.say(describeServices(options));
    const keyCreated = provideFirstKey({
      dataDir: options.dataDir,
      redisUrl: stores.redisUrl,
      isPrivateRedis: stores.isPrivateRedis,
      create: createKeyProgram(context, FIRST_KEY_DESCRIPTION),
      guardian,
      stopping: stop.requested,
      wallNow: deps.wallNow,
    });
    let isSummarySaid = false;
    const services = startServices({
      cluster,
      context,
      onSetupUrl: (url) => {
        if (isSummarySaid) out.say(`Console link for the first owner: ${url}`);
      },
    });
    const [firstKey] = await Promise.all([keyCreated, services.ready]);
    isSummarySaid = true;
    return { stores, services, firstKey };
  } finally {
    clearInterval(ticker);
  }
}

function describeServices({ edges, workers }: UpOptions): string {
  const times = (count: number) => count === 1 ? "" : ` x ${count}`;
  return `Starting edge-auth${times(edges)}, chat-worker${times(workers)}` +
    " and key-admin";
}

function describeState(run: Run, started: Started): UpState {
  const { stores, services, firstKey } = started;
  const edgeUrls = services.edgeUrls();
  return {
    pid: run.deps.pid,
    edge_url: edgeUrls[0] ?? "",
    edge_urls: edgeUrls,
    console_url: services.consoleUrl,
    setup_url: services.setupUrl() ?? null,
    api_key: firstKey.key ?? null,
    nats_url: stores.natsUrl,
    redis_url: stores.redisUrl,
    ops_urls: services.opsUrls(),
    pids: { nats: [], redis: [], ...run.cluster.pids() },
  };
}

async function saySummary(
  { options, deps, files }: Run,
  { services, firstKey }: Started,
  tookMs: number,
): Promise<void> {
  const edgeUrls = services.edgeUrls();
  const setupUrl = services.setupUrl();
  deps.out.say(describeSummary({
    edgeUrls,
    consoleUrl: services.consoleUrl,
    ...(setupUrl === undefined ? {} : { setupUrl }),
    ...(firstKey.key === undefined ? {} : { apiKey: firstKey.key }),
    ...(firstKey.note === undefined ? {} : { keyNote: firstKey.note }),
    model: options.quiet
      ? DEFAULT_MODEL_ID
      : await firstModel(edgeUrls[0] ?? "", firstKey.key),
    logsDir: files.logs,
    stateFile: files.state,
    seconds: tookMs / 1_000,
  }));
}

async function stopCluster(run: Run, state: StateFile): Promise<void> {
  const { cluster, deps } = run;
  // Nobody should find an address that is about to close.
  await state.remove();
  deps.out.say("Stopping");
  await cluster.stop({
    graceMs: stopGraceMs(deps.env),
    hurry: deps.stop.hurry,
  });
}
