/** What the launcher says to the person at the terminal. */
export interface Output {
  /** Progress and results. Dropped with `--quiet`. */
  say(text: string): void;
  /** Warnings and errors. Always shown. */
  warn(text: string): void;
  /** Resolves when everything said so far is written, or cannot be. */
  flush(): Promise<void>;
}

/** Writes all bytes to one of the two standard streams. */
export type WriteText = (bytes: Uint8Array) => Promise<void>;

export interface OutputOptions {
  quiet: boolean;
  stdout: WriteText;
  stderr: WriteText;
}

/** Beyond this many unwritten lines new ones are dropped: nobody reads the other end. */
const BACKLOG_LINES_MAX = 1_000;

/**
 * Makes an output whose lines keep their order and which never blocks: a reader
 * that stops reading must not stop the launcher from answering a signal.
 */
export function createOutput(options: OutputOptions): Output {
  const encoder = new TextEncoder();
  let backlog = 0;
  let written = Promise.resolve();
  const write = (to: WriteText, text: string) => {
    if (backlog >= BACKLOG_LINES_MAX) return;
    backlog++;
    written = written
      .then(() => to(encoder.encode(`${text}\n`)))
      // The terminal is gone. The cluster is stopped by the hang-up, not by this.
      .catch(() => {})
      .finally(() => backlog--);
  };
  return {
    say: (text) => {
      if (!options.quiet) write(options.stdout, text);
    },
    warn: (text) => write(options.stderr, text),
    flush: () => written,
  };
}
