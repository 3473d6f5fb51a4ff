/** Reading and writing files that nobody but their owner may read. */

const OWNER_ONLY = 0o600;
const OWNER_ONLY_DIR = 0o700;

/** Makes a directory that only its owner may enter; one that exists is left as it is. */
export async function makePrivateDir(path: string): Promise<void> {
  await Deno.mkdir(path, { recursive: true, mode: OWNER_ONLY_DIR });
}

/**
 * Replaces a file in one step, mode 0600: a reader sees the old text or the new
 * one, never half of it.
 */
export async function writePrivateFile(
  path: string,
  text: string,
): Promise<void> {
  const draft = `${path}.tmp`;
  // Removed first, because the mode of a file that exists would be kept.
  await removeFile(draft);
  await Deno.writeTextFile(draft, text, { mode: OWNER_ONLY, createNew: true });
  await Deno.rename(draft, path);
}

/** The text of a file, or `undefined` where there is none. */
export async function readFileIfAny(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
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
