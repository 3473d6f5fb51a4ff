import type { Exit } from "./child.ts";
import { EXIT, UpError } from "./up_error.ts";

/** What a message says of a unit. */
interface RanUnit {
  name: string;
  readyMs: number;
}

/** How one run of a unit went. */
export interface Ending {
  exit: Exit;
  /** It was killed because it did not become ready in time. */
  isLate: boolean;
  isHealthy: boolean;
  tail: string[];
}

/** The program itself could not be started. */
export const NOT_STARTED: Ending = {
  exit: { code: 127, signal: null },
  isLate: false,
  isHealthy: false,
  tail: [],
};

/** What the operator reads when a unit died and will be started again. */
export function describeDeath(
  unit: RanUnit,
  ending: Ending,
  pauseMs: number,
): string {
  // Who was killed did not see it coming: its last line is about something else.
  const last = ending.exit.signal ? undefined : ending.tail.at(-1);
  return `${unit.name} ${describeExit(unit, ending)}, ` +
    `starting it again in ${pauseMs / 1_000} s` +
    (last === undefined ? "" : `: ${last}`);
}

function describeExit(unit: RanUnit, { exit, isLate }: Ending): string {
  if (isLate) return `was not ready after ${unit.readyMs / 1_000} s`;
  if (exit.signal) return `was ended by ${exit.signal}`;
  return `ended with exit code ${exit.code}`;
}

/** What the operator reads when a start is given up, with the last words of the process. */
export function startError(
  unit: RanUnit,
  ending: Ending,
  logPath: string,
): UpError {
  const isConfig = ending.exit.code === EXIT.config;
  const what = isConfig
    ? `${unit.name} found a mistake in its configuration`
    : `${unit.name} does not start: it ${describeExit(unit, ending)}`;
  const lines = ending.tail.map((line) => `  ${line}`).join("\n");
  return new UpError(
    `${what}\n${lines === "" ? "" : `${lines}\n`}Its log: ${logPath}`,
    isConfig ? EXIT.config : EXIT.failed,
  );
}
