import { monotonicNow } from "@gateway/shared/process/clock";
import { EXIT } from "./terminal.ts";

/** Runners pass on a Ctrl-C that the terminal has sent us already. */
const SAME_INTERRUPT_MS = 300;
const LOOK_EVERY_MS = 500;

type Environment = Readonly<Record<string, string>>;

/**
 * Answers with a signal that aborts when the process is told to stop, or when one
 * of its runners has died. A later Ctrl-C exits at once, and the watcher ends the
 * rest; a second SIGTERM does not, since supervisors repeat theirs.
 */
export async function listenForStop(env: Environment): Promise<AbortSignal> {
  const stopping = new AbortController();
  let requestedAtMs = Infinity;
  const stop = () => {
    if (!stopping.signal.aborted) requestedAtMs = monotonicNow();
    stopping.abort();
  };
  const isHangUpIgnored = await ignoresHangUp();
  Deno.addSignalListener("SIGTERM", stop);
  // Once Deno handles any signal, SIGHUP ends it unless there is a listener.
  Deno.addSignalListener("SIGHUP", isHangUpIgnored ? () => {} : stop);
  Deno.addSignalListener("SIGINT", () => {
    const isSecond = monotonicNow() - requestedAtMs > SAME_INTERRUPT_MS;
    if (isSecond) Deno.exit(EXIT.hurried);
    stop();
  });
  await watchRunners(env, stop);
  return stopping.signal;
}

/** True under `nohup`: a new process inherits what is ignored. Must be asked before we listen. */
async function ignoresHangUp(): Promise<boolean> {
  const child = new Deno.Command("sleep", { args: ["0.1"] }).spawn();
  child.kill("SIGHUP");
  return (await child.status).success;
}

/**
 * Watches the processes above the launcher that only exist to run it: `deno task`,
 * and `npx` with its shell, which tell of themselves in the environment. Killing
 * one of those with -9 reaches nobody else. Calls `onLost` once one of them has
 * died. The shell of a terminal is no runner: a cluster started in the background
 * may outlive it.
 */
async function watchRunners(
  { INIT_CWD, npm_lifecycle_event, npm_lifecycle_script }: Environment,
  onLost: () => void,
): Promise<void> {
  if (!INIT_CWD) return;
  const parents = new Map([[Deno.pid, Deno.ppid]]);
  // Only what runs below npx has its variable. Only Linux shows that of others.
  const mark = `\0npm_lifecycle_script=${npm_lifecycle_script}\0`;
  let pid = npm_lifecycle_event === "npx" ? Deno.ppid : 0;
  while (`\0${await readProc(pid, "environ")}`.includes(mark)) {
    const parent = await parentOf(pid);
    parents.set(pid, parent);
    pid = parent;
  }
  const timer = setInterval(async () => {
    for (const [pid, parent] of parents) {
      if (await parentOf(pid) === parent) continue;
      clearInterval(timer);
      onLost();
    }
  }, LOOK_EVERY_MS);
}

/** The parent that a process has now; NaN when it is gone. */
async function parentOf(pid: number): Promise<number> {
  if (pid === Deno.pid) return Deno.ppid;
  const stat = await readProc(pid, "stat");
  // `123 (name) S 122 …`, where the name may hold anything.
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}

async function readProc(pid: number, file: string): Promise<string> {
  return await Deno.readTextFile(`/proc/${pid}/${file}`).catch(() => "");
}
