import type { Program } from "./child.ts";
import { findProgram } from "./find_program.ts";

/** A server the gateway needs and what package managers call it. */
export interface ServerSoftware {
  /** For people, for example `nats-server`. */
  name: string;
  /** Names of the program, best first. */
  programs: readonly string[];
  apt: string;
  brew: string;
}

export const NATS_SOFTWARE: ServerSoftware = {
  name: "nats-server",
  programs: ["nats-server"],
  apt: "nats-server",
  brew: "nats-server",
};

export const REDIS_SOFTWARE: ServerSoftware = {
  name: "redis-server",
  programs: ["redis-server", "valkey-server"],
  apt: "redis-server",
  brew: "redis",
};

/** The machine as far as installing goes. */
export interface Host {
  /** Directories that are searched for programs. */
  dirs: readonly string[];
  isRoot: boolean;
  env: Readonly<Record<string, string>>;
}

/** How missing servers can be installed without asking anybody. */
export interface InstallPlan {
  /** `apt-get` or `brew`. */
  tool: string;
  /** Answers 0 when this works; else `refresh` is run and this once more. */
  install: Program;
  refresh: Program;
}

/** apt waits this long for another apt to finish. */
const APT_LOCK_SECONDS = 120;
const APT_QUIET = ["-o", `DPkg::Lock::Timeout=${APT_LOCK_SECONDS}`, "-q", "-y"];

/**
 * Finds out how `missing` can be installed: apt-get as root or through a sudo
 * that asks for no password, else Homebrew. `undefined`: it cannot.
 */
export async function planInstall(
  missing: readonly ServerSoftware[],
  host: Host,
  succeeds: (program: Program) => Promise<boolean>,
): Promise<InstallPlan | undefined> {
  const program = (file: string, args: readonly string[]): Program => ({
    file,
    args,
    env: { ...host.env, DEBIAN_FRONTEND: "noninteractive" },
    cwd: "/",
  });
  const apt = await findProgram(["apt-get"], host.dirs);
  const prefix = apt && await rootPrefix(host, program, succeeds);
  if (apt && prefix) {
    const [file = apt, ...args] = [...prefix, apt];
    const packages = missing.map((software) => software.apt);
    const options = [...APT_QUIET, "--no-install-recommends"];
    return {
      tool: "apt-get",
      install: program(file, [...args, "install", ...options, ...packages]),
      refresh: program(file, [...args, "update", ...APT_QUIET]),
    };
  }
  const brew = await findProgram(["brew"], host.dirs);
  // Homebrew refuses to run as root.
  if (!brew || host.isRoot) return undefined;
  const packages = missing.map((software) => software.brew);
  return {
    tool: "brew",
    install: program(brew, ["install", "--quiet", ...packages]),
    refresh: program(brew, ["update", "--quiet"]),
  };
}

/** Words before a command that make it run as root; `undefined` where that needs a password. */
async function rootPrefix(
  host: Host,
  program: (file: string, args: readonly string[]) => Program,
  succeeds: (program: Program) => Promise<boolean>,
): Promise<string[] | undefined> {
  if (host.isRoot) return [];
  const sudo = await findProgram(["sudo"], host.dirs);
  if (!sudo || !await succeeds(program(sudo, ["-n", "true"]))) return undefined;
  return [sudo, "-n", "env", "DEBIAN_FRONTEND=noninteractive"];
}

/** What to type when nothing can be installed from here. */
export function describeManualInstall(
  missing: readonly ServerSoftware[],
): string {
  const names = missing.map((software) => software.name).join(" and ");
  const apt = missing.map((software) => software.apt).join(" ");
  const brew = missing.map((software) => software.brew).join(" ");
  return [
    `Cannot find ${names}, and may not install it from here. Type one of:`,
    `  sudo apt-get install ${apt}      (Debian 12, Ubuntu 24.04 and later)`,
    `  brew install ${brew}      (macOS)`,
    "or download:",
    ...missing.map((software) => `  ${DOWNLOADS[software.name]}`),
    "or name servers that run elsewhere:",
    "  NATS_URL=nats://HOST:4222 REDIS_URL=redis://HOST:6379 npx -y deno task up",
  ].join("\n");
}

const DOWNLOADS: { [name: string]: string } = {
  "nats-server": "https://github.com/nats-io/nats-server/releases",
  "redis-server": "https://redis.io/downloads",
};
