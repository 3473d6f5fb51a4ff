import { monotonicNow } from "@gateway/shared/process/clock";
import { EXIT } from "./terminal.ts";

/** Runners pass on a Ctrl-C that the terminal has already sent to this process. */
const SAME_INTERRUPT_MS = 300;
const LOOK_EVERY_MS = 500;

type Environment = Readonly<Record<string, string>>;

/**
 * Returns a signal that aborts when the process has to stop or one of its runners
 * has died. A second Ctrl-C exits at once, and the watcher ends the other processes;
 * a second SIGTERM does not, since supervisors repeat theirs.
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

/** True under `nohup`: child processes inherit ignored signals. Must run before any listener is added. */
async function ignoresHangUp(): Promise<boolean> {
  const child = new Deno.Command("sleep", { args: ["0.1"] }).spawn();
  child.kill("SIGHUP");
  return (await child.status).success;
}

/**
 * Watches the parent processes that only exist to run the launcher: `deno task`,
 * and `npx` with its shell, which set variables. Killing one of them with -9 sends
 * the launcher no signal. Calls `onLost` once one of them has died. The shell of a
 * terminal is no runner: a cluster in the background may outlive it.
 */
async function watchRunners(
  { INIT_CWD, npm_lifecycle_event, npm_lifecycle_script }: Environment,
  onLost: () => void,
): Promise<void> {
  if (!INIT_CWD) return;
  const parents = new Map([[Deno.pid, Deno.ppid]]);
  // Only processes below npx have its variable. Only Linux shows other processes' variables.
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

/** The current parent of a process; NaN when the process has ended. */
async function parentOf(pid: number): Promise<number> {
  if (pid === Deno.pid) return Deno.ppid;
  const stat = await readProc(pid, "stat");
  // `123 (name) S 122 …`, where the name may contain anything.
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}

async function readProc(pid: number, file: string): Promise<string> {
  return await Deno.readTextFile(`/proc/${pid}/${file}`).catch(() => "");
}
