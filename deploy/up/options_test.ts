import assert from "node:assert/strict";
import { parseOptions, ROOT } from "./options.ts";
import { UpError } from "./terminal.ts";

const DEFAULTS = {
  ...{ workers: 1, mediaWorkers: 1, edges: 1, port: 8080, consolePort: 8081 },
  ...{ host: "127.0.0.1", dataDir: `${ROOT}/.data`, runDir: `${ROOT}/.run` },
};

Deno.test("parseOptions() reads the given options and fills in the defaults", () => {
  const cases: [args: string, change: Record<string, unknown>][] = [
    ["", {}],
    ["--edges 1 --workers=64", { edges: 1, workers: 64 }],
    ["--media-workers 2", { mediaWorkers: 2 }],
    ["--port 0 --console-port 0", { port: 0, consolePort: 0 }],
    ["--port 65535", { port: 65_535 }],
    ["--host 0.0.0.0", { host: "0.0.0.0" }],
    ["--data-dir d --run-dir /r", { dataDir: "/home/ann/d", runDir: "/r" }],
    ["--models ../m.json", { models: "../m.json" }],
    ["-q", { quiet: true }],
  ];
  for (const [args, change] of cases) {
    const words = args.split(" ").filter(Boolean);
    const options = parseOptions(words, "/home/ann");
    assert.deepEqual(options, { ...DEFAULTS, ...change });
  }
});

Deno.test("parseOptions() says what is wrong", () => {
  const cases: [args: string, mistake: RegExp][] = [
    ["--workers 0", /^--workers must be .* from 1 to 64, got "0"\n/],
    ["--workers 65", /got "65"/],
    ["--media-workers 1.5", /^--media-workers must be .*, got "1.5"/],
    ["--workers", /^--workers needs a value\n/],
    ["--workers -1", /^--workers must be .*, got "-1"/],
    ["--port 65536", /^--port must be .* from 0 to 65535, got "65536"/],
    ["--port 8081", /^--port and --console-port are both 8081: give two/],
    ["--wokers 2", /^Unknown option '--wokers', did you mean '--workers'\?\n/],
    ["--zzz", /^Unknown option '--zzz'\n/],
    ["start", /^Unexpected argument 'start'\n/],
  ];
  for (const [args, message] of cases) {
    assert.throws(() => parseOptions(args.split(" "), "/"), (error) => {
      assert.ok(error instanceof UpError);
      assert.equal(error.exitCode, 2);
      assert.match(error.message, message);
      assert.match(error.message, /See: npx -y deno task up --help/);
      return true;
    });
  }
});
