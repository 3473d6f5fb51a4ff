import { awaitEarlierGuardian } from "./guardian.ts";
import { sweepLeftovers } from "./leftovers.ts";
import { takeDirLock } from "./lock.ts";
import type { UpOptions } from "./options.ts";
import type { Output } from "./output.ts";
import { makePrivateDir, removeFile } from "./private_file.ts";
import { messageOf, UpError } from "./up_error.ts";

/** What lies in the directory of one run, as absolute paths. */
export interface RunFiles {
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

/** The files of a run in `runDir`. */
export function runFiles(runDir: string): RunFiles {
  return {
    state: `${runDir}/up.json`,
    logs: `${runDir}/logs`,
    guardian: `${runDir}/guardian`,
    children: `${runDir}/children`,
    installLog: `${runDir}/logs/install.log`,
  };
}

/**
 * Makes both directories, takes them for this launcher until `cleanup`, and ends
 * what an earlier one left running.
 *
 * Throws an {@link UpError} when another launcher holds one of them.
 */
export async function claimDirs(
  { dataDir, runDir }: UpOptions,
  files: RunFiles,
  { pid, out }: { pid: number; out: Output },
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
