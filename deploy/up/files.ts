/** Files and directories that only their owner may read. */
import { appendFileSync, renameSync, statSync } from "node:fs";
import { errorMessage } from "@gateway/shared/process/env";
import { UpError } from "./terminal.ts";

const OWNER_ONLY = 0o600;
const LOG_BYTES_MAX = 10 * 1024 * 1024;

/**
 * Creates a directory that only its owner may enter; does not change an existing one.
 */
export async function makePrivateDir(path: string): Promise<void> {
  try {
    await Deno.mkdir(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new UpError(
      `Cannot create ${path}: ${errorMessage(error)}\n` +
        "Choose another directory with --data-dir or --run-dir",
    );
  }
}

/**
 * Replaces a file, mode 0600, in one step: a reader sees the old text or the new one.
 */
export async function writePrivateFile(
  path: string,
  text: string,
): Promise<void> {
  const draft = `${path}.tmp`;
  await Deno.writeTextFile(draft, text, { mode: OWNER_ONLY });
  await Deno.rename(draft, path);
}

/**
 * Locks a directory until the returned file is closed; throws an {@link UpError} when
 * another launcher holds it. The kernel releases the lock with the process. The file
 * is never removed: two launchers could then hold it.
 */
export async function lockDir(dir: string): Promise<Deno.FsFile> {
  await makePrivateDir(dir);
  const path = `${dir}/up.lock`;
  const options = { read: true, write: true, create: true, mode: OWNER_ONLY };
  const file = await Deno.open(path, options);
  if (await file.tryLock(true)) {
    await file.truncate(0);
    await file.write(new TextEncoder().encode(String(Deno.pid)));
    return file;
  }
  file.close();
  const holder = await Deno.readTextFile(path);
  throw new UpError(
    `The gateway is already running with ${dir} (pid ${holder})\n` +
      `Stop it with Ctrl-C in its terminal or with: kill ${holder}\n` +
      "To run a second one beside it, use --run-dir, --data-dir, --port and --console-port",
  );
}

/**
 * Appends to a log, mode 0600, which is renamed to `<path>.1` when it reaches its
 * bound.
 */
export function appendToLog(
  path: string,
  text: string,
  bytesMax: number = LOG_BYTES_MAX,
): void {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  const isFull = size > 0 && size + text.length > bytesMax;
  if (isFull) renameSync(path, `${path}.1`);
  appendFileSync(path, text, { mode: OWNER_ONLY });
}
