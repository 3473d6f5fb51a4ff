import assert from "node:assert/strict";
import { parseOptions, ROOT } from "./options.ts";
import { UpError } from "./terminal.ts";

const DEFAULTS = {
  workers: 1,
  mediaWorkers: 1,
  edges: 1,
  host: "127.0.0.1",
  port: 8080,
  consolePort: 8081,
  dataDir: `${ROOT}/.data`,
  runDir: `${ROOT}/.run`,
  models: "",
  isQuiet: false,
  isVersion: false,
  isHelp: false,
};

const GOOD: [args: string[], change: Record<string, unknown>][] = [
  [[], {}],
  [["--edges", "1", "--workers=64"], { edges: 1, workers: 64 }],
  [["--media-workers", "2"], { mediaWorkers: 2 }],
  [["--port", "0", "--console-port", "0"], { port: 0, consolePort: 0 }],
  [["--port", "65535"], { port: 65_535 }],
  [["--host", "0.0.0.0"], { host: "0.0.0.0" }],
  [["--data-dir", "d", "--run-dir", "/r"], {
    dataDir: "/home/ann/d",
    runDir: "/r",
  }],
  [["--models", "../m.json"], { models: "../m.json" }],
  [["--quiet"], { isQuiet: true }],
  [["-qh"], { isQuiet: true, isHelp: true }],
  [["--version"], { isVersion: true }],
];

Deno.test("parseOptions() reads the given options and fills in the defaults", () => {
  for (const [args, change] of GOOD) {
    assert.deepEqual(parseOptions(args, "/home/ann"), {
      ...DEFAULTS,
      ...change,
    });
  }
});

const BAD: [args: string[], mistakes: RegExp[]][] = [
  [["--workers", "0"], [/--workers must be .* 1 to 64, got "0"/]],
  [["--workers", "65"], [/got "65"/]],
  [["--media-workers", "0"], [/--media-workers must be .* 1 to 64, got "0"/]],
  [["--workers", "two"], [/got "two"/]],
  [["--workers", "1.5"], [/got "1.5"/]],
  [["--workers"], [/--workers/]],
  [["--port", "65536"], [/0 to 65535, got "65536"/]],
  [["--quiet=yes"], [/--quiet/]],
  [["--port", "8081"], [
    /--port and --console-port are both 8081: give two different/,
  ]],
  [["--wokers", "2"], [
    /Unknown option '--wokers', did you mean '--workers'\?\n/,
  ]],
  [["--zzz"], [/Unknown option '--zzz'\n/]],
  [["--workers", "-1"], [/'--workers' needs a value/]],
  [["--workers=-1"], [/1 to 64, got "-1"/]],
  [["start"], [/Unexpected argument 'start'/]],
  [["--edges", "x", "--port", "y"], [/--edges must be/, /--port must be/]],
];

Deno.test("parseOptions() reports all invalid values at once", () => {
  for (const [args, mistakes] of BAD) {
    assert.throws(() => parseOptions(args, "/home/ann"), (error) => {
      assert.ok(error instanceof UpError);
      assert.equal(error.exitCode, 2);
      for (const mistake of mistakes) assert.match(error.message, mistake);
      return true;
    });
  }
});
