import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "keys are made, changed and deleted in a browser",
  new URL("browser_life_steps_fixture.ts", import.meta.url),
);
