/**
 * What the launcher has from its terminal: output, exit codes and the signals to stop.
 */
import { monotonicNow } from "@gateway/shared/process/clock";

/** Exit codes of the launcher. */
export const EXIT = {
  ok: 0,
  failed: 1,
  /** Invalid options, as in shells and most tools. */
  usage: 2,
  /** A service found a mistake in its configuration (sysexits.h, EX_CONFIG). */
  config: 78,
  /** Ended by a second Ctrl-C: 128 + SIGINT. */
  hurried: 130,
} as const;

/**
 * A failure that is printed for the operator as it is, without a stack. Any other error
 * is a fault.
 */
export class UpError extends Error {
  constructor(message: string, readonly exitCode: number = EXIT.failed) {
    super(message);
  }
}

/** What the launcher prints. */
export interface Output {
  /** Progress and results; nothing with `--quiet`. */
  say(text: string): void;
  /** Warnings and errors, only one of a kind in a while. */
  warn(text: string, kind?: string): void;
}

/** A warning of a kind is shown once in this time. */
const REPEAT_MS = 30_000;
/** Runners pass on a Ctrl-C that the terminal has already sent to this process. */
const SAME_INTERRUPT_MS = 300;
const LOOK_EVERY_MS = 500;

/** Prints to standard output and standard error; never throws. */
export function createOutput(): Output {
  const warnedAtMs = new Map<string, number>();
  const print = (to: typeof Deno.stdout, text: string) => {
    try {
      to.writeSync(new TextEncoder().encode(`${text}\n`));
    } catch {
      // The terminal is gone. SIGHUP stops the cluster, not this error.
    }
  };
  return {
    say: (text: string) => print(Deno.stdout, text),
    warn: (text: string, kind = text) => {
      const nowMs = monotonicNow();
      if (nowMs - (warnedAtMs.get(kind) ?? -Infinity) < REPEAT_MS) return;
      warnedAtMs.set(kind, nowMs);
      print(Deno.stderr, text);
    },
  };
}

/**
 * Returns a signal that aborts when the process has to stop or one of its runners
 * has died. A second Ctrl-C exits at once, and the watcher ends the other processes;
 * a second SIGTERM does not, since supervisors repeat theirs.
 */
export async function listenForStop(): Promise<AbortSignal> {
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
  const runners = await runnersAbove();
  const timer = setInterval(async () => {
    if (await runnersAbove() === runners) return;
    clearInterval(timer);
    stop();
  }, LOOK_EVERY_MS);
  return stopping.signal;
}

/**
 * True under `nohup`: child processes inherit ignored signals. Must run before any
 * listener is added.
 */
async function ignoresHangUp(): Promise<boolean> {
  const shell = new Deno.Command("sh", { args: ["-c", "kill -s HUP $$"] });
  return (await shell.output()).success;
}

/**
 * The pids of the parent processes that exist only to run the launcher: `deno task`,
 * and `npx` with its shell. Both set INIT_CWD for the processes below them. A
 * terminal's shell is not one of them: a cluster in the background may outlive it.
 */
async function runnersAbove(): Promise<string> {
  if (!Deno.env.get("INIT_CWD")) return "";
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
