/** Every page of the console as people see it. */
import { inBrowser } from "./chromium_fixture.ts";

const test = inBrowser(
  "every page of the console looks right in a browser",
  new URL("looks_steps_fixture.ts", import.meta.url),
  { isWhole: true },
);
if (test !== null) Deno.test(test);
