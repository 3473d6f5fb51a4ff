import { testInBrowser } from "./chromium_fixture.ts";

testInBrowser(
  "pages tell what they should, to eyes and to keyboards",
  new URL("reading_steps_fixture.ts", import.meta.url),
);
