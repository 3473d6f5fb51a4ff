import { parseRecord } from "./json.ts";
import { UpError } from "./up_error.ts";

/** Holds a directory for this process. */
export interface DirLock {
  release(): void;
}

/**
 * Takes the lock `<dir>/up.lock`, so that two launchers never use one directory.
 * The lock is the kernel's (flock): it ends with the process that holds it, so
 * that of a dead launcher is simply taken. The file's text, `{"pid":123}`, only
 * serves the message. The file is never removed: that would let two hold it.
 *
 * Throws an {@link UpError} that names the holder.
 */
export async function takeDirLock(dir: string, pid: number): Promise<DirLock> {
  const path = `${dir}/up.lock`;
  const file = await Deno.open(path, {
    read: true,
    write: true,
    create: true,
    mode: 0o600,
  });
  try {
    if (!await file.tryLock(true)) throw await heldError(dir, path);
    await file.truncate(0);
    await file.write(new TextEncoder().encode(JSON.stringify({ pid })));
    return { release: () => file.close() };
  } catch (error) {
    file.close();
    throw error;
  }
}

async function heldError(dir: string, path: string): Promise<UpError> {
  const holder = parseRecord(await Deno.readTextFile(path))?.pid;
  const who = typeof holder === "number" ? ` (pid ${holder})` : "";
  const how = typeof holder === "number" ? ` or by: kill ${holder}` : "";
  return new UpError(
    `The gateway is already running with ${dir}${who}\n` +
      `Stop it with Ctrl-C in its terminal${how}\n` +
      `For a second one beside it use --run-dir, --data-dir, --port and --console-port`,
  );
}
