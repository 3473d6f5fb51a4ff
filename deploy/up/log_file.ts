import { writeAll } from "./connection.ts";
import { messageOf } from "./up_error.ts";

/** A log that grows to a bound and then keeps one predecessor, `<path>.1`. */
export interface LogFile {
  readonly path: string;
  /** Appends; resolves when written. Never rejects: a full disk must not stop a service. */
  write(bytes: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

export interface LogFileOptions {
  path: string;
  /** Size at which the file becomes `<path>.1`. */
  bytesMax: number;
  /** Told once when the log cannot be written. */
  onFailure: (message: string) => void;
}

/** Opens a log for appending, mode 0600. Writes are serialised. */
export function openLogFile(options: LogFileOptions): LogFile {
  const { path, bytesMax } = options;
  let file: Deno.FsFile | undefined;
  let size = 0;
  let failed = false;
  let last = Promise.resolve();

  const open = async () => {
    const opened = await Deno.open(path, {
      append: true,
      create: true,
      mode: 0o600,
    });
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
  const write = (bytes: Uint8Array): Promise<void> => {
    last = last.then(() => append(bytes)).catch((error) => {
      if (failed) return;
      failed = true;
      options.onFailure(`Cannot write ${path}: ${messageOf(error)}`);
    });
    return last;
  };
  const close = async () => {
    await last;
    file?.close();
    file = undefined;
  };
  return { path, write, close };
}
