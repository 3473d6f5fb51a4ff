/** Starts the launcher with stand-ins as a process of its own, in a directory of its own. */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isRecord, readRecord } from "../../../deploy/up/files.ts";
import { sleep } from "../../../deploy/up/wait.ts";

const HERE = resolve(fileURLToPath(import.meta.url), "..");
const DEADLINE_MS = 20_000;
const LOOK_EVERY_MS = 20;

/** A launcher that runs, or ran. */
export interface Launcher extends AsyncDisposable {
  pid: number;
  /** All it printed so far. */
  printed(): string;
  /** Waits for `up.json` and answers with its content. */
  state(): Promise<State>;
  exitCode: Promise<number>;
  signal(name: Deno.Signal): void;
}

/** `up.json`, as far as the tests look. */
export interface State {
  text: Record<string, unknown>;
  edgeUrl: string;
  apiKey: string;
  pids: { [service: string]: number[] };
}

/** A scratch directory for one test: `data` and `run` lie in it. */
export interface Scratch extends AsyncDisposable {
  path: string;
}

/** Makes a scratch directory that goes away with the test. */
export async function makeScratch(): Promise<Scratch> {
  const path = await Deno.makeTempDir({ prefix: "gateway-up-" });
  return {
    path,
    [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }),
  };
}

export interface LauncherOptions {
  args?: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** Replaces the words that start the launcher, for example by `deno task up`. */
  command?: readonly string[];
  cwd?: string;
}

/** The words that start the launcher with stand-ins. */
export function launcherCommand(): string[] {
  return [Deno.execPath(), "run", "--allow-all", `${HERE}/up.ts`];
}

/** Starts it on free ports; it is stopped, and must leave nothing, when disposed of. */
export function startLauncher(
  scratch: Scratch,
  options: LauncherOptions = {},
): Launcher {
  const [file = "", ...words] = options.command ?? launcherCommand();
  const child = new Deno.Command(file, {
    args: [
      ...words,
      ...["--data-dir", `${scratch.path}/data`],
      ...["--run-dir", `${scratch.path}/run`],
      ...options.args ?? ["--port", "0", "--console-port", "0"],
    ],
    env: { NATS_URL: "", REDIS_URL: "", INIT_CWD: "", ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let text = "";
  const read = async (stream: ReadableStream<Uint8Array>) => {
    const decoder = new TextDecoder();
    for await (const bytes of stream) text += decoder.decode(bytes);
  };
  const all = Promise.all([read(child.stdout), read(child.stderr)]);
  const exitCode = child.status.then(async ({ code }) => {
    await all;
    return code;
  });
  const signal = (name: Deno.Signal) => child.kill(name);
  let hasEnded = false;
  void exitCode.then(() => hasEnded = true);
  return {
    pid: child.pid,
    printed: () => text,
    exitCode,
    signal,
    state: () =>
      until("up.json", async () => {
        if (hasEnded) throw new Error(`The launcher ended:\n${text}`);
        return await readState(scratch);
      }),
    async [Symbol.asyncDispose]() {
      if (!hasEnded) signal("SIGTERM");
      await exitCode;
    },
  };
}

/** What `up.json` says now, if it is there. */
export async function readState(scratch: Scratch): Promise<State | undefined> {
  const record = await readRecord(`${scratch.path}/run/up.json`);
  if (!record) return undefined;
  const pids: State["pids"] = {};
  for (const [service, list] of Object.entries(record.pids ?? {})) {
    if (Array.isArray(list)) pids[service] = list.map(Number);
  }
  return {
    text: record,
    edgeUrl: String(record.edge_url),
    apiKey: String(record.api_key),
    pids,
  };
}

/** All pids of a state in one list. */
export function allPids(state: State): number[] {
  return Object.values(state.pids).flat();
}

/** Waits until `look` answers with something other than undefined or false. */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
): Promise<T> {
  const deadline = performance.now() + DEADLINE_MS;
  while (performance.now() < deadline) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    await sleep(LOOK_EVERY_MS);
  }
  throw new Error(`Not seen within ${DEADLINE_MS / 1_000} s: ${what}`);
}

/** True while a process runs. One that ended but that nobody has asked about yet does not. */
export async function isRunning(pid: number): Promise<boolean> {
  const isLinux = Deno.build.os === "linux";
  const { stdout } = await new Deno.Command(isLinux ? "cat" : "ps", {
    args: isLinux ? [`/proc/${pid}/stat`] : ["-o", "stat=", "-p", String(pid)],
  }).output();
  const text = new TextDecoder().decode(stdout);
  const state = text.slice(text.lastIndexOf(")") + 1).trim();
  return state !== "" && !state.startsWith("Z");
}

/** Those of `pids` that run. */
export async function running(pids: readonly number[]): Promise<number[]> {
  const are = await Promise.all(pids.map(isRunning));
  return pids.filter((_, i) => are[i]);
}

/** The environment a stand-in runs with, by the address of its operations port. */
export async function standInEnv(url: string): Promise<Record<string, string>> {
  const body: unknown = await (await fetch(url)).json();
  if (!isRecord(body)) throw new Error(`No environment at ${url}`);
  return Object.fromEntries(
    Object.entries(body).map(([name, value]) => [name, String(value)]),
  );
}

/** The services in the order in which they were told to stop, by their logs. */
export async function stopOrder(scratch: Scratch): Promise<string[]> {
  const stops: { service: string; atMs: number }[] = [];
  for await (const { name } of Deno.readDir(`${scratch.path}/run/logs`)) {
    const text = await Deno.readTextFile(`${scratch.path}/run/logs/${name}`);
    const [, atMs] = /"event":"stopped","at_ms":(\d+)/.exec(text) ?? [];
    if (atMs === undefined) continue;
    const service = name.replace(/(-\d+)?\.log$/, "");
    stops.push({ service, atMs: Number(atMs) });
  }
  stops.sort((a, b) => a.atMs - b.atMs);
  return stops.map(({ service }) => service);
}

/** The pids of the stand-ins that have begun, by their logs. */
export async function startedPids(scratch: Scratch): Promise<number[]> {
  const pids: number[] = [];
  for await (const { name } of Deno.readDir(`${scratch.path}/run/logs`)) {
    const text = await Deno.readTextFile(`${scratch.path}/run/logs/${name}`);
    const [, pid] = /"event":"starting","pid":(\d+)/.exec(text) ?? [];
    if (pid !== undefined) pids.push(Number(pid));
  }
  return pids;
}
