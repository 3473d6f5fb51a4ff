// Promise: the command line of `up` is read as its help says.
import assert from "node:assert/strict";
import { parseOptions, ROOT } from "./options.ts";
import { UpError } from "./terminal.ts";

const DEFAULTS = {
  workers: 1,
  mediaWorkers: 1,
  edges: 1,
  port: 8080,
  consolePort: 8081,
  host: "127.0.0.1",
  dataDir: `${ROOT}/.data`,
  runDir: `${ROOT}/.run`,
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
    ["--workers 0", /'--workers <n>' .*'0' .* from 1 to 64\n/],
    ["--workers 65", /'65'/],
    ["--media-workers 1.5", /'1.5'/],
    ["--workers -1", /'-1'/],
    ["--port 65536", /from 0 to 65535\n/],
    ["--port 8081", /--port and --console-port are both 8081: give two/],
    ["--wokers 2", /'--wokers'\n\(Did you mean --workers\?\)\n/],
    ["start", /too many arguments/],
  ];
  for (const [args, message] of cases) {
    assert.throws(() => parseOptions(args.split(" "), "/"), (error) => {
      assert.ok(error instanceof UpError && error.exitCode === 2);
      assert.match(error.message, message);
      assert.match(error.message, /^error: .*\n.*See: npx -y deno task up --/s);
      return true;
    });
  }
});
