/** The errors of JetStream that the log of kept answers tells apart. */
import type { LogFailure } from "./log.ts";

/** An append whose request expects another last entry. */
const WRONG_LAST_SEQUENCE = 10_071;
/** The stream, the account or the disk takes no more. */
const FULL = [10_023, 10_047, 10_077];

/** Why the log did not do what it was asked, by the code of JetStream's error. */
export function failureOfCode(code: number): LogFailure {
  if (code === WRONG_LAST_SEQUENCE) return "taken";
  return FULL.includes(code) ? "full" : "unavailable";
}
