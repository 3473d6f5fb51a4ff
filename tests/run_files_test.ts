// Promise: a test file that fails once, while others run, fails no run; one that
// fails twice does; the summaries add up to each test counted once.
import assert from "node:assert/strict";
import { join } from "node:path";
import { runFiles, TIME_IS_UP } from "./run_files.ts";
import { makeTempDir } from "./support/process.ts";

const ARGS = [
  "test",
  "--no-check",
  "--no-config",
  "--allow-read",
  "--allow-write",
];
const PASSES = `Deno.test("passes", async (t) => {
  await t.step("step", () => {});
});\n`;
/** Holds once for each file. */
const IS_FIRST = `let isFirst = true;
try {
  Deno.mkdirSync(import.meta.filename + ".ran");
} catch {
  isFirst = false;
}\n`;
/** What files say, and whether they fail the run. */
const FILES: { [name: string]: readonly [text: string, fails: boolean] } = {
  "passes_test.ts": ["", false],
  "once_test.ts": [
    `Deno.test("once", async (t) => {
      await t.step("step", () => {
        if (isFirst) throw new Error("for once");
      });
    });`,
    false,
  ],
  "thrown_once_test.ts": [
    `if (isFirst) throw new Error("no tests yet");`,
    false,
  ],
  "cancelled_once_test.ts": [
    `Deno.test("left behind", () => {
      if (!isFirst) return;
      setTimeout(() => { throw new Error("late"); });
      return new Promise(() => setInterval(() => {}, 1_000));
    });
    Deno.test("after", () => {});`,
    false,
  ],
  "always_test.ts": [
    `Deno.test("fails", () => { throw new Error("always"); });`,
    true,
  ],
};

/** Runs the files and adds up the summaries as `.ci/run` does. */
async function runAll(names: readonly string[]) {
  await using directory = await makeTempDir();
  const { path: cwd } = directory;
  for (const name of names) {
    const text = IS_FIRST + PASSES + FILES[name]?.[0];
    await Deno.writeTextFile(join(cwd, name), text);
  }
  const lines: string[] = [];
  const write = (line: string) => lines.push(line);
  const code = await runFiles(names, { args: ARGS, cwd, write });
  const sum = (word: string) => {
    const form = new RegExp(`^(?:ok|FAILED) \\|.* (\\d+) ${word}`);
    return lines.reduce((n, line) => n + Number(form.exec(line)?.[1] ?? 0), 0);
  };
  return { code, passed: sum("passed"), failed: sum("failed"), lines };
}

const ROWS = [
  ["once", Object.keys(FILES).filter((name) => !FILES[name]?.[1]), 7, 0],
  ["twice", Object.keys(FILES), 8, 1],
] as const;
for (const [what, names, passed, failed] of ROWS) {
  Deno.test(`a run with files that fail ${what}: ${passed} passed, ${failed} failed`, async () => {
    const { lines, ...run } = await runAll(names);
    const output = lines.join("\n");
    assert.deepEqual(run, { code: failed, passed, failed }, output);
    assert.match(output, /first run \| error: Error: for once/);
  });
}

Deno.test("a run that is aborted ends, whatever its files wait for", async () => {
  await using directory = await makeTempDir();
  const { path: cwd } = directory;
  const hangs =
    'Deno.test("hangs", () => new Promise(() => setInterval(() => {}, 1_000)));';
  await Deno.writeTextFile(join(cwd, "hangs_test.ts"), PASSES + hangs);
  const aborted = new AbortController();
  const code = await runFiles(["hangs_test.ts"], {
    args: ARGS,
    cwd,
    signal: aborted.signal,
    write: () => aborted.abort(),
  });
  assert.equal(code, TIME_IS_UP);
});
