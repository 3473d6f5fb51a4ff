/** The last part of what a process wrote, kept for error messages. */
const OUTPUT_CHARS_MAX = 64 * 1024;

export interface ProcessOptions {
  command: string;
  args: string[];
  env?: Record<string, string> | undefined;
  cwd?: string;
}

export type RunningProcess = ReturnType<typeof startProcess>;

/** Starts a process whose output is captured and which cannot outlive `await using`. */
export function startProcess(
  { command, args, env = {}, cwd = Deno.cwd() }: ProcessOptions,
) {
  const child = new Deno.Command(command, {
    ...{ args, env, cwd, stdin: "null", stdout: "piped", stderr: "piped" },
  }).spawn();
  let output = "";
  let isRunning = true;
  const keep = async (stream: ReadableStream<Uint8Array<ArrayBuffer>>) => {
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      output = (output + text).slice(-OUTPUT_CHARS_MAX);
    }
  };
  /** Settles when the process has ended and all of its output was read. */
  const exited = Promise.all([
    child.status.finally(() => isRunning = false),
    keep(child.stdout),
    keep(child.stderr),
  ]).then(([status]) => status);
  /** Does nothing once the process has ended. */
  const signal = (name: Deno.Signal) => {
    try {
      if (isRunning) child.kill(name);
    } catch (error) {
      // Deno noticed its end in this turn of the event loop.
      if (!(error instanceof TypeError)) throw error;
    }
  };
  /** SIGKILL, which also ends a process stopped by SIGSTOP, then waits. */
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
    /** Standard output and standard error in order, the last 64 Ki characters. */
    output: () => output,
    ...{ signal, kill, [Symbol.asyncDispose]: kill },
  };
}

/** Whether a program is on this machine and runs with these arguments. */
export async function canRun(command: string, ...args: string[]) {
  try {
    await using process = startProcess({ command, args });
    return (await process.exited).success;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
