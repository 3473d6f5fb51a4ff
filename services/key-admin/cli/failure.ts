import { ConfigError, EXIT_CONFIG } from "@gateway/shared/process/env";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import { BadCursor } from "../domain/keys/key_page.ts";
import { NotDurable } from "../domain/store/durability.ts";
import { CommandRefused } from "./answer.ts";
import { UsageError } from "./arguments.ts";

/** How a command that failed ends: the text is for stderr and says what to do. */
export interface Failure {
  exitCode: number;
  text: string;
}

/** Those above 2 are of sysexits.h: EX_UNAVAILABLE, EX_NOPERM. */
const EXIT = { refused: 1, usage: 2, unavailable: 69, denied: 77 } as const;

/** Exit codes, for the help of each command. */
export const EXIT_CODES_HELP =
  `Exit codes: 0 done, 1 refused, ${EXIT.usage} not understood, ${EXIT.unavailable} redis or its disk away,
${EXIT.denied} no right to do that in redis, ${EXIT_CONFIG} a mistake in the environment.`;

/** Says what went wrong; null for what nobody foresaw. */
export function describeFailure(error: unknown, area: string): Failure | null {
  if (error instanceof UsageError) {
    const text = `${error.message}\nMore: ${area} --help`.replace(/ +/g, " ");
    return { exitCode: EXIT.usage, text };
  }
  if (error instanceof BadCursor) {
    const text = "--after takes what the page before printed after --after";
    return { exitCode: EXIT.usage, text };
  }
  if (error instanceof RedisUnavailableError || error instanceof NotDurable) {
    return { exitCode: EXIT.unavailable, text: error.message };
  }
  if (error instanceof Error && isDenied(error)) {
    const text = `The user in redis may not do that: ${error.message}`;
    return { exitCode: EXIT.denied, text };
  }
  if (error instanceof ConfigError) {
    return { exitCode: EXIT_CONFIG, text: error.message };
  }
  if (error instanceof CommandRefused) {
    return { exitCode: EXIT.refused, text: error.message };
  }
  return null;
}
