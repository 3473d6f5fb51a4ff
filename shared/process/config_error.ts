/** Exit status of a service whose configuration is wrong: EX_CONFIG of sysexits.h. */
export const EXIT_CONFIG = 78;

/**
 * A configuration that cannot be used. `message` is text for the operator: a
 * heading and all mistakes at once, so that nobody mends them one by one.
 */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** One mistake each, in the order in which they were found. */
  readonly mistakes: readonly string[];

  /** `subject` is what is wrong, as in "the environment". */
  constructor(subject: string, mistakes: readonly string[]) {
    const count = mistakes.length === 1
      ? "1 mistake"
      : `${mistakes.length} mistakes`;
    const lines = mistakes.map((mistake) =>
      `  - ${mistake.replaceAll("\n", "\n    ")}`
    );
    super([`${count} in ${subject}:`, ...lines].join("\n"));
    this.mistakes = mistakes;
  }
}
