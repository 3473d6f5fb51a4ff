/** For tests that measure the memory of a process which they start themselves. */
import { MALLOC, v8Flags } from "../../../deploy/up/plan.ts";

/** What `up` and the images set of the environment so that a process holds little. */
export const TUNING: Readonly<Record<string, string>> = {
  DENO_V8_FLAGS: v8Flags(Deno.version.v8),
  ...MALLOC,
};
