import { type LogFile, parseRecord } from "./files.ts";
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

/** One JSON log line of a service. */
export interface ServiceEvent {
  event: string;
  level: string;
  /** All members of the line. */
  fields: Readonly<Record<string, unknown>>;
}

/** A process that leads its own session, so that Ctrl-C does not reach it. */
export interface Child {
  readonly pid: number;
  /** Resolves when it has ended and its last output is read. */
  readonly exited: Promise<Exit>;
  /** Its last lines on standard error, or else on standard output. */
  tail(): string[];
  /** Sends a signal, SIGKILL to its own children too; one that has ended is fine. */
  signal(name: Deno.Signal): void;
}

export interface ChildWatcher {
  log: LogFile;
  /** Complete lines of either output. */
  onLines(lines: string): void;
}

const TAIL_CHARS = 4_096;
const TAIL_LINES = 20;
/** No service writes a longer line; the rest of one is dropped. */
const LINE_CHARS_MAX = 65_536;
/** A grandchild may hold the pipe open. */
const LAST_OUTPUT_MS = 500;

/** Starts a process whose output goes to its log. Throws when it cannot be started. */
export function spawnChild(
  { file, args, env, cwd }: Program,
  { log, onLines }: ChildWatcher,
): Child {
  const process = new Deno.Command(file, {
    args: [...args],
    env: { ...env },
    clearEnv: true,
    cwd,
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const tails = { stdout: "", stderr: "" };
  const read = async (name: "stdout" | "stderr") => {
    const decoder = new TextDecoder();
    let rest = "";
    // A slow disk slows the writer down: nothing piles up here.
    for await (const bytes of process[name]) {
      const text = decoder.decode(bytes, { stream: true });
      tails[name] = (tails[name] + text).slice(-TAIL_CHARS);
      const all = rest + text;
      const end = all.lastIndexOf("\n") + 1;
      rest = all.slice(end).slice(-LINE_CHARS_MAX);
      if (end > 0) onLines(all.slice(0, end));
      await log.write(bytes);
    }
  };
  const reading = Promise.all([read("stdout"), read("stderr")]);
  return {
    pid: process.pid,
    exited: process.status.then(async ({ code, signal }) => {
      await within(reading, LAST_OUTPUT_MS);
      return { code, signal };
    }),
    tail() {
      const text = tails.stderr.trim() || tails.stdout.trim();
      return text === "" ? [] : text.split("\n").slice(-TAIL_LINES);
    },
    signal(name) {
      try {
        // A killed process cannot end its own children; other signals it passes on.
        if (name === "SIGKILL") Deno.kill(-process.pid, name);
        else process.kill(name);
      } catch (error) {
        // It has ended, which Deno says in two ways.
        const hasEnded = error instanceof TypeError ||
          error instanceof Deno.errors.NotFound;
        if (!hasEnded) throw error;
      }
    },
  };
}

/** All other lines only go to the log file. */
const WANTED = /"level":"(?:warn|error)"|"event":"(?:ready|setup_link)"/;

/**
 * The events that the launcher acts on. Most text at thousands of requests per
 * second has none, so it is searched as a whole first.
 */
export function findEvents(lines: string): ServiceEvent[] {
  if (!WANTED.test(lines)) return [];
  return lines.split("\n").flatMap((line) => {
    if (!WANTED.test(line)) return [];
    const fields = parseRecord(line);
    if (typeof fields?.event !== "string") return [];
    const level = typeof fields.level === "string" ? fields.level : "info";
    return [{ event: fields.event, level, fields }];
  });
}
