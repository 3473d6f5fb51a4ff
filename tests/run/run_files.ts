/**
 * Runs test files so that other work on the machine fails none of them, and says which
 * tests failed for that reason. What the tests came to is read from JUnit reports; the
 * text that deno prints is for people.
 */
import { join } from "node:path";
import { makeTempDir } from "../support/process.ts";
import { parseJUnit, type TestCase } from "./junit.ts";
import { addTotals, NO_TESTS, type TestTotals } from "./totals.ts";

/** The exit code of a run that was aborted. */
export const TIME_IS_UP = -1;
/** If more files fail, the machine is not the reason. */
const RUN_AGAIN_MAX = 10;
/** Where an error is reported that no test caught and no report names. */
const OUTSIDE = "an error outside of the tests, see above";

/** How deno runs test files. */
export interface TestRun {
  /** The arguments of deno before the files. */
  args: readonly string[];
  cwd: string;
  env?: { [name: string]: string };
  /** Ends the run. */
  signal?: AbortSignal | undefined;
  /** Where the output of deno goes; by default to that of this process. */
  output?: "inherit" | "null";
}

/** What a run came to, and the exit code of deno or {@link TIME_IS_UP}. */
export interface TestResult {
  readonly code: number;
  readonly totals: TestTotals;
}

/** One run of deno, and the tests in its report. */
interface Report {
  readonly code: number;
  readonly cases: readonly TestCase[];
}

/**
 * Runs the files in parallel, then those that failed once more, each alone. A test is
 * counted once, as its last run ended; one that failed first and passed then is flaky.
 */
export async function runFiles(
  files: readonly string[],
  run: TestRun,
): Promise<TestResult> {
  // Without files, deno would run all that there are.
  if (files.length === 0) return { code: 0, totals: NO_TESTS };
  const first = await runDeno(["--parallel", ...files], run);
  if (run.signal?.aborted) return { code: TIME_IS_UP, totals: NO_TESTS };
  const suspects = first.code === 0 ? [] : findFailed(files, first.cases);
  if (suspects.length === 0 || suspects.length > RUN_AGAIN_MAX) {
    return { code: first.code, totals: totalsOf(first, suspects) };
  }
  const kept = first.cases.filter(({ file }) =>
    !suspects.includes(plain(file))
  );
  let totals = totalsOf({ code: 0, cases: kept }, []);
  let code = 0;
  for (const file of suspects) {
    const again = await runDeno([file], run);
    if (run.signal?.aborted) return { code: TIME_IS_UP, totals };
    const broken = again.code === 0 ? [] : findFailed([file], again.cases);
    const before = first.cases.filter((test) => plain(test.file) === file);
    const flaky = findFlaky(file, before, again.cases);
    totals = addTotals(totals, { ...totalsOf(again, broken), flaky });
    code ||= again.code;
  }
  return { code, totals };
}

/** Reads the report of a run that another program started. */
export async function readReport(
  path: string,
  code: number,
): Promise<TestTotals> {
  const xml = await Deno.readTextFile(path).catch(() => "");
  return totalsOf({ code, cases: parseJUnit(xml) }, []);
}

/** Files with a failed test, and those whose tests never ran. */
function findFailed(files: readonly string[], cases: readonly TestCase[]) {
  const failed = cases.filter(isFailed).map(({ file }) => plain(file));
  const seen = new Set(cases.map(({ file }) => plain(file)));
  const missing = files.filter((file) => !seen.has(plain(file)));
  return [...new Set([...failed, ...missing.map(plain)])];
}

/** Tests that failed before and have passed now, or the file if none ran before. */
function findFlaky(
  file: string,
  before: readonly TestCase[],
  now: readonly TestCase[],
): string[] {
  const passed = now.filter(({ outcome }) => outcome === "passed");
  if (before.length === 0) return passed.length === 0 ? [] : [file];
  const names = new Set(passed.map(({ name }) => name));
  return before.filter((test) => isFailed(test) && names.has(test.name))
    .map(({ name }) => `${file} > ${name}`);
}

/** Counts the tests of a report, and as one failure each file without any. */
function totalsOf(
  { code, cases }: Report,
  failedFiles: readonly string[],
): TestTotals {
  const tests = cases.filter(isFailed).map(({ file, name }) =>
    `${plain(file)} > ${name}`
  );
  const silent = failedFiles.filter((file) =>
    !cases.some((test) => plain(test.file) === file)
  );
  const failed = [...tests, ...silent];
  if (code !== 0 && failed.length === 0) failed.push(OUTSIDE);
  const passed = cases.filter(({ outcome }) => outcome === "passed").length;
  return { passed, failed, flaky: [] };
}

function isFailed({ outcome }: TestCase): boolean {
  return outcome === "failed" || outcome === "cancelled";
}

/** The path of a file as `findTests()` writes it: reports begin it with `./`. */
function plain(file: string): string {
  return file.replace(/^\.\//, "");
}

async function runDeno(
  files: readonly string[],
  { args, cwd, env = {}, signal, output = "inherit" }: TestRun,
): Promise<Report> {
  await using directory = await makeTempDir();
  const report = join(directory.path, "junit.xml");
  const child = new Deno.Command(Deno.execPath(), {
    args: [...args, `--junit-path=${report}`, ...files],
    cwd,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
    stdout: output,
    stderr: output,
  }).spawn();
  const stop = () => child.kill();
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  const { code } = await child.status;
  signal?.removeEventListener("abort", stop);
  const xml = await Deno.readTextFile(report).catch(() => "");
  return { code, cases: parseJUnit(xml) };
}
