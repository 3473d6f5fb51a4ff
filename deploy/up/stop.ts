import { monotonicNow } from "@gateway/shared/process/clock";
import type { Environment } from "./plan.ts";
import { EXIT } from "./terminal.ts";

/** Runners pass on a Ctrl-C that the terminal has already sent to this process. */
const SAME_INTERRUPT_MS = 300;
const LOOK_EVERY_MS = 500;

/**
 * Returns a signal that aborts when the process has to stop or one of its runners
 * has died. A second Ctrl-C exits at once, and the watcher ends the other processes;
 * a second SIGTERM does not, since supervisors repeat theirs.
 */
export async function listenForStop(env: Environment): Promise<AbortSignal> {
  const stopping = new AbortController();
  let requestedAtMs = Infinity;
  const stop = () => {
    requestedAtMs = Math.min(requestedAtMs, monotonicNow());
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
  // Killing a runner with -9 sends the launcher no signal.
  const runners = await runnersAbove(env);
  const timer = setInterval(async () => {
    if (await runnersAbove(env) === runners) return;
    clearInterval(timer);
    stop();
  }, LOOK_EVERY_MS);
  return stopping.signal;
}

/** True under `nohup`: child processes inherit ignored signals. Must run before any listener is added. */
async function ignoresHangUp(): Promise<boolean> {
  const shell = new Deno.Command("sh", { args: ["-c", "kill -s HUP $$"] });
  return (await shell.output()).success;
}

/**
 * The pids of the parent processes that exist only to run the launcher: `deno task`,
 * and `npx` with its shell. Both set INIT_CWD for the processes below them. A
 * terminal's shell is not one of them: a cluster in the background may outlive it.
 */
async function runnersAbove(env: Environment): Promise<string> {
  if (!env.INIT_CWD) return "";
  const pids = [Deno.ppid];
  let pid = Deno.ppid;
  // Only Linux shows other processes' variables.
  while (/\0INIT_CWD=./.test(await readProc(pid, "environ"))) {
    pid = Number(/\nPPid:\s*(\d+)/.exec(await readProc(pid, "status"))?.[1]);
    pids.push(pid);
  }
  return pids.join();
}

/** Begins with a NUL, as each variable of `environ` does. */
async function readProc(pid: number, file: string): Promise<string> {
  const text = await Deno.readTextFile(`/proc/${pid}/${file}`).catch(() => "");
  return `\0${text}`;
}
