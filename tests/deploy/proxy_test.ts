import { testInBrowser } from "../../services/key-admin/browser/chromium_fixture.ts";
import { canRun } from "../support/process.ts";

testInBrowser(
  "API and console behind the front proxy",
  new URL("proxy_steps_fixture.ts", import.meta.url),
  await canRun("caddy", "version"),
);
