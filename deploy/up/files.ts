/** Files that nobody but their owner may read, and logs with a bound. */
import { messageOf } from "./up_error.ts";

const OWNER_ONLY = 0o600;
const LOG_BYTES_MAX = 10 * 1024 * 1024;

/** Makes a directory that only its owner may enter; one that exists is left as it is. */
export async function makePrivateDir(path: string): Promise<void> {
  await Deno.mkdir(path, { recursive: true, mode: 0o700 });
}

/** Replaces a file, mode 0600, in one step: a reader sees the old text or the new one. */
export async function writePrivateFile(
  path: string,
  text: string,
): Promise<void> {
  const draft = `${path}.tmp`;
  // The mode of a file that exists would be kept.
  await removeFile(draft);
  await Deno.writeTextFile(draft, text, { mode: OWNER_ONLY, createNew: true });
  await Deno.rename(draft, path);
}

/** The JSON object in a file, or `undefined` where there is none. */
export async function readRecord(
  path: string,
): Promise<Record<string, unknown> | undefined> {
  try {
    return parseRecord(await Deno.readTextFile(path));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Removes a file; one that is not there is fine. */
export async function removeFile(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The object that `text` holds as JSON, or `undefined` for any other text. */
export function parseRecord(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : undefined;
  } catch {
    // The text of another program: not JSON is an answer, not a failure.
    return undefined;
  }
}

/** Writes all of `bytes`. */
export async function writeAll(
  writer: { write(bytes: Uint8Array): Promise<number> },
  bytes: Uint8Array,
): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    at += await writer.write(bytes.subarray(at));
  }
}

/** A log that becomes `<path>.1` when it has grown to its bound. */
export interface LogFile {
  readonly path: string;
  /** Appends. Never rejects: a full disk must not stop a service. */
  write(bytes: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

/** Opens a log for appending, mode 0600. `onFailure` is told once that it cannot be written. */
export function openLogFile(
  path: string,
  onFailure: (message: string) => void,
  bytesMax: number = LOG_BYTES_MAX,
): LogFile {
  let file: Deno.FsFile | undefined;
  let size = 0;
  let hasFailed = false;
  let last = Promise.resolve();
  const open = async () => {
    const options = { append: true, create: true, mode: OWNER_ONLY };
    const opened = await Deno.open(path, options);
    size = (await opened.stat()).size;
    return opened;
  };
  const append = async (bytes: Uint8Array) => {
    file ??= await open();
    if (size > 0 && size + bytes.length > bytesMax) {
      file.close();
      file = undefined;
      await Deno.rename(path, `${path}.1`);
      file = await open();
    }
    await writeAll(file, bytes);
    size += bytes.length;
  };
  return {
    path,
    write(bytes) {
      last = last.then(() => append(bytes)).catch((error) => {
        if (!hasFailed) onFailure(`Cannot write ${path}: ${messageOf(error)}`);
        hasFailed = true;
      });
      return last;
    },
    async close() {
      await last;
      file?.close();
    },
  };
}
