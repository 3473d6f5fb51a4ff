/**
 * The page "Try it" of a whole gateway in a browser: a tab that is reloaded shows the
 * answer again, and goes on.
 */
import { inBrowser } from "../../../services/key-admin/browser/chromium_fixture.ts";

const test = inBrowser(
  "an answer of Try it survives that its tab is reloaded",
  new URL("try_reload_steps_fixture.ts", import.meta.url),
  { isWhole: false },
);
if (test !== null) Deno.test(test);
