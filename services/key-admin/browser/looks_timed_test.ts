/** Every page of the console as people see it. */
import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "every page of the console looks right in a browser",
  new URL("looks_steps_fixture.ts", import.meta.url),
);
