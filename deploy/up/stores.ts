/** The private NATS and Redis servers: finding, installing and starting them. */
import { hideUserinfo } from "@gateway/shared/process/env";
import type { Unit } from "./cluster.ts";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import { ROOT, type UpOptions } from "./options.ts";
import type { Environment, Settings } from "./plan.ts";
import { findFreePorts, LOOPBACK, whyNotFree } from "./ports.ts";
import { type Output, UpError } from "./terminal.ts";

/**
 * What the `PATH` of an ordinary user often lacks: Debian has nats-server in /usr/sbin,
 * Homebrew its own tree.
 */
const USUAL_DIRS = [
  "/usr/local/bin",
  "/usr/local/sbin",
  "/usr/bin",
  "/usr/sbin",
  "/bin",
  "/opt/homebrew/bin",
  "/home/linuxbrew/.linuxbrew/bin",
];
/** Includes how long to wait for another apt. */
const APT_QUIET = ["-o", "DPkg::Lock::Timeout=120", "-q", "-y"];

/** What starts a process and resolves when it is ready. */
interface Starter {
  start(unit: Unit): Promise<void>;
}

/** Where the servers keep their data, and how the launcher runs them. */
interface StoresOptions extends Pick<UpOptions, "dataDir" | "runDir"> {
  /** A server whose URL is set is not started. */
  settings: Pick<Settings, "NATS_URL" | "REDIS_URL">;
  env: Environment;
  out: Output;
  /** Ends an installation. */
  stopping: AbortSignal;
}

/** Starts them, unless their URLs are given. Returns the URLs when they are ready. */
export async function startStores(
  processes: Starter,
  { dataDir, runDir, settings, env, out, stopping }: StoresOptions,
): Promise<{ natsUrl: string; redisUrl: string }> {
  const here = `${ROOT}/deploy/up`;
  const redisDir = `${dataDir}/redis`;
  // Kept answers: encrypted, with keys that are in Redis.
  const natsDir = `${dataDir}/nats`;
  const stores = [
    {
      service: "nats",
      file: "nats-server",
      url: settings.NATS_URL?.join(","),
      cwd: runDir,
      readyText: "Server is ready",
      portOf: async () => {
        await makePrivateDir(natsDir);
        return findFreePorts(1)[0];
      },
      args: natsArgs(`${here}/nats.conf`, natsDir),
    },
    {
      service: "redis",
      file: "redis-server",
      url: settings.REDIS_URL,
      cwd: redisDir,
      readyText: "Ready to accept connections",
      portOf: () => redisPort(redisDir),
      args: [`${here}/redis.conf`, "--bind", LOOPBACK, "--port"],
    },
  ] as const;
  const paths = await ensureServers(
    stores.flatMap(({ file, url }) => url === undefined ? file : []),
    { dirs: programDirs(env.PATH), isRoot: Deno.uid() === 0, out, stopping },
  );
  const [natsUrl = "", redisUrl = ""] = await Promise.all(
    stores.map(async ({ service, file, url, cwd, ...store }) => {
      if (url !== undefined) {
        out.say(`Using ${hideUserinfo(url)}`);
        return url;
      }
      out.say(`Starting ${file}`);
      const { portOf, args, readyText } = store;
      const port = `${await portOf()}`;
      const path = paths.get(file) ?? "";
      const program = { file: path, args: [...args, port], env, cwd };
      await processes.start({ service, name: service, readyText, program });
      return `${service}://${LOOPBACK}:${port}`;
    }),
  );
  return { natsUrl, redisUrl };
}

/** With JetStream, whose data are in a directory; the port follows. */
const natsArgs = (file: string, dir: string): string[] => [
  "-c",
  file,
  "--jetstream",
  "--store_dir",
  dir,
  "-a",
  LOOPBACK,
  "-p",
];

/**
 * A port kept in a file: while a server of an earlier run still has it, no other can
 * destroy the data.
 */
async function redisPort(dir: string): Promise<number> {
  await makePrivateDir(dir);
  const file = `${dir}/port`;
  const lastPort = Number(await Deno.readTextFile(file).catch(() => 0));
  const [port = 0] = lastPort > 0 ? [lastPort] : findFreePorts(1);
  if (whyNotFree(port) === undefined) {
    await writePrivateFile(file, `${port}`);
    return port;
  }
  throw new UpError(
    `A Redis server of an earlier run may still use ${dir}: port ${port} is busy\n` +
      `If so, stop it. If another program has the port, delete ${file}`,
  );
}

/** How missing programs are installed. */
export interface InstallDeps extends Pick<StoresOptions, "out" | "stopping"> {
  /** Where programs are looked for. */
  dirs: readonly string[];
  isRoot: boolean;
}

/** Where programs may be: the directories of `PATH`, and the usual ones. */
export function programDirs(path = ""): string[] {
  return [...path.split(":"), ...USUAL_DIRS];
}

/**
 * The path of each program; installs missing ones with apt, or throws an {@link
 * UpError} with the commands to type.
 */
export async function ensureServers(
  names: readonly string[],
  deps: InstallDeps,
): Promise<ReadonlyMap<string, string>> {
  const find = (name: string) => findProgram(name, deps.dirs);
  const missing = names.filter((name) => find(name) === undefined);
  if (missing.length > 0) await install(missing, deps);
  return new Map(names.map((name) => {
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

function findProgram(name: string, dirs: readonly string[]) {
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

/**
 * Installs with apt-get if that is possible without a question: as root, or through
 * sudo.
 */
async function install(
  names: readonly string[],
  { dirs, isRoot, out, stopping: signal }: InstallDeps,
): Promise<void> {
  const apt = findProgram("apt-get", dirs);
  const sudo = findProgram("sudo", dirs);
  if (apt === undefined || !isRoot && sudo === undefined) return;
  out.say(`Installing ${names.join(" and ")}`);
  const [file = apt, ...asRoot] = isRoot ? [] : [sudo, "-n", apt];
  const installWords = ["install", "--no-install-recommends", ...names];
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  // The package lists of a fresh machine are empty.
  for (const words of [["update"], installWords]) {
    const args = [...asRoot, ...words, ...APT_QUIET];
    const options = { args, env, signal, stdin: "null" } as const;
    await new Deno.Command(file, options).spawn().status;
  }
}
