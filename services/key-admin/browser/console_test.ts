/** The lifecycle of keys and the page "Try it" in a browser. */
import { inBrowser } from "./chromium_fixture.ts";

const test = inBrowser(
  "keys are created, changed and deleted in a browser, and requests tried",
  new URL("life_steps_fixture.ts", import.meta.url),
);
if (test !== null) Deno.test(test);
