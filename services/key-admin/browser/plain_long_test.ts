import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "the console works without JavaScript",
  new URL("plain_steps_fixture.ts", import.meta.url),
);
