import type { LogFile } from "./log_file.ts";
import { findEvents, type ServiceEvent } from "./service_event.ts";
import { within } from "./wait.ts";

/** What to run. The environment is complete: nothing is inherited. */
export interface Program {
  file: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
}

/** How a process ended. */
export interface Exit {
  code: number;
  signal: string | null;
}

/** A running process that leads its own session, so that Ctrl-C does not reach it. */
export interface Child {
  readonly pid: number;
  /** Settles when the process has ended and its last words are read. */
  readonly exited: Promise<Exit>;
  /** The last lines it wrote: those of standard error, or else of standard output. */
  tail(): string[];
  /** Sends a signal, SIGKILL to its own children too; one that has ended is fine. */
  signal(name: Deno.Signal): void;
}

export interface ChildWatcher {
  log: LogFile;
  /** Events on standard output, see {@link findEvents}. */
  onEvent(event: ServiceEvent): void;
  /** Each complete line of standard error. */
  onErrorLine(line: string): void;
}

const TAIL_CHARS = 4_096;
const TAIL_LINES = 20;
/** A line longer than this is cut: no service writes one. */
const LINE_CHARS_MAX = 65_536;
/** How long the output is read after the end, in case a grandchild holds the pipe. */
const LAST_WORDS_MS = 500;

/** Starts a process whose output goes to its log. Throws when it cannot be started. */
export function spawnChild(program: Program, watcher: ChildWatcher): Child {
  const process = new Deno.Command(program.file, {
    args: [...program.args],
    env: { ...program.env },
    clearEnv: true,
    cwd: program.cwd,
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const out = createTail((lines) => {
    for (const event of findEvents(lines)) watcher.onEvent(event);
  });
  const err = createTail((lines) => {
    for (const line of lines.trimEnd().split("\n")) watcher.onErrorLine(line);
  });
  const pumped = Promise.all([
    pump(process.stdout, watcher.log, out),
    pump(process.stderr, watcher.log, err),
  ]);
  const ended = async (): Promise<Exit> => {
    const { code, signal } = await process.status;
    await within(pumped, LAST_WORDS_MS);
    return { code, signal };
  };
  return {
    pid: process.pid,
    exited: ended(),
    tail: () => err.lines().length > 0 ? err.lines() : out.lines(),
    signal: (name) => sendSignal(process, name),
  };
}

/**
 * SIGKILL goes to the whole group, since a killed process cannot end its own
 * children. Other signals are the process's to pass on.
 */
function sendSignal(process: Deno.ChildProcess, name: Deno.Signal): void {
  try {
    if (name === "SIGKILL") Deno.kill(-process.pid, name);
    else process.kill(name);
  } catch (error) {
    // It has ended: then there is nothing to do. Deno has two ways to say so.
    const hasEnded = error instanceof TypeError ||
      error instanceof Deno.errors.NotFound;
    if (!hasEnded) throw error;
  }
}

interface Tail {
  push(text: string): void;
  lines(): string[];
}

/** Cuts text into complete lines for `onLines` and remembers the last ones. */
function createTail(onLines: (lines: string) => void): Tail {
  let rest = "";
  let recent = "";
  return {
    push(text) {
      recent = (recent + text).slice(-TAIL_CHARS);
      const all = rest + text;
      const end = all.lastIndexOf("\n") + 1;
      rest = all.slice(end).slice(-LINE_CHARS_MAX);
      if (end > 0) onLines(all.slice(0, end));
    },
    lines: () =>
      recent.trim() === "" ? [] : recent.trim().split("\n").slice(-TAIL_LINES),
  };
}

/** Copies a stream to the log. A slow disk slows the writer down; nothing piles up here. */
async function pump(
  stream: ReadableStream<Uint8Array>,
  log: LogFile,
  tail: Tail,
): Promise<void> {
  const decoder = new TextDecoder();
  for await (const bytes of stream) {
    tail.push(decoder.decode(bytes, { stream: true }));
    await log.write(bytes);
  }
}
