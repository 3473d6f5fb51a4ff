/** The last part of what a process wrote, kept for error messages. */
const OUTPUT_CHARS_MAX = 64 * 1024;

/** How a process is started. */
export interface ProcessOptions {
  command: string;
  args: string[];
  env?: Record<string, string> | undefined;
  cwd?: string;
}

/** A process that a test started. */
export interface RunningProcess extends AsyncDisposable {
  readonly pid: number;
  readonly isRunning: boolean;
  /** Settles when the process has ended and all of its output was read. */
  readonly exited: Promise<Deno.CommandStatus>;
  /** Standard output and standard error in order, the last 64 Ki characters. */
  output(): string;
  /** Does nothing once the process has ended. */
  signal(name: Deno.Signal): void;
  /** SIGKILL, which also ends a process stopped by SIGSTOP, then waits. */
  kill(): Promise<void>;
}

/** Starts a process whose output is captured and which cannot outlive `await using`. */
export function startProcess(
  { command, args, env = {}, cwd = Deno.cwd() }: ProcessOptions,
): RunningProcess {
  const child = new Deno.Command(command, {
    args,
    env,
    cwd,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let output = "";
  let isRunning = true;
  const keep = async (stream: ReadableStream<Uint8Array<ArrayBuffer>>) => {
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      output = (output + text).slice(-OUTPUT_CHARS_MAX);
    }
  };
  const exited = Promise.all([
    child.status.finally(() => {
      isRunning = false;
    }),
    keep(child.stdout),
    keep(child.stderr),
  ]).then(([status]) => status);
  const signal = (name: Deno.Signal) => {
    try {
      if (isRunning) child.kill(name);
    } catch (error) {
      // Deno noticed its end in this turn of the event loop.
      if (!(error instanceof TypeError)) throw error;
    }
  };
  const kill = async () => {
    signal("SIGKILL");
    await exited;
  };
  return {
    pid: child.pid,
    get isRunning() {
      return isRunning;
    },
    exited,
    output: () => output,
    signal,
    kill,
    [Symbol.asyncDispose]: kill,
  };
}

/** A directory that is removed when it is disposed of. */
export async function makeTempDir() {
  const path = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const remove = () => Deno.remove(path, { recursive: true });
  return { path, [Symbol.asyncDispose]: remove };
}

/** Lets `it` end all of these parts, the last one first, when it is disposed of. */
export function owning<T extends object>(parts: AsyncDisposableStack, it: T) {
  const owned = parts.move();
  const end = () => owned.disposeAsync();
  return Object.assign(it, { [Symbol.asyncDispose]: end });
}

/**
 * Runs a program to its end and returns its standard output. Fails if the program does.
 */
export async function runProcess(
  command: string,
  args: readonly string[],
  options: Pick<Deno.CommandOptions, "env" | "cwd" | "signal"> = {},
): Promise<string> {
  const program = new Deno.Command(command, { ...options, args: [...args] });
  const { success, stdout, stderr } = await program.output();
  const [out = "", err = ""] = [stdout, stderr].map((bytes) =>
    new TextDecoder().decode(bytes)
  );
  if (!success) throw new Error(`${command} failed: ${out}${err}`);
  return out;
}

/** Whether a program is on this machine and runs with these arguments. */
export const canRun = (command: string, ...args: string[]) =>
  runProcess(command, args).then(() => true, () => false);

/**
 * Says that tests are left out because a program is missing, in a line that CI
 * repeats at its end. CI itself must have every program, and fails.
 */
export function leaveOut(tests: string, program: string): void {
  const line = `Left out: ${tests}: ${program} is missing`;
  if (Deno.env.has("CI")) throw new Error(line);
  print(line);
}

/** Writes a line to standard output. */
export function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

/** The user's folder for what programs can download again. */
export const CACHE: string = Deno.env.get("XDG_CACHE_HOME") ??
  `${Deno.env.get("HOME") ?? "/tmp"}/.cache`;

/**
 * Runs a shell script in a folder, unless it was the last one to succeed there under
 * this name.
 */
export async function installOnce(
  name: string,
  script: string,
  { cwd, signal }: { cwd: string; signal?: AbortSignal },
): Promise<void> {
  const mark = `${cwd}/.installed-${name}`;
  await Deno.mkdir(cwd, { recursive: true });
  if (await Deno.readTextFile(mark).catch(() => "") === script) return;
  print(`Installing ${name} into ${cwd}`);
  await runProcess("sh", ["-exc", script], { cwd, ...signal && { signal } });
  await Deno.writeTextFile(mark, script);
}
