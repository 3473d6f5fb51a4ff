/**
 * Runs test files so that other work on the machine fails none of them, and says which
 * tests failed for that reason. What the tests came to is read from JUnit reports; the
 * text that deno prints is for people.
 *
 * Deno loads and compiles all modules again for each file that it is given, because
 * each runs in an isolate of its own. Files of a group share one: what they import is
 * loaded once. That changes nothing else, for modules keep no state.
 */
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { makeTempDir } from "../support/process.ts";
import { moduleOfGroup, namingGroups } from "./group_names.ts";
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

/** Paths from the folder of the run. */
export type TestGroup = readonly string[];

/** Returns groups of at most `filesMax` files each, in the same order. */
export function inGroups(
  files: readonly string[],
  filesMax: number,
): TestGroup[] {
  return Array.from(
    { length: Math.ceil(files.length / filesMax) },
    (_, at) => files.slice(at * filesMax, (at + 1) * filesMax),
  );
}

/**
 * Runs the groups in parallel, the files of each one after the other, then the files
 * that failed once more, each alone. An error that no test caught ends its group, so
 * that all its files run again. A test is counted once, as its last run ended; one that
 * failed first and passed then is flaky.
 */
export async function runFiles(
  groups: readonly TestGroup[],
  run: TestRun,
): Promise<TestResult> {
  const files = groups.flat();
  // Without files, deno would run all that there are.
  if (files.length === 0) return { code: 0, totals: NO_TESTS };
  const first = await runGroups(groups, run);
  if (run.signal?.aborted) return { code: TIME_IS_UP, totals: NO_TESTS };
  const suspects = first.code === 0 ? [] : findFailed(files, first.cases);
  if (suspects.length === 0 || suspects.length > RUN_AGAIN_MAX) {
    return { code: first.code, totals: totalsOf(first, suspects) };
  }
  const counted = first.cases.filter(({ file }) =>
    !suspects.includes(plain(file))
  );
  let totals = totalsOf({ code: 0, cases: counted }, []);
  let code = 0;
  const failedAgain: string[] = [];
  const flaky: FlakyTest[] = [];
  for (const file of suspects) {
    const again = await runDeno([file], run);
    if (run.signal?.aborted) return { code: TIME_IS_UP, totals };
    const broken = again.code === 0 ? [] : findFailed([file], again.cases);
    const group = groups.find((group) => group.includes(file)) ?? [file];
    flaky.push(...findFlaky({ file, group }, first.cases, again.cases));
    totals = addTotals(totals, totalsOf(again, broken));
    code ||= again.code;
    if (again.code !== 0) failedAgain.push(file);
  }
  const names = flaky.filter(({ group = [] }) =>
    !group.some((file) => failedAgain.includes(file))
  ).map(({ name }) => name);
  return { code, totals: { ...totals, flaky: names } };
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
  const present = new Set(cases.map(({ file }) => plain(file)));
  const missing = files.filter((file) => !present.has(plain(file)));
  return [...new Set([...failed, ...missing.map(plain)])];
}

/** A test that failed first and passed when its file ran again, alone. */
interface FlakyTest {
  readonly name: string;
  /** Set if none of this group was loaded: a file that fails again is the reason. */
  readonly group?: TestGroup;
}

/** Tests that failed before and have passed now, or the file if none ran before. */
function findFlaky(
  { file, group }: { file: string; group: TestGroup },
  before: readonly TestCase[],
  now: readonly TestCase[],
): FlakyTest[] {
  const passed = now.filter(({ outcome }) => outcome === "passed");
  const failed = before.filter((test) =>
    isFailed(test) && plain(test.file) === file
  );
  const hasRun = before.some((test) => plain(test.file) === file);
  if (!hasRun) return passed.length === 0 ? [] : [{ name: file, group }];
  if (isEndedByOther({ file, group }, before)) return [];
  const names = new Set(passed.map(({ name }) => name));
  return failed.filter(({ name }) => names.has(name))
    .map(({ name }) => ({ name: `${file} > ${name}` }));
}

/** Whether tests of a file were only cancelled, after one that ran before it failed. */
function isEndedByOther(
  { file, group }: { file: string; group: TestGroup },
  cases: readonly TestCase[],
): boolean {
  const earlier = group.slice(0, group.indexOf(file));
  const isEnded = cases.every((test) =>
    plain(test.file) !== file || test.outcome !== "failed"
  );
  return isEnded &&
    cases.some((test) =>
      test.outcome === "cancelled" && earlier.includes(plain(test.file))
    );
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

async function runGroups(
  groups: readonly TestGroup[],
  run: TestRun,
): Promise<Report> {
  await using directory = await makeTempDir();
  const modules = groups.map(async (group, at) => {
    const [first = "", ...others] = group;
    if (others.length === 0) return first;
    const module = join(directory.path, moduleOfGroup(at));
    const imports = group.map((file) =>
      `import ${JSON.stringify(pathToFileURL(resolve(run.cwd, file)).href)};\n`
    );
    await Deno.writeTextFile(module, imports.join(""));
    return module;
  });
  const files = ["--parallel", ...await Promise.all(modules)];
  return await runDeno(files, run, groups);
}

/** Runs deno; its output names the files of these groups. */
async function runDeno(
  files: readonly string[],
  { args, cwd, env = {}, signal, output = "inherit" }: TestRun,
  groups: readonly TestGroup[] = [],
): Promise<Report> {
  await using directory = await makeTempDir();
  const report = join(directory.path, "junit.xml");
  const child = new Deno.Command(Deno.execPath(), {
    args: [...args, `--junit-path=${report}`, ...files],
    cwd,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
    stdout: output === "null" ? output : "piped",
    stderr: output,
  }).spawn();
  const printing = output === "null" ? undefined : child.stdout
    .pipeThrough(new TextDecoderStream())
    .pipeThrough(namingGroups(groups))
    .pipeThrough(new TextEncoderStream())
    .pipeTo(Deno.stdout.writable, { preventClose: true });
  const stop = () => child.kill();
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  const { code } = await child.status;
  // What an aborted run has started may hold its output open for longer.
  if (!signal?.aborted) await printing;
  signal?.removeEventListener("abort", stop);
  const xml = await Deno.readTextFile(report).catch(() => "");
  return { code, cases: parseJUnit(xml) };
}
