import { ConfigError, EXIT_CONFIG } from "@gateway/shared/process/env";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import { BadCursor } from "../domain/keys/key_page.ts";
import { NotDurable } from "../domain/store/durability.ts";
import { CommandRefused, UsageError } from "./command_line.ts";

/** Exit codes, for the help of each command; 69 and 77 are from sysexits.h. */
export const EXIT_CODES_HELP =
  `Exit codes: 0 done, 1 refused, 2 not understood, 69 Redis or its disk does not answer,
77 the Redis user lacks a permission, ${EXIT_CONFIG} a mistake in the environment.`;

/** The exit code and the text for stderr of an expected error, else null. */
export function describeFailure(
  error: unknown,
  area: string,
): { exitCode: number; text: string } | null {
  if (!(error instanceof Error)) return null;
  const text = error.message;
  if (error instanceof UsageError) {
    const more = ["More:", area, "--help"].filter((word) => word !== "");
    return { exitCode: 2, text: `${text}\n${more.join(" ")}` };
  }
  if (error instanceof BadCursor) {
    const what = "--after takes the cursor that the page before printed";
    return { exitCode: 2, text: what };
  }
  if (error instanceof CommandRefused) return { exitCode: 1, text };
  if (error instanceof RedisUnavailableError || error instanceof NotDurable) {
    return { exitCode: 69, text };
  }
  if (error instanceof ConfigError) return { exitCode: EXIT_CONFIG, text };
  return isDenied(error)
    ? { exitCode: 77, text: `The Redis user may not do that: ${text}` }
    : null;
}
