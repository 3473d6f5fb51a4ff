import { type Exit, type Program, spawnChild } from "./child.ts";
import { findProgram } from "./find_program.ts";
import type { Guardian } from "./guardian.ts";
import {
  describeManualInstall,
  type Host,
  type InstallPlan,
  planInstall,
  type ServerSoftware,
} from "./install.ts";
import { openLogFile } from "./log_file.ts";
import type { Output } from "./output.ts";
import { aborted, within } from "./wait.ts";
import { messageOf, UpError } from "./up_error.ts";

export interface EnsureDeps {
  host: Host;
  guardian: Guardian;
  out: Output;
  /** Where the package manager's own words go. */
  logPath: string;
  /** Ends an installation. */
  stopping: AbortSignal;
}

const LOG_BYTES_MAX = 10 * 1024 * 1024;
const INSTALL_MS_MAX = 10 * 60_000;
const PROGRESS_EVERY_MS = 5_000;
/** What a package manager gets to end in order. */
const STOP_MS = 5_000;

/**
 * Answers with the path of each wanted server program, in the order of `wanted`,
 * and installs those that are missing.
 *
 * Throws an {@link UpError} that says what to type when that is not possible.
 */
export async function ensureServers(
  wanted: readonly ServerSoftware[],
  deps: EnsureDeps,
): Promise<string[]> {
  const paths = await findAll(wanted, deps.host);
  const missing = wanted.filter((_, i) => paths[i] === undefined);
  if (missing.length > 0) {
    await install(missing, deps);
    return requireAll(wanted, await findAll(wanted, deps.host));
  }
  return requireAll(wanted, paths);
}

function findAll(
  wanted: readonly ServerSoftware[],
  host: Host,
): Promise<(string | undefined)[]> {
  return Promise.all(
    wanted.map((software) => findProgram(software.programs, host.dirs)),
  );
}

function requireAll(
  wanted: readonly ServerSoftware[],
  paths: readonly (string | undefined)[],
): string[] {
  return wanted.map((software, i) => {
    const path = paths[i];
    if (path !== undefined) return path;
    throw new UpError(describeManualInstall([software]));
  });
}

async function install(
  missing: readonly ServerSoftware[],
  deps: EnsureDeps,
): Promise<void> {
  const run = (program: Program) => runProgram(program, deps);
  const plan = await planInstall(
    missing,
    deps.host,
    async (program) => (await run(program)).exit.code === 0,
  );
  if (!plan) throw new UpError(describeManualInstall(missing));
  const names = missing.map((software) => software.name).join(" and ");
  deps.out.say(`Installing ${names} with ${plan.tool}`);
  const startedAt = performance.now();
  const ticker = setInterval(() => {
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    deps.out.say(`  still installing (${seconds} s), see ${deps.logPath}`);
  }, PROGRESS_EVERY_MS);
  try {
    await runPlan(plan, missing, deps, run);
  } finally {
    clearInterval(ticker);
  }
  await warnOfSystemServices(plan, missing, deps.out);
}

async function runPlan(
  plan: InstallPlan,
  missing: readonly ServerSoftware[],
  deps: EnsureDeps,
  run: (program: Program) => Promise<Ran>,
): Promise<void> {
  // The package lists of a fresh machine are empty, those of an old one stale.
  const first = await run(plan.install);
  if (first.exit.code === 0 || deps.stopping.aborted) return;
  const refreshed = await run(plan.refresh);
  const second = await run(plan.install);
  if (second.exit.code === 0 || deps.stopping.aborted) return;
  const tail = [...refreshed.tail.slice(-3), ...second.tail.slice(-5)];
  throw new UpError(
    `${plan.tool} failed with exit code ${second.exit.code}\n` +
      `${tail.map((line) => `  ${line}`).join("\n")}\n` +
      `Its log: ${deps.logPath}\n${describeManualInstall(missing)}`,
  );
}

interface Ran {
  exit: Exit;
  tail: string[];
}

async function runProgram(program: Program, deps: EnsureDeps): Promise<Ran> {
  const log = openLogFile({
    path: deps.logPath,
    bytesMax: LOG_BYTES_MAX,
    onFailure: deps.out.warn,
  });
  try {
    const child = spawnChild(program, {
      log,
      onEvent() {},
      onErrorLine() {},
    });
    deps.guardian.add(child.pid, "service");
    const first = await within(
      Promise.race([child.exited, aborted(deps.stopping)]),
      INSTALL_MS_MAX,
    );
    if (!first) {
      child.signal("SIGTERM");
      if (!await within(child.exited, STOP_MS)) child.signal("SIGKILL");
    }
    const exit = await child.exited;
    deps.guardian.remove(child.pid);
    return { exit, tail: child.tail() };
  } catch (error) {
    // The tool was found but cannot be started: the same as a failure of it.
    return { exit: { code: 127, signal: null }, tail: [messageOf(error)] };
  } finally {
    await log.close();
  }
}

const SYSTEMD_DIR = "/run/systemd/system";

/** Debian's packages start a server of their own where systemd runs. */
async function warnOfSystemServices(
  plan: InstallPlan,
  missing: readonly ServerSoftware[],
  out: Output,
): Promise<void> {
  if (plan.tool !== "apt-get" || !await isDirectory(SYSTEMD_DIR)) return;
  const names = missing.map((software) => software.apt).join(" ");
  out.say(
    `  apt-get also started system-wide servers. The gateway does not use them; to turn them off:\n` +
      `  sudo systemctl disable --now ${names}`,
  );
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await Deno.stat(path)).isDirectory;
  } catch {
    // Not there or not visible: no systemd for us.
    return false;
  }
}
