/** Starts the launcher with stand-ins in its own process and directory. */
import type { UpState } from "../../../deploy/up/state.ts";
import { type RunningProcess, startProcess } from "../../support/process.ts";
import { until, waitFor } from "../../support/wait_for.ts";

/** Creates a directory that is removed with the test. */
export async function makeScratch() {
  const path = await Deno.makeTempDir({ prefix: "gateway-up-" });
  return {
    path,
    [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }),
  };
}

/** How the launcher is started. */
export interface LauncherOptions {
  /** Has `data` and `run`; by default one that is removed with the launcher. */
  dir?: string;
  args?: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** Replaces the command that starts the launcher, for example with `deno task up`. */
  command?: readonly string[];
}

/** The command that starts the launcher with stand-ins. */
export const LAUNCHER = [
  Deno.execPath(),
  "run",
  "--allow-all",
  `${import.meta.dirname}/up.ts`,
];

/** Starts the launcher, by default on free ports. Disposing stops it. */
export function startLauncher(options: LauncherOptions = {}): Launcher {
  const { dir, command = LAUNCHER, args, env } = options;
  const path = dir ?? Deno.makeTempDirSync({ prefix: "gateway-up-" });
  const [file = "", ...words] = command;
  const child = startProcess({
    command: file,
    args: [
      ...words,
      "--data-dir",
      `${path}/data`,
      "--run-dir",
      `${path}/run`,
      ...args ?? ["--port", "0", "--console-port", "0"],
    ],
    env: { NATS_URL: "", REDIS_URL: "", INIT_CWD: "", ...env },
    cwd: path,
  });
  return new Launcher(child, path, { isOwnPath: dir === undefined });
}

/** A launcher that runs, with its directory. */
export class Launcher implements AsyncDisposable {
  /** The directory of the services' logs. */
  readonly logs: string;
  readonly pid: number;
  readonly exitCode: Promise<number>;
  readonly #child: RunningProcess;
  readonly #isOwnPath: boolean;

  constructor(
    child: RunningProcess,
    readonly path: string,
    { isOwnPath }: { isOwnPath: boolean },
  ) {
    this.#child = child;
    this.#isOwnPath = isOwnPath;
    this.logs = `${path}/run/logs`;
    this.pid = child.pid;
    this.exitCode = child.exited.then(({ code }) => code);
  }

  /** Its output so far. */
  printed(): string {
    return this.#child.output();
  }

  /** Sends it a signal. */
  signal(name: Deno.Signal): void {
    this.#child.signal(name);
  }

  /** Waits until it has printed this. */
  async prints(what: RegExp): Promise<void> {
    await waitFor(() => what.test(this.printed()), { what: String(what) });
  }

  /** The content of `up.json`, if it exists. */
  async readState(): Promise<UpState | undefined> {
    const text = await Deno.readTextFile(`${this.path}/run/up.json`)
      .catch(() => undefined);
    return text === undefined ? undefined : JSON.parse(text);
  }

  /** Waits for `up.json` and returns its content. */
  state(): Promise<UpState> {
    return until(() => {
      if (this.#child.isRunning) return this.readState();
      throw new Error(`The launcher ended:\n${this.printed()}`);
    });
  }

  /** The services in the order in which they were asked to stop. */
  async stopOrder(): Promise<string[]> {
    const stops = await this.#findInLogs(/"event":"stopped","at_ms":(\d+)/);
    return stops.sort((a, b) => a.value - b.value)
      .map(({ service }) => service);
  }

  /** The pids of the stand-ins that have started. */
  async startedPids(): Promise<number[]> {
    const starts = await this.#findInLogs(/"event":"starting","pid":(\d+)/);
    return starts.map(({ value }) => value);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.signal("SIGTERM");
    await this.#child.exited;
    if (this.#isOwnPath) await Deno.remove(this.path, { recursive: true });
  }

  async #findInLogs(
    number: RegExp,
  ): Promise<{ service: string; value: number }[]> {
    const found: { service: string; value: number }[] = [];
    for await (const { name } of Deno.readDir(this.logs)) {
      const text = await Deno.readTextFile(`${this.logs}/${name}`);
      const service = name.replace(/(-\d+)?\.log$/, "");
      const value = number.exec(text)?.[1];
      if (value !== undefined) found.push({ service, value: Number(value) });
    }
    return found;
  }
}

/** All pids of a state in one list. */
export const allPids = ({ pids }: UpState) => Object.values(pids).flat();

/** Waits until none of `pids` runs. */
export async function untilEnded(pids: readonly number[]): Promise<void> {
  await until(async () => (await running(pids)).length === 0);
}

/** Those of `pids` that run. Zombies do not. */
export async function running(pids: readonly number[]): Promise<number[]> {
  const ps = ["-o", "pid=,stat=", "-p", pids.join()];
  const { stdout } = await new Deno.Command("ps", { args: ps }).output();
  const lines = new TextDecoder().decode(stdout).matchAll(/(\d+) +[^Z\s]/g);
  return [...lines].map(([, pid]) => Number(pid));
}

/** The environment of a stand-in, from its operations port. */
export async function standInEnv(url = ""): Promise<Record<string, string>> {
  return await (await fetch(url)).json();
}
