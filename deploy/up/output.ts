import { writeAll } from "./files.ts";

/** What the launcher says to the person at the terminal. */
export interface Output {
  /** Progress and results. Dropped with `--quiet`. */
  say(text: string): void;
  /** Warnings and errors. Always shown. */
  warn(text: string): void;
  /** Resolves when everything said so far is written, or cannot be. */
  flush(): Promise<void>;
}

/** Beyond this many unwritten lines new ones are dropped: nobody reads the other end. */
const BACKLOG_LINES_MAX = 1_000;

/** An output whose lines keep their order and which never blocks, whoever stops reading. */
export function createOutput(isQuiet: boolean): Output {
  let backlog = 0;
  let written = Promise.resolve();
  const print = (to: typeof Deno.stdout, text: string) => {
    if (backlog >= BACKLOG_LINES_MAX) return;
    backlog++;
    written = written
      .then(() => writeAll(to, new TextEncoder().encode(`${text}\n`)))
      // The terminal is gone; its hang-up stops the cluster, not this.
      .catch(() => {})
      .finally(() => backlog--);
  };
  return {
    say: (text) => isQuiet || print(Deno.stdout, text),
    warn: (text) => print(Deno.stderr, text),
    flush: () => written,
  };
}
