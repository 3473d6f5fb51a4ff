/** Reading the files of settings, which people write: never more than makes sense. */

const MIB = 1_024 * 1_024;
/**
 * The largest file of settings: 1,000 models with 64 servers each are 20 MB. Beyond, it
 * is a mistake, as for a file that cannot be read: some other file was copied there,
 * and every process would hold it in memory.
 */
export const SETTINGS_FILE_BYTES_MAX = 32 * MIB;

/** Reads a file. Throws if it cannot be read or is too large. */
export function readSettingsFile(path: string): string {
  refuseLarge(Deno.statSync(path));
  return Deno.readTextFileSync(path);
}

/** As {@link readSettingsFile}, without holding up the process. */
export async function readSettingsFileSoon(path: string): Promise<string> {
  refuseLarge(await Deno.stat(path));
  return await Deno.readTextFile(path);
}

function refuseLarge({ size }: Deno.FileInfo): void {
  if (size <= SETTINGS_FILE_BYTES_MAX) return;
  const [is, most] = [size, SETTINGS_FILE_BYTES_MAX].map((bytes) =>
    `${Math.ceil(bytes / MIB)} MiB`
  );
  throw new Error(`it has ${is}, and a file of settings at most ${most}`);
}
