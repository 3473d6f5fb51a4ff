import { monotonicNow } from "@gateway/shared/process/clock";

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

/** A failure that is printed for the operator as it is, without a stack. Any other error is a fault. */
export class UpError extends Error {
  constructor(message: string, readonly exitCode: number = EXIT.failed) {
    super(message);
  }
}

export type Output = ReturnType<typeof createOutput>;

const REPEAT_MS = 30_000;

export function createOutput(isQuiet: boolean) {
  const warnedAtMs = new Map<string, number>();
  const print = (to: typeof Deno.stdout, text: string) => {
    try {
      to.writeSync(new TextEncoder().encode(`${text}\n`));
    } catch {
      // The terminal is gone. SIGHUP stops the cluster, not this error.
    }
  };
  return {
    /** Progress and results. Dropped with `--quiet`. */
    say: (text: string) => {
      if (!isQuiet) print(Deno.stdout, text);
    },
    /** Warnings and errors. Shown even with `--quiet`, but only one of a kind in a while. */
    warn: (text: string, kind = text) => {
      const nowMs = monotonicNow();
      if (nowMs - (warnedAtMs.get(kind) ?? -Infinity) < REPEAT_MS) return;
      warnedAtMs.set(kind, nowMs);
      print(Deno.stderr, text);
    },
  };
}
