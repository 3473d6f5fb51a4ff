import { createCluster } from "./cluster.ts";
import { startGuardian } from "./guardian.ts";
import { createChildList } from "./leftovers.ts";
import type { UpOptions } from "./options.ts";
import { requireFreePort } from "./ports.ts";
import { claimDirs, runFiles } from "./run_dir.ts";
import { findRunners } from "./runners.ts";
import { stopGraceMs } from "./service_programs.ts";
import {
  describeState,
  type Run,
  saySummary,
  startAll,
  type UpDeps,
} from "./start_all.ts";
import { createStateFile, type StateFile, type UpState } from "./state_file.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { aborted } from "./wait.ts";

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
