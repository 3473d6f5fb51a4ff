/** The browser of this machine, and tests that need it. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { amountOf } from "../../../tests/support/amount.ts";
import { leaveOut, runProcess } from "../../../tests/support/process.ts";

/**
 * Whether pages are also inspected, and used as tests of a lower level use them:
 * without JavaScript, and by operators. The usual run tries what only a browser shows.
 */
export const IS_WHOLE = amountOf({ usual: 0, full: 1 }) === 1;

/** The environment of the process that runs the whole tests. */
const FULL_AMOUNTS = { TEST_AMOUNTS: "full" };
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
 * The tests of a file as one test in its own process, whole or the usual part: the
 * browser's driver needs permissions that no other test gets. Null without a browser:
 * they are left out. The file of the caller registers the test, so that reports name
 * that file.
 */
export function inBrowser(
  shows: string,
  steps: URL,
  { isWhole }: { isWhole: boolean },
): Pick<Deno.TestDefinition, "name" | "fn"> | null {
  if (findChromium() === null) {
    leaveOut(shows, "Chromium");
    return null;
  }
  return {
    name: shows,
    fn: async () => {
      const args = ["test", "--allow-all", "--no-check", fileURLToPath(steps)];
      const env = { NO_COLOR: "1", ...isWhole && FULL_AMOUNTS };
      await runProcess(Deno.execPath(), args, { env });
    },
  };
}
