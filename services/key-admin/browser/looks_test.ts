import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "axe finds nothing on any page: light, dark, narrow",
  new URL("looks_steps_fixture.ts", import.meta.url),
);
