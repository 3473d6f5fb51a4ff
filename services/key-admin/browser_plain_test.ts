import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "the console works without JavaScript",
  new URL("browser_plain_steps_fixture.ts", import.meta.url),
);
