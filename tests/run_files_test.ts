// Promise: a test file that fails once, while others run, fails no run; one that
// fails twice does; the summaries add up to each test counted once.
import assert from "node:assert/strict";
import { join } from "node:path";
import { runFiles, TIME_IS_UP } from "./run_files.ts";

const ARGS = [
  ...["test", "--no-check", "--no-config", "--allow-read", "--allow-write"],
];
const PASSES = `Deno.test("passes", async (t) => {
  await t.step("step", () => {});
});\n`;
const IS_FIRST = `function isFirst(): boolean {
  try {
    Deno.mkdirSync(import.meta.filename + ".ran");
    return true;
  } catch {
    return false;
  }
}\n`;
/** Files by name: what they say, and whether they fail the run. */
const FILES: { [name: string]: readonly [text: string, fails: boolean] } = {
  "passes_test.ts": [PASSES, false],
  "once_test.ts": [
    `${IS_FIRST}${PASSES}Deno.test("once", async (t) => {
      await t.step("step", () => {
        if (isFirst()) throw new Error("for once");
      });
    });`,
    false,
  ],
  "thrown_once_test.ts": [
    `${IS_FIRST}${PASSES}if (isFirst()) throw new Error("no tests yet");`,
    false,
  ],
  "cancelled_once_test.ts": [
    `${IS_FIRST}${PASSES}Deno.test("left behind", () => {
      if (!isFirst()) return;
      setTimeout(() => { throw new Error("late"); });
      return new Promise(() => setInterval(() => {}, 1_000));
    });
    Deno.test("after", () => {});`,
    false,
  ],
  "always_test.ts": [
    `${PASSES}Deno.test("fails", () => { throw new Error("always"); });`,
    true,
  ],
};

/** Runs the files and adds up the summaries as `.ci/run` does. */
async function runAll(names: readonly string[]) {
  const cwd = await Deno.makeTempDir();
  try {
    for (const name of names) {
      await Deno.writeTextFile(join(cwd, name), FILES[name]?.[0] ?? "");
    }
    const lines: string[] = [];
    const code = await runFiles(names, {
      ...{ args: ARGS, cwd },
      write: (line) => Promise.resolve(void lines.push(line)),
    });
    const sum = (word: string) =>
      lines.reduce((total, line) => {
        const found = new RegExp(`^(?:ok|FAILED) \\|.* (\\d+) ${word}`).exec(
          line,
        );
        return total + Number(found?.[1] ?? 0);
      }, 0);
    return { code, passed: sum("passed"), failed: sum("failed"), lines };
  } finally {
    await Deno.remove(cwd, { recursive: true });
  }
}

for (
  const [what, isIn, passed, failed] of [
    ["files that pass", (name: string) => name === "passes_test.ts", 1, 0],
    ["files that fail once", (name: string) => !FILES[name]?.[1], 7, 0],
    ["a file that fails twice", () => true, 8, 1],
  ] as const
) {
  Deno.test(`a run with ${what}: ${passed} passed, ${failed} failed`, async () => {
    const { lines, ...run } = await runAll(Object.keys(FILES).filter(isIn));
    const output = lines.join("\n");
    assert.deepEqual(run, { code: failed, passed, failed }, output);
    assert.equal(
      output.includes("first run | error: Error: for once"),
      isIn("once_test.ts"),
    );
  });
}

Deno.test("a run that is aborted ends, whatever its files wait for", async () => {
  const cwd = await Deno.makeTempDir();
  try {
    const hangs =
      'Deno.test("hangs", () => new Promise(() => setInterval(() => {}, 1_000)));';
    await Deno.writeTextFile(join(cwd, "hangs_test.ts"), PASSES + hangs);
    const aborted = new AbortController();
    const code = await runFiles(["hangs_test.ts"], {
      ...{ args: ARGS, cwd, signal: aborted.signal },
      write: () => Promise.resolve(aborted.abort()),
    });
    assert.equal(code, TIME_IS_UP);
  } finally {
    await Deno.remove(cwd, { recursive: true });
  }
});
