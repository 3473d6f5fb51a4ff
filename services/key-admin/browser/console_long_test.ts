/**
 * The console in a browser with all that tests without one show in the usual run: forms
 * without JavaScript, operators who invite and help. Each answer of "Try it" is
 * inspected.
 */
import { inBrowser } from "./chromium_fixture.ts";

const test = inBrowser(
  "keys, operators and Try it, with and without JavaScript, each page inspected",
  new URL("life_steps_fixture.ts", import.meta.url),
  { isWhole: true },
);
if (test !== null) Deno.test(test);
