import { monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { Cluster } from "./cluster.ts";
import {
  lockDir,
  makePrivateDir,
  removeFile,
  writePrivateFile,
} from "./files.ts";
import type { UpOptions } from "./options.ts";
import { requireFreePort } from "./ports.ts";
import { stopGraceMs } from "./services.ts";
import { startAll, type UpDeps } from "./start.ts";
import { describeSummary } from "./summary.ts";
import { sleep } from "./wait.ts";

/** How often `up.json` is updated, and retried after a full disk. */
const SAVE_EVERY_MS = 250;
const PROGRESS_EVERY_MS = 5_000;

/**
 * Runs the cluster until it is asked to stop. Throws an {@link UpError} when
 * something does not start. Afterwards all its processes have ended.
 */
export async function runUp(options: UpOptions, deps: UpDeps): Promise<void> {
  const { out, stopping } = deps;
  const { host, runDir } = options;
  const startedAtMs = monotonicNow();
  const stateFile = `${runDir}/up.json`;
  const logsDir = `${runDir}/logs`;
  await using cleanup = new AsyncDisposableStack();
  for (const dir of new Set([options.dataDir, runDir])) {
    const lock = await lockDir(dir);
    cleanup.defer(() => lock.close());
  }
  await removeFile(stateFile);
  await makePrivateDir(logsDir);
  requireFreePort(host, options.port, "--port");
  requireFreePort(host, options.consolePort, "--console-port");

  const cluster = new Cluster({ out, logsDir, stateFile });
  const starting = startAll(cluster, options, deps);
  // An interrupted start ends before the locks are released; its error is
  // expected.
  cleanup.defer(() => starting.then(() => {}, () => {}));
  cleanup.defer(async () => {
    out.say("Stopping");
    await cluster.stop(stopGraceMs(deps.env));
  });
  // Clients should not find addresses that are about to close.
  cleanup.defer(() => removeFile(stateFile).catch(() => {}));

  const progress = setInterval(() => {
    const waiting = cluster.units.filter(({ ready }) => !ready);
    const names = waiting.map(({ unit }) => unit.name);
    if (names.length > 0) out.say(`  still waiting for ${names.join(", ")}`);
  }, PROGRESS_EVERY_MS);
  const aborted = Promise.withResolvers<undefined>();
  stopping.addEventListener("abort", () => aborted.resolve(undefined));
  if (stopping.aborted) aborted.resolve(undefined);
  const started = await Promise.race([starting, aborted.promise])
    .finally(() => clearInterval(progress));
  if (!started) return;
  cluster.isReady = true;
  const { firstKey, describe } = started;

  let saved = "";
  let hasFailed = false;
  const save = async () => {
    const text = `${JSON.stringify(describe(), null, 2)}\n`;
    if (text === saved) return;
    try {
      await writePrivateFile(stateFile, text);
      saved = text;
      hasFailed = false;
    } catch (error) {
      const why = errorMessage(error);
      if (!hasFailed) out.warn(`Cannot write ${stateFile}: ${why}`);
      hasFailed = true;
    }
  };
  await save();
  const seconds = (monotonicNow() - startedAtMs) / 1_000;
  out.say(describeSummary(describe(), firstKey, { runDir, seconds }));
  while (!stopping.aborted) {
    await sleep(SAVE_EVERY_MS, stopping);
    await save();
  }
}
