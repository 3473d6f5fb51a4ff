import { type Output, UpError } from "./terminal.ts";

/** What the `PATH` of an ordinary user often lacks: Debian has nats-server in /usr/sbin, Homebrew its own tree. */
const USUAL_DIRS = [
  ...["/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"],
  ...["/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"],
];
/** Includes how long to wait for another apt. */
const APT_QUIET = ["-o", "DPkg::Lock::Timeout=120", "-q", "-y"];

export interface InstallDeps {
  dirs: readonly string[];
  isRoot: boolean;
  out: Output;
  stopping: AbortSignal;
}

/** Where programs may be: the directories of `PATH`, and the usual ones. */
export function programDirs(path = ""): string[] {
  return [...path.split(":"), ...USUAL_DIRS];
}

/** The path of each program; installs missing ones with apt, or throws an {@link UpError} with the commands to type. */
export async function ensureServers(
  wanted: readonly string[],
  deps: InstallDeps,
): Promise<ReadonlyMap<string, string>> {
  const find = (name: string) => findProgram(name, deps.dirs);
  const missing = wanted.filter((name) => find(name) === undefined);
  if (missing.length > 0) await install(missing, deps);
  return new Map(wanted.map((name) => {
    const path = find(name);
    if (path !== undefined) return [name, path];
    const apt = missing.join(" ");
    throw new UpError(
      `Cannot find or install ${missing.join(" and ")}. Run one of:
  sudo apt-get install ${apt}      (Debian 12, Ubuntu 24.04 and later)
  brew install ${apt.replace("redis-server", "redis")}      (macOS)
or use servers that run elsewhere:
  NATS_URL=nats://HOST:4222 REDIS_URL=redis://HOST:6379 npx -y deno task up`,
    );
  }));
}

function findProgram(
  name: string,
  dirs: readonly string[],
): string | undefined {
  return dirs.map((dir) => `${dir}/${name}`).find((path) => {
    try {
      const { isFile, mode } = Deno.statSync(path);
      return isFile && ((mode ?? 0) & 0o111) !== 0;
    } catch {
      // Missing, or in a directory that this user may not read.
      return false;
    }
  });
}

/** Installs with apt-get if that is possible without a question: as root, or through sudo. */
async function install(
  names: readonly string[],
  { dirs, isRoot, out, stopping: signal }: InstallDeps,
): Promise<void> {
  const apt = findProgram("apt-get", dirs);
  const sudo = findProgram("sudo", dirs);
  if (apt === undefined || !isRoot && sudo === undefined) return;
  out.say(`Installing ${names.join(" and ")}`);
  const [file = apt, ...asRoot] = isRoot ? [] : [sudo, "-n", apt];
  const wanted = ["install", "--no-install-recommends", ...names];
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  // The package lists of a fresh machine are empty.
  for (const words of [["update"], wanted]) {
    const args = [...asRoot, ...words, ...APT_QUIET];
    const options = { args, env, signal, stdin: "null" } as const;
    await new Deno.Command(file, options).spawn().status;
  }
}
