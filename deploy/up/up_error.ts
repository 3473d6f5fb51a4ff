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
  readonly exitCode: number;

  constructor(message: string, exitCode: number = EXIT.failed) {
    super(message);
    this.name = "UpError";
    this.exitCode = exitCode;
  }
}

/** The message of whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
