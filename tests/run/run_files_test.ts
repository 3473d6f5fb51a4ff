// Promise: a test file that fails once, while others run, fails no run, but its test is
// named as flaky; one that fails twice fails the run; each test is counted once.
import assert from "node:assert/strict";
import { join } from "node:path";
import { makeTempDir } from "../support/process.ts";
import { waitFor } from "../support/wait_for.ts";
import { inGroups, runFiles, TIME_IS_UP } from "./run_files.ts";
import { totalLines } from "./totals.ts";

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

/** What a run comes to. */
interface Outcome {
  passed: number;
  failed?: string[];
  flaky?: string[];
}

const FILES: { [file: string]: Outcome & { text: string } } = {
  "passes_test.ts": { text: "", passed: 1 },
  "without_tests_test.ts": { text: "Deno.test = () => {};", passed: 0 },
  "once_test.ts": {
    text: `Deno.test("once", async (t) => {
      await t.step("step", () => {
        if (isFirst) throw new Error("for once");
      });
    });`,
    passed: 2,
    flaky: ["once_test.ts > once"],
  },
  "thrown_once_test.ts": {
    text: `if (isFirst) throw new Error("no tests yet");`,
    passed: 1,
    flaky: ["thrown_once_test.ts"],
  },
  "cancelled_once_test.ts": {
    text: `Deno.test("left behind", () => {
      if (!isFirst) return;
      setTimeout(() => { throw new Error("late"); });
      return new Promise(() => setInterval(() => {}, 1_000));
    });
    Deno.test("after", () => {});`,
    passed: 3,
    flaky: [
      "cancelled_once_test.ts > left behind",
      "cancelled_once_test.ts > after",
    ],
  },
  "always_test.ts": {
    text: `Deno.test("fails", () => { throw new Error("always"); });`,
    passed: 1,
    failed: ["always_test.ts > fails"],
  },
  "thrown_always_test.ts": {
    text: `throw new Error("never any tests");`,
    passed: 0,
    failed: ["thrown_always_test.ts"],
  },
};

const ROWS = [
  {
    title: "a run passes if files fail once only, and names the flaky tests",
    files: Object.keys(FILES).filter((file) => !FILES[file]?.failed),
    code: 0,
  },
  {
    title: "a run fails if a file fails twice, and names the test",
    files: Object.keys(FILES),
    code: 1,
  },
];
for (const { title, files, code } of ROWS) {
  Deno.test(title, async () => {
    await using directory = await makeTempDir();
    const { path: cwd } = directory;
    for (const file of files) await writeTests(cwd, file);
    const groups = inGroups(files, 1);
    const result = await runFiles(groups, { args: ARGS, cwd, output: "null" });
    const rows = files.flatMap((file) => FILES[file] ?? []);
    assert.equal(result.code, code);
    assert.equal(
      result.totals.passed,
      rows.reduce((sum, { passed }) => sum + passed, 0),
    );
    for (const kind of ["failed", "flaky"] as const) {
      assert.deepEqual(
        result.totals[kind].toSorted(),
        rows.flatMap((row) => row[kind] ?? []).toSorted(),
      );
    }
  });
}

async function writeTests(cwd: string, file: string): Promise<void> {
  const { text = "" } = FILES[file] ?? {};
  // A file without tests has none but its own.
  const tests = text.startsWith("Deno.test =") ? text : PASSES + text;
  await Deno.writeTextFile(join(cwd, file), IS_FIRST + tests);
}

/** What a group of these files, and one that passes, comes to. */
const GROUPS: (Outcome & { title: string; file: string })[] = [
  {
    title: "a test that fails once",
    file: "once_test.ts",
    passed: 3,
    flaky: ["once_test.ts > once"],
  },
  {
    title: "an error that no test catches, once",
    file: "cancelled_once_test.ts",
    passed: 4,
    flaky: [
      "cancelled_once_test.ts > left behind",
      "cancelled_once_test.ts > after",
    ],
  },
  {
    title: "a file that cannot be loaded once",
    file: "thrown_once_test.ts",
    passed: 2,
    flaky: ["thrown_once_test.ts", "passes_test.ts"],
  },
  {
    title: "a file that can never be loaded",
    file: "thrown_always_test.ts",
    passed: 1,
    failed: ["thrown_always_test.ts"],
  },
];
for (const { title, file, passed, failed = [], flaky = [] } of GROUPS) {
  Deno.test(`the files of a group are judged each by itself: ${title}`, async () => {
    await using directory = await makeTempDir();
    const { path: cwd } = directory;
    const group = [file, "passes_test.ts"];
    for (const each of group) await writeTests(cwd, each);
    const run = { args: ARGS, cwd, output: "null" } as const;
    const { code, totals } = await runFiles([group], run);
    assert.equal(code === 0, failed.length === 0);
    assert.deepEqual(totals, { passed, failed, flaky });
  });
}

Deno.test("the files of a group load what they import once", async () => {
  await using directory = await makeTempDir();
  const { path: cwd } = directory;
  const loads = join(cwd, "loads.txt");
  await Deno.writeTextFile(
    join(cwd, "module.ts"),
    `Deno.writeTextFileSync(${JSON.stringify(loads)}, "x", { append: true });`,
  );
  const files = ["a_test.ts", "b_test.ts", "c_test.ts"];
  for (const file of files) {
    await Deno.writeTextFile(join(cwd, file), `import "./module.ts";${PASSES}`);
  }
  const run = { args: ARGS, cwd, output: "null" } as const;
  const { totals } = await runFiles(inGroups(files, 2), run);
  assert.equal(totals.passed, files.length);
  assert.equal(await Deno.readTextFile(loads), "xx");
});

Deno.test("a run that is aborted ends, whatever its files wait for", async () => {
  await using directory = await makeTempDir();
  const { path: cwd } = directory;
  const hangs =
    'Deno.test("hangs", () => new Promise(() => setInterval(() => {}, 1_000)));';
  await Deno.writeTextFile(join(cwd, "hangs_test.ts"), IS_FIRST + hangs);
  const aborted = new AbortController();
  const { signal } = aborted;
  const run = { args: ARGS, cwd, signal, output: "null" } as const;
  const result = runFiles([["hangs_test.ts"]], run);
  const hasStarted = () =>
    Deno.stat(join(cwd, "hangs_test.ts.ran")).catch(() => undefined);
  await waitFor(hasStarted, { what: "the file to run", timeoutMs: 30_000 });
  aborted.abort();
  assert.equal((await result).code, TIME_IS_UP);
});

Deno.test("totalLines() names failed and flaky tests, and ends with the counts", () => {
  const totals = { passed: 3, failed: ["a > b"], flaky: ["c > d", "e"] };
  assert.deepEqual(totalLines(totals), [
    "Failed: a > b",
    "Flaky: c > d",
    "Flaky: e",
    "3 passed, 1 failed",
  ]);
});
