import assert from "node:assert/strict";
import { parseOptions, USAGE } from "./options.ts";
import { UpError } from "./up_error.ts";

const BASES = { root: "/repo", cwd: "/home/ann" };

const DEFAULTS = {
  workers: 1,
  edges: 1,
  host: "127.0.0.1",
  port: 8080,
  consolePort: 8081,
  dataDir: "/repo/.data",
  runDir: "/repo/.run",
  quiet: false,
};

const GOOD: [args: string[], change: Record<string, unknown>][] = [
  [[], {}],
  [["--workers", "1"], { workers: 1 }],
  [["--workers=64"], { workers: 64 }],
  [["--edges", "2", "--workers", "3"], { edges: 2, workers: 3 }],
  [["--port", "0", "--console-port", "0"], { port: 0, consolePort: 0 }],
  [["--port", "65535"], { port: 65_535 }],
  [["--host", "0.0.0.0"], { host: "0.0.0.0" }],
  [["--data-dir", "d", "--run-dir", "/r"], {
    dataDir: "/home/ann/d",
    runDir: "/r",
  }],
  [["--models", "../m.json"], { modelsFile: "/home/m.json" }],
  [["--quiet"], { quiet: true }],
  [["-q"], { quiet: true }],
];

Deno.test("parseOptions() reads what is there and fills in the rest", async (t) => {
  for (const [args, change] of GOOD) {
    await t.step(args.join(" "), () => {
      assert.deepEqual(parseOptions(args, BASES), { ...DEFAULTS, ...change });
    });
  }
});

const BAD: [args: string[], mistakes: RegExp[]][] = [
  [["--workers", "0"], [/--workers must be .* 1 to 64, got "0"/]],
  [["--workers", "65"], [/got "65"/]],
  [["--workers", "two"], [/got "two"/]],
  [["--workers", "1.5"], [/got "1.5"/]],
  [["--workers", "-1"], [/got "-1"/]],
  [["--workers"], [/--workers needs a value/]],
  [["--workers", "--edges", "2"], [/--workers must be .* got "--edges"/]],
  [["--port", "65536"], [/0 to 65535, got "65536"/]],
  [["--port="], [/--port needs a value/]],
  [["--data-dir="], [/--data-dir needs a value/]],
  [["--quiet=yes"], [/--quiet takes no value/]],
  [["--port", "1", "--port", "2"], [/--port is given twice/]],
  [["--port", "8081"], [/--port and --console-port are both 8081/]],
  [["--wokers", "2"], [/Unknown option "--wokers"/]],
  [["--console", "2"], [/Unknown option "--console"/]],
  [["--frobnicate"], [/Unknown option "--frobnicate"\n/]],
  [["start"], [/Unexpected word "start"/]],
  [["--edges", "x", "--bogus", "--port", "y"], [
    /--edges must be/,
    /"--bogus"/,
    /--port must be/,
  ]],
];

Deno.test("parseOptions() takes MODELS_FILE where --models is not given", () => {
  const bases = { ...BASES, modelsFile: "m.json" };
  const read = (args: string[]) => {
    const options = parseOptions(args, bases);
    return options === "help" ? undefined : options.modelsFile;
  };
  assert.equal(read([]), "/home/ann/m.json");
  assert.equal(read(["--models", "/x.json"]), "/x.json");
});

Deno.test("parseOptions() names every mistake at once", async (t) => {
  for (const [args, mistakes] of BAD) {
    await t.step(args.join(" "), () => {
      assert.throws(() => parseOptions(args, BASES), (error) => {
        assert.ok(error instanceof UpError);
        assert.equal(error.exitCode, 2);
        for (const mistake of mistakes) assert.match(error.message, mistake);
        return true;
      });
    });
  }
});

Deno.test("parseOptions() answers with help before it looks at mistakes", () => {
  assert.equal(parseOptions(["--bogus", "--help"], BASES), "help");
  assert.equal(parseOptions(["-h"], BASES), "help");
  for (const option of ["--workers", "--console-port", "--models", "--quiet"]) {
    assert.ok(USAGE.includes(option));
  }
});
