import { testInBrowser } from "../../services/key-admin/browser/chromium_fixture.ts";

testInBrowser(
  "a key made in a browser works at the edges",
  new URL("browser_key_steps_fixture.ts", import.meta.url),
);
