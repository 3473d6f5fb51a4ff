/**
 * Where servers lie that the search path of an ordinary user often leaves out:
 * Debian puts nats-server into /usr/sbin, Homebrew has its own tree.
 */
export const USUAL_DIRS: readonly string[] = [
  "/usr/local/bin",
  "/usr/local/sbin",
  "/usr/bin",
  "/usr/sbin",
  "/opt/homebrew/bin",
  "/home/linuxbrew/.linuxbrew/bin",
];

const ANY_EXECUTE_BIT = 0o111;

/** The full path of the first of `names` that is an executable file in one of `dirs`. */
export async function findProgram(
  names: readonly string[],
  dirs: readonly string[],
): Promise<string | undefined> {
  for (const name of names) {
    for (const dir of dirs) {
      if (dir === "") continue;
      const path = `${dir}/${name}`;
      if (await isExecutable(path)) return path;
    }
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    const { isFile, mode } = await Deno.stat(path);
    return isFile && ((mode ?? 0) & ANY_EXECUTE_BIT) !== 0;
  } catch {
    // Not there, or in a directory we may not look into: not a program for us.
    return false;
  }
}
