import {
  makePrivateDir,
  parseRecord,
  readRecord,
  removeFile,
} from "./files.ts";
import type { UpOptions } from "./options.ts";
import { messageOf, UpError } from "./up_error.ts";

/**
 * Makes both directories and takes them for this launcher until `cleanup`. Throws
 * an {@link UpError} when another launcher holds one of them, or when a Redis of
 * one that was killed does.
 */
export async function claimDirs(
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
