import { createCluster, startWatcher } from "./cluster.ts";
import {
  makePrivateDir,
  parseRecord,
  readRecord,
  removeFile,
  writePrivateFile,
} from "./files.ts";
import type { UpOptions } from "./options.ts";
import { requireFreePort } from "./ports.ts";
import { stopGraceMs } from "./service_programs.ts";
import { startAll, type UpDeps, type UpState } from "./start.ts";
import { describeSummary, firstModel } from "./summary.ts";
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

/**
 * Makes both directories and takes them for this launcher until `cleanup`. Throws
 * an {@link UpError} when another launcher holds one of them, or when a Redis of
 * one that was killed does.
 */
async function claimDirs(
  { dataDir, runDir }: UpOptions,
  pid: number,
  cleanup: DisposableStack | AsyncDisposableStack,
): Promise<void> {
  for (const dir of new Set([dataDir, runDir])) {
    try {
      await makePrivateDir(dir);
    } catch (error) {
      throw new UpError(`Cannot make ${dir}: ${messageOf(error)}`);
    }
    const lock = await takeLock(dir, pid);
    cleanup.defer(() => lock.close());
  }
  await requireNoLeftRedis(`${runDir}/up.json`);
  await removeFile(`${runDir}/up.json`);
}

/**
 * The lock is the kernel's: it ends with the process that holds it. The text of
 * the file only serves the message. The file is never removed: that would let two
 * hold it.
 */
async function takeLock(dir: string, pid: number): Promise<Deno.FsFile> {
  const path = `${dir}/up.lock`;
  const file = await Deno.open(path, {
    read: true,
    write: true,
    create: true,
    mode: 0o600,
  });
  if (await file.tryLock(true)) {
    await file.truncate(0);
    await file.write(new TextEncoder().encode(JSON.stringify({ pid })));
    return file;
  }
  file.close();
  const holder = parseRecord(await Deno.readTextFile(path))?.pid;
  throw new UpError(
    `The gateway is already running with ${dir} (pid ${holder})\n` +
      `Stop it with Ctrl-C in its terminal or by: kill ${holder}\n` +
      `For a second one beside it use --run-dir, --data-dir, --port and --console-port`,
  );
}

/**
 * Only where the watcher was killed with its launcher: two Redis servers on one
 * directory would ruin its data.
 */
async function requireNoLeftRedis(stateFile: string): Promise<void> {
  const { pids, redis_url: url } = await readRecord(stateFile) ?? {};
  const left = parseRecord(JSON.stringify(pids ?? null))?.redis;
  if (!Array.isArray(left) || left.length === 0) return;
  const { hostname, port } = new URL(String(url));
  try {
    (await Deno.connect({ hostname, port: Number(port) })).close();
  } catch {
    return; // Nobody listens there any more.
  }
  throw new UpError(
    `A Redis server of an earlier run still runs: end it with: kill ${left}`,
  );
}
