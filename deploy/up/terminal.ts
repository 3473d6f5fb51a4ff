/** What the launcher tells the person at the terminal, and how it exits. */

/** Exit codes of the launcher. */
export const EXIT = {
  ok: 0,
  failed: 1,
  /** Bad options, as shells and most tools use it. */
  usage: 2,
  /** A service found a mistake in its configuration (sysexits.h, EX_CONFIG). */
  config: 78,
  /** Stopped in a hurry by a second Ctrl-C: 128 + SIGINT. */
  hurried: 130,
} as const;

/**
 * A failure whose message is written for the person at the terminal: it is
 * printed as it is, without a stack. Anything else that is thrown is a fault.
 */
export class UpError extends Error {
  constructor(message: string, readonly exitCode: number = EXIT.failed) {
    super(message);
  }
}

/** Lines for the person at the terminal. */
export interface Output {
  /** Progress and results. Dropped with `--quiet`. */
  say(text: string): void;
  /** Warnings and errors. Always shown. */
  warn(text: string): void;
}

/** The output of this process. */
export function createOutput(isQuiet: boolean): Output {
  const print = (to: typeof Deno.stdout, text: string) => {
    try {
      to.writeSync(new TextEncoder().encode(`${text}\n`));
    } catch {
      // The terminal is gone; its hang-up stops the cluster, not this.
    }
  };
  return {
    say: (text) => isQuiet || print(Deno.stdout, text),
    warn: (text) => print(Deno.stderr, text),
  };
}
