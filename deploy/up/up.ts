import { createCluster } from "./cluster.ts";
import { makePrivateDir, removeFile, writePrivateFile } from "./files.ts";
import type { UpOptions } from "./options.ts";
import { requireFreePort } from "./ports.ts";
import { claimDirs } from "./run_dir.ts";
import { stopGraceMs } from "./service_programs.ts";
import { startAll, type UpDeps, type UpState } from "./start.ts";
import { describeSummary, firstModel } from "./summary.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { aborted } from "./wait.ts";
import { startWatcher } from "./watcher.ts";

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

async function runCluster(
  options: UpOptions,
  deps: UpDeps,
  cleanup: AsyncDisposableStack,
): Promise<void> {
  const { out, stop, now } = deps;
  const startedAtMs = now();
  const stateFile = `${options.runDir}/up.json`;
  const logsDir = `${options.runDir}/logs`;
  await requireModelsFile(options);
  await claimDirs(options, deps.pid, cleanup);
  await makePrivateDir(logsDir);
  requireFreePort(options.host, options.port, "--port");
  requireFreePort(options.host, options.consolePort, "--console-port");

  const watcher = startWatcher(stateFile);
  cleanup.defer(() => watcher.close());
  let describe: (() => UpState) | undefined;
  let saving = Promise.resolve();
  const saveState = () => {
    saving = saving.then(async () => {
      const state = describe?.();
      if (!state) return;
      await writePrivateFile(stateFile, `${JSON.stringify(state, null, 2)}\n`);
    }).catch((error) =>
      out.warn(`Cannot write ${stateFile}: ${messageOf(error)}`)
    );
    return saving;
  };
  const onChange = () => {
    watcher.watch(cluster.units.flatMap((unit) => unit.pid() ?? []));
    void saveState();
  };
  const cluster = createCluster({ now, out, logsDir, onChange });
  const starting = startAll(cluster, options, deps);
  // A start that is broken off ends before the watcher leaves; its failure is no
  // news then.
  cleanup.defer(() => starting.then(() => {}, () => {}));
  cleanup.defer(async () => {
    // Nobody should find an address that is about to close.
    describe = undefined;
    await saving;
    await removeFile(stateFile);
    out.say("Stopping");
    await cluster.stop(stopGraceMs(deps.env), stop.hurry);
  });

  const stopping = aborted(stop.requested);
  const started = await Promise.race([starting, stopping]);
  if (!started) return;
  describe = started.describe;
  await saveState();
  const { firstKey } = started;
  const { edge_url, edge_urls, console_url, setup_url } = describe();
  out.say(describeSummary({
    edgeUrls: edge_urls,
    consoleUrl: console_url,
    setupUrl: setup_url,
    firstKey,
    model: await firstModel(edge_url, firstKey.key),
    logsDir,
    stateFile,
    seconds: (now() - startedAtMs) / 1_000,
  }));
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
