import { GUARDIAN_SCRIPT } from "./guardian_script.ts";
import type { RunnerLink } from "./runners.ts";
import { readFileIfAny, removeFile, writePrivateFile } from "./private_file.ts";
import { sleep } from "./wait.ts";

/** What a process is to the guardian: stores are stopped after all services. */
export type ProcessKind = "service" | "store";

/** Makes sure that no process of ours outlives the launcher. */
export interface Guardian {
  /** Looks after a process from now on. The process leads its own group. */
  add(pid: number, kind: ProcessKind): void;
  /** Forgets a process that has ended, before its number means another one. */
  remove(pid: number): void;
  /** Sends the launcher SIGTERM when one of these links breaks. */
  watch(links: readonly RunnerLink[]): void;
  /** Ends the guardian. Everything must be stopped before. */
  quit(): Promise<void>;
}

export interface GuardianOptions {
  /** Pid of the launcher. */
  launcherPid: number;
  /** Exists while a guardian is at work; holds its pid. */
  markFile: string;
  /** Removed when the launcher dies. */
  stateFile: string;
}

/** How soon the death of a runner above the launcher is noticed. */
const TICK_MS = 500;

/**
 * Starts a guardian, and another one whenever it dies. See
 * {@link GUARDIAN_SCRIPT} for what it does.
 */
export function startGuardian(options: GuardianOptions): Guardian {
  const processes = new Map<number, ProcessKind>();
  let links: readonly RunnerLink[] = [];
  let quitting = false;
  let shell = spawnShell(options);

  const tell = (line: string) => shell.tell(line);
  const replaceWhenDead = async () => {
    while (true) {
      await shell.ended;
      if (quitting) return;
      shell = spawnShell(options);
      for (const [pid, kind] of processes) tell(`+ ${kind} ${pid}`);
      for (const link of links) tell(`watch ${link.pid} ${link.parent}`);
    }
  };
  const replaced = replaceWhenDead();
  const ticker = setInterval(() => tell("tick"), TICK_MS);

  return {
    add(pid, kind) {
      processes.set(pid, kind);
      tell(`+ ${kind} ${pid}`);
    },
    remove(pid) {
      processes.delete(pid);
      tell(`- ${pid}`);
    },
    watch(newLinks) {
      links = newLinks;
      for (const link of links) tell(`watch ${link.pid} ${link.parent}`);
    },
    async quit() {
      quitting = true;
      clearInterval(ticker);
      tell("quit");
      await shell.close();
      await replaced;
      await removeFile(options.markFile);
    },
  };
}

interface Shell {
  tell(line: string): void;
  close(): Promise<void>;
  ended: Promise<void>;
}

function spawnShell(options: GuardianOptions): Shell {
  const child = new Deno.Command("sh", {
    args: [
      "-c",
      GUARDIAN_SCRIPT,
      "gateway-guardian",
      String(options.launcherPid),
      options.markFile,
      options.stateFile,
    ],
    // Its own session: neither Ctrl-C nor the death of the terminal reaches it.
    detached: true,
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  const writer = child.stdin.getWriter();
  const encoder = new TextEncoder();
  const marked = writePrivateFile(options.markFile, String(child.pid));
  // A broken pipe means that the shell died, which `ended` reports.
  const ignoreBrokenPipe = () => {};
  writer.closed.catch(ignoreBrokenPipe);
  return {
    tell: (line) => {
      writer.write(encoder.encode(`${line}\n`)).catch(ignoreBrokenPipe);
    },
    close: () => writer.close().catch(ignoreBrokenPipe),
    ended: Promise.allSettled([child.status, marked]).then(() => {}),
  };
}

const ENDING_MS_MAX = 15_000;
const LOOK_EVERY_MS = 50;

/**
 * Waits until the guardian of an earlier launcher has stopped what that one left
 * behind. `onWait` is called when there is something to wait for.
 */
export async function awaitEarlierGuardian(
  markFile: string,
  isAlive: (pid: number) => boolean,
  onWait: () => void,
): Promise<void> {
  for (let waitedMs = 0; waitedMs < ENDING_MS_MAX; waitedMs += LOOK_EVERY_MS) {
    const pid = Number(await readFileIfAny(markFile));
    if (!(pid > 0) || !isAlive(pid)) break;
    if (waitedMs === 0) onWait();
    await sleep(LOOK_EVERY_MS);
  }
  await removeFile(markFile);
}
