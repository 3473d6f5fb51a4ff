import { type Exit, spawnChild } from "./child.ts";
import { openLogFile } from "./files.ts";
import type { Output } from "./output.ts";
import { messageOf, UpError } from "./up_error.ts";
import { aborted, within } from "./wait.ts";

/** A server the gateway needs and what package managers call it. */
export interface ServerSoftware {
  name: string;
  /** Names of the program, best first. */
  programs: readonly string[];
  apt: string;
  brew: string;
  download: string;
}

export const NATS_SOFTWARE: ServerSoftware = {
  name: "nats-server",
  programs: ["nats-server"],
  apt: "nats-server",
  brew: "nats-server",
  download: "https://github.com/nats-io/nats-server/releases",
};

export const REDIS_SOFTWARE: ServerSoftware = {
  name: "redis-server",
  programs: ["redis-server", "valkey-server"],
  apt: "redis-server",
  brew: "redis",
  download: "https://redis.io/downloads",
};

/**
 * Where servers lie that an ordinary user's `PATH` often leaves out: Debian puts
 * nats-server into /usr/sbin, Homebrew has its own tree.
 */
export const USUAL_DIRS: readonly string[] = [
  ...["/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"],
  ...["/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"],
];

export interface InstallDeps {
  /** Directories that are searched for programs. */
  dirs: readonly string[];
  isRoot: boolean;
  env: Readonly<Record<string, string>>;
  out: Output;
  /** Where the package manager's output goes. */
  logPath: string;
  /** Ends an installation. */
  stopping: AbortSignal;
}

interface Plan {
  tool: string;
  install: string[];
  /** Fetches the package lists: those of a fresh machine are empty. */
  refresh: string[];
}

const INSTALL_MS_MAX = 10 * 60_000;
const PROGRESS_EVERY_MS = 5_000;
/** What a package manager gets to stop in order. */
const STOP_MS = 5_000;
/** With how long to wait for another apt. */
const APT_QUIET = ["-o", "DPkg::Lock::Timeout=120", "-q", "-y"];
const SYSTEMD_DIR = "/run/systemd/system";

/**
 * Answers with the path of each wanted server program, and installs those that
 * are missing. Throws an {@link UpError} that says what to type when it cannot.
 */
export async function ensureServers(
  wanted: readonly ServerSoftware[],
  deps: InstallDeps,
): Promise<string[]> {
  const find = () =>
    Promise.all(wanted.map(({ programs }) => findProgram(programs, deps.dirs)));
  let paths = await find();
  const missing = wanted.filter((_, i) => paths[i] === undefined);
  if (missing.length > 0) {
    await install(missing, deps);
    paths = await find();
  }
  return wanted.map((software, i) => {
    const path = paths[i];
    if (path !== undefined) return path;
    throw new UpError(describeManualInstall([software]));
  });
}

async function findProgram(
  names: readonly string[],
  dirs: readonly string[],
): Promise<string | undefined> {
  for (const path of names.flatMap((name) => dirs.map((d) => `${d}/${name}`))) {
    // Not there, or in a directory we may not read: no program for us.
    const info = await Deno.stat(path).catch(() => undefined);
    if (info?.isFile && ((info.mode ?? 0) & 0o111) !== 0) return path;
  }
  return undefined;
}

async function install(
  missing: readonly ServerSoftware[],
  deps: InstallDeps,
): Promise<void> {
  const { out, logPath, stopping } = deps;
  const plan = await planInstall(missing, deps);
  if (!plan) throw new UpError(describeManualInstall(missing));
  const names = missing.map(({ name }) => name).join(" and ");
  out.say(`Installing ${names} with ${plan.tool}`);
  const ticker = setInterval(
    () => out.say(`  still installing, see ${logPath}`),
    PROGRESS_EVERY_MS,
  );
  try {
    const first = await run(plan.install, deps);
    if (first.code !== 0 && !stopping.aborted) {
      const refreshed = await run(plan.refresh, deps);
      const second = await run(plan.install, deps);
      if (second.code !== 0 && !stopping.aborted) {
        const tail = [...refreshed.tail.slice(-3), ...second.tail.slice(-5)];
        throw new UpError([
          `${plan.tool} failed with exit code ${second.code}`,
          ...tail.map((line) => `  ${line}`),
          `Its log: ${logPath}`,
          describeManualInstall(missing),
        ].join("\n"));
      }
    }
  } finally {
    clearInterval(ticker);
  }
  const hasSystemd = await Deno.stat(SYSTEMD_DIR).catch(() => undefined);
  if (plan.tool === "apt-get" && hasSystemd) {
    out.say(
      `  apt-get also started system-wide servers. The gateway does not use them; to turn them off:\n` +
        `  sudo systemctl disable --now ${
          missing.map(({ apt }) => apt).join(" ")
        }`,
    );
  }
}

/** What installs without asking anybody: apt-get as root or through sudo, else Homebrew. */
async function planInstall(
  missing: readonly ServerSoftware[],
  deps: InstallDeps,
): Promise<Plan | undefined> {
  const { dirs, isRoot } = deps;
  const apt = await findProgram(["apt-get"], dirs);
  const sudo = isRoot ? undefined : await findProgram(["sudo"], dirs);
  const mayApt = isRoot ||
    sudo !== undefined && (await run([sudo, "-n", "true"], deps)).code === 0;
  if (apt && mayApt) {
    const words = [
      ...sudo === undefined
        ? []
        : [sudo, "-n", "env", "DEBIAN_FRONTEND=noninteractive"],
      apt,
    ];
    const packages = missing.map((software) => software.apt);
    const options = [...APT_QUIET, "--no-install-recommends"];
    return {
      tool: "apt-get",
      install: [...words, "install", ...options, ...packages],
      refresh: [...words, "update", ...APT_QUIET],
    };
  }
  const brew = await findProgram(["brew"], dirs);
  // Homebrew refuses to run as root.
  if (!brew || isRoot) return undefined;
  const packages = missing.map((software) => software.brew);
  return {
    tool: "brew",
    install: [brew, "install", "--quiet", ...packages],
    refresh: [brew, "update", "--quiet"],
  };
}

interface Ran {
  code: number;
  tail: string[];
}

async function run(
  [file = "", ...args]: string[],
  { env, logPath, out, stopping }: InstallDeps,
): Promise<Ran> {
  const log = openLogFile(logPath, out.warn);
  try {
    const child = spawnChild({
      file,
      args,
      env: { ...env, DEBIAN_FRONTEND: "noninteractive" },
      cwd: "/",
    }, { log, onLines() {} });
    const ended = Promise.race<Exit | void>([child.exited, aborted(stopping)]);
    if (!await within(ended, INSTALL_MS_MAX)) {
      child.signal("SIGTERM");
      if (!await within(child.exited, STOP_MS)) child.signal("SIGKILL");
    }
    return { code: (await child.exited).code, tail: child.tail() };
  } catch (error) {
    // The tool was found but cannot be started: the same as a failure of it.
    return { code: 127, tail: [messageOf(error)] };
  } finally {
    await log.close();
  }
}

function describeManualInstall(missing: readonly ServerSoftware[]): string {
  const apt = missing.map((software) => software.apt).join(" ");
  const brew = missing.map((software) => software.brew).join(" ");
  return [
    `Cannot find ${missing.map(({ name }) => name).join(" and ")}, ` +
    "and may not install it from here. Type one of:",
    `  sudo apt-get install ${apt}      (Debian 12, Ubuntu 24.04 and later)`,
    `  brew install ${brew}      (macOS)`,
    "or download:",
    ...missing.map(({ download }) => `  ${download}`),
    "or name servers that run elsewhere:",
    "  NATS_URL=nats://HOST:4222 REDIS_URL=redis://HOST:6379 npx -y deno task up",
  ].join("\n");
}
