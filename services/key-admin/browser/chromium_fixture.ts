/** The browser of this machine, and tests that need it. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { leaveOut, runProcess } from "../../../tests/support/process.ts";

const PATHS = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The system's browser: `CHROMIUM_PATH` or a usual path; null without one. */
export function findChromium(): string | null {
  const chosen = Deno.env.get("CHROMIUM_PATH");
  const paths = chosen ? [chosen, ...PATHS] : PATHS;
  return paths.find((path) => existsSync(path)) ?? null;
}

/**
 * The tests of a file as one test in its own process: the browser's driver needs
 * permissions that no other test gets. Null without a browser: they are left out. The
 * file of the caller registers the test, so that reports name that file.
 */
export function inBrowser(
  shows: string,
  steps: URL,
): Pick<Deno.TestDefinition, "name" | "fn"> | null {
  if (findChromium() === null) {
    leaveOut(shows, "Chromium");
    return null;
  }
  return {
    name: shows,
    fn: async () => {
      const args = ["test", "--allow-all", "--no-check", fileURLToPath(steps)];
      await runProcess(Deno.execPath(), args, { env: { NO_COLOR: "1" } });
    },
  };
}
