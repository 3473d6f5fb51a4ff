import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

const PATHS = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** Without a window and without requests to its vendor. */
export const CHROMIUM_ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The system's browser: `CHROMIUM_PATH` or a usual path; null without one. */
export function findChromium(): string | null {
  const given = Deno.env.get("CHROMIUM_PATH");
  return [given ?? "", ...PATHS].find(isFile) ?? null;
}

function isFile(path: string): boolean {
  try {
    return path !== "" && Deno.statSync(path).isFile;
  } catch {
    return false; // Not there.
  }
}

/**
 * Registers the tests of a file as one test in its own process: the browser's
 * driver needs permissions that no other test gets. Without a browser, or if
 * `isReady` is false, the name of the test says that nothing was tested.
 */
export function testInBrowser(shows: string, steps: URL, isReady = true) {
  if (findChromium() === null || !isReady) {
    Deno.test(`NOT tested, a program is missing: ${shows}`, () => {
      assert.equal(Deno.env.get("CI"), undefined, "CI has to have it");
    });
    return;
  }
  Deno.test(shows, async () => {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "--allow-all", "--no-check", fileURLToPath(steps)],
      env: { NO_COLOR: "1" },
    }).output();
    const decoder = new TextDecoder();
    assert.equal(code, 0, decoder.decode(stdout) + decoder.decode(stderr));
  });
}
