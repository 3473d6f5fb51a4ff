const PATHS = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** Without a window and without calls to its maker. */
export const CHROMIUM_ARGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** The system's browser: `CHROMIUM_PATH`, or where it usually is; null without one. */
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
