import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "lists, usage and the account work without JavaScript, by keyboard and in any zone",
  new URL("pages_steps_fixture.ts", import.meta.url),
);
