import { type Output, UpError } from "./terminal.ts";

/** The required programs, which are also the names of apt packages, and their names in brew. */
const BREW_NAMES = { "nats-server": "nats-server", "redis-server": "redis" };
export type ServerName = keyof typeof BREW_NAMES;

/**
 * Directories that the `PATH` of an ordinary user often lacks: Debian installs
 * nats-server in /usr/sbin, and Homebrew has its own tree.
 */
const USUAL_DIRS = [
  ...["/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"],
  ...["/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"],
];
const INSTALL_MS_MAX = 10 * 60_000;
/** Includes how long to wait for another apt. */
const APT_QUIET = ["-o", "DPkg::Lock::Timeout=120", "-q", "-y"];

export interface InstallDeps {
  /** Directories that are searched for programs, see {@link programDirs}. */
  dirs: readonly string[];
  isRoot: boolean;
  out: Output;
  /** Ends an installation. */
  stopping: AbortSignal;
}

/** Where programs may be: the directories of `PATH`, and the usual ones. */
export function programDirs(path = ""): string[] {
  return [...path.split(":"), ...USUAL_DIRS];
}

/**
 * Returns the path of each wanted server program, and installs missing ones. Throws
 * an {@link UpError} with the commands to type when it cannot.
 */
export async function ensureServers(
  wanted: readonly ServerName[],
  deps: InstallDeps,
): Promise<ReadonlyMap<ServerName, string>> {
  const found = new Map<ServerName, string>();
  const findMissing = async () => {
    for (const name of wanted) {
      const path = await findProgram(name, deps.dirs);
      if (path !== undefined) found.set(name, path);
    }
    return wanted.filter((name) => !found.has(name));
  };
  const missing = await findMissing();
  if (missing.length > 0) await install(missing, deps);
  const stillMissing = await findMissing();
  if (stillMissing.length > 0) throw new UpError(describeMissing(stillMissing));
  return found;
}

async function findProgram(
  name: string,
  dirs: readonly string[],
): Promise<string | undefined> {
  for (const path of dirs.map((dir) => `${dir}/${name}`)) {
    // Missing, or in a directory that this user may not read.
    const info = await Deno.stat(path).catch(() => undefined);
    if (info?.isFile && ((info.mode ?? 0) & 0o111) !== 0) return path;
  }
  return undefined;
}

/** Installs without asking, if possible: with apt-get as root or through sudo, else with Homebrew. */
async function install(
  names: readonly ServerName[],
  deps: InstallDeps,
): Promise<void> {
  const { dirs, isRoot, out } = deps;
  const [apt, sudo, brew] = await Promise.all(
    ["apt-get", "sudo", "brew"].map((name) => findProgram(name, dirs)),
  );
  const asRoot = isRoot ? [] : [sudo, "-n"];
  out.say(`Installing ${names.join(" and ")}`);
  // The package lists of a fresh machine are empty.
  await run([...asRoot, apt, "update", ...APT_QUIET], deps);
  const options = ["--no-install-recommends", ...APT_QUIET, ...names];
  const isInstalled = await run([...asRoot, apt, "install", ...options], deps);
  // Homebrew refuses to run as root.
  if (isInstalled || isRoot) return;
  const packages = names.map((name) => BREW_NAMES[name]);
  await run([brew, "install", "--quiet", ...packages], deps);
}

/** Runs a command with this terminal's output, if all its programs were found. Returns whether it succeeded. */
async function run(
  words: readonly (string | undefined)[],
  { stopping }: InstallDeps,
): Promise<boolean> {
  if (words.includes(undefined)) return false;
  const [file = "", ...args] = words.flatMap((word) => word ?? []);
  const timeUp = AbortSignal.timeout(INSTALL_MS_MAX);
  const { success } = await new Deno.Command(file, {
    args,
    env: { DEBIAN_FRONTEND: "noninteractive" },
    stdin: "null",
    signal: AbortSignal.any([stopping, timeUp]),
  }).spawn().status;
  return success;
}

function describeMissing(names: readonly ServerName[]): string {
  const apt = names.join(" ");
  const brew = names.map((name) => BREW_NAMES[name]).join(" ");
  return `Cannot find or install ${names.join(" and ")}. Run one of:
  sudo apt-get install ${apt}      (Debian 12, Ubuntu 24.04 and later)
  brew install ${brew}      (macOS)
or use servers that run elsewhere:
  NATS_URL=nats://HOST:4222 REDIS_URL=redis://HOST:6379 npx -y deno task up`;
}
