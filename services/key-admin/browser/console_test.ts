/**
 * What only a browser shows of the console: its scripts and its keyboard, from the
 * sign-in on. `console_long_test.ts` has the rest.
 */
import { inBrowser } from "./chromium_fixture.ts";

const test = inBrowser(
  "keys are created, changed and deleted in a browser, and requests tried",
  new URL("life_steps_fixture.ts", import.meta.url),
  { isWhole: false },
);
if (test !== null) Deno.test(test);
