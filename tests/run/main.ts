/**
 * Runs the tests: `deno task test` the usual ones, `deno task test:long` the long ones.
 * CONTRIBUTING.md says how the name of a file decides how it runs.
 *
 * A file that fails is run once more, alone: other work on the machine may have taken
 * what it needs. A test that passes then is named as flaky. `LONG_SECONDS_MAX` bounds
 * `test:long`, which names the parts that it left out. The last lines name the tests
 * that failed and the flaky ones; the very last is `N passed, N failed`. They are also
 * appended to the file that `TEST_TOTALS` names, once for each part that has ended.
 */
import { join, resolve } from "node:path";
import { makeTempDir, print } from "../support/process.ts";
import {
  readSources,
  SOURCE_FOLDERS,
} from "../support/repository/source_files.ts";
import {
  inGroups,
  readReport,
  runFiles,
  type TestGroup,
  type TestResult,
  TIME_IS_UP,
} from "./run_files.ts";
import { addTotals, NO_TESTS, type TestTotals, totalLines } from "./totals.ts";

const ROOT = resolve(import.meta.dirname ?? ".", "../..");
/** With the permissions that `deno.json` gives to tests. */
const DENO_TEST = ["test", "--no-check", "-P"];
/** In namespaces of their own. */
const IN_CLUSTER = [
  "run",
  "--allow-all",
  "tests/kubernetes/cluster/main.ts",
];
const INSTALL = [
  "run",
  "--allow-all",
  "tests/support/servers/install_servers.ts",
];
/**
 * Each sends as much as its process can take: beside another one, neither shows what a
 * process does that has the machine.
 */
const FILLS_MEMORY = /memory_long_test\.ts$/;
/**
 * Files that measure no time: most wait for a server as long as they compute. Three at
 * a time would use a core better, but on a busy machine more of them lose patience.
 */
const JOBS_PER_CORE = 2;
/**
 * Files that load their modules together. More would save little, and an error that no
 * test catches would end more of them.
 */
const GROUP_FILES_MAX = 40;
/** Fewer of those that cost much besides: a group must not be the last to end. */
const COSTLY_FILES_MAX = 8;
/** Started first, so that the run does not wait for them at the end. */
const SLOW = new RegExp([
  "key-admin/(browser|cli_test|domain/sign_in/oidc|web/every_route)",
  "limits/(limiter_pressure|nothing_left)",
  "tests/corpus/corpus_test",
  "tests/deploy/up_as_installed",
  "tests/e2e/(busy_edges|faults/bus|media/|one_gateway|changing_list|two_workers|upstream)",
  "tests/hostile/(costs|large_bodies)",
  "tests/observability",
  "tests/up/up_test",
].join("|"));
/** They run whole gateways, so that each costs some seconds. */
const COSTLY = /^tests\/(compat|deploy|e2e|limits|run|up)\//;
/** What files import that try less in the usual run. */
const AMOUNTS = "/support/amount.ts";
const SOAK_MINUTES = "0.5";
/** Exit code of the compose test if it cannot run. */
const CANNOT_RUN = 77;

/** A part of the long tests. */
interface Part {
  readonly name: string;
  /** It is left out if less time is left. */
  readonly secondsMin: number;
  run(signal: AbortSignal): Promise<TestResult>;
}

const USAGE = `Usage: deno task test [folders, files and options of deno test]
       deno task ok             format, lint, types, and the tests
       deno task test:long
       deno task test:foreign
       deno task test:kubernetes
       deno task test:soak [minutes]`;

/** Tasks that run nothing besides their own commands. */
const OTHER_TASKS: ReadonlySet<string> = new Set([
  "foreign",
  "kubernetes",
  "soak",
]);

/** What other tasks than `test` run before or instead of the tests. */
const COMMANDS: { [task: string]: readonly (readonly string[])[] } = {
  ok: [["fmt", "--check"], ["lint"], ["check", "."]],
  // What takes minutes to build comes last.
  foreign: [[
    ...DENO_TEST,
    "tests/foreign/official_sdks.ts",
    "tests/foreign/openid_provider.ts",
    "tests/foreign/log_shipper.ts",
    "tests/foreign/store_change.ts",
    "tests/foreign/compose_programs.ts",
    "tests/foreign/route_proxies.ts",
    "tests/foreign/command_lines.ts",
    "tests/foreign/frameworks.ts",
    "tests/foreign/model_servers.ts",
  ]],
  kubernetes: [
    [
      ...DENO_TEST,
      "tests/kubernetes/chart.ts",
      "tests/kubernetes/scaling.ts",
      "tests/kubernetes/store_charts.ts",
      "tests/kubernetes/release.ts",
    ],
    [...IN_CLUSTER, "tests/kubernetes/api_server.ts"],
    [...IN_CLUSTER, "tests/kubernetes/metrics_adapter.ts"],
    [...IN_CLUSTER, "tests/kubernetes/real_node.ts"],
    [...IN_CLUSTER, "tests/kubernetes/store_pods.ts"],
  ],
  soak: [["run", "--allow-run", "--allow-env", "tests/limits/soak.ts"]],
};

Deno.exit(await main(Deno.args));

async function main(args: readonly string[]): Promise<number> {
  if (args.includes("--help")) {
    print(USAGE);
    return 0;
  }
  const [task = "", ...rest] = args;
  for (const command of COMMANDS[task] ?? []) {
    const code = await run(Deno.execPath(), [...command, ...rest]);
    if (code !== 0) return code;
  }
  if (OTHER_TASKS.has(task)) return 0;
  const installed = await run(Deno.execPath(), INSTALL);
  if (installed !== 0) return installed;
  if (task === "long") return await testLong();
  return task === "" || task === "ok"
    ? await testAll()
    : await run(Deno.execPath(), [...DENO_TEST, ...args]);
}

async function testAll(): Promise<number> {
  const files = findTests();
  const timed = files.filter((file) => file.endsWith("_timed_test.ts"));
  const others = files.filter((file) => !/_(timed|long)_test\./.test(file));
  const first = await timedRun(() => testFiles(groupsOf(others)));
  const second = await timedRun(() =>
    testFiles(inGroups(timed, 1), { jobsPerCore: 1 })
  );
  print(`${first.seconds} s, and ${second.seconds} s for timed tests`);
  printTotals(addTotals(first.result.totals, second.result.totals));
  return first.result.code || second.result.code;
}

/** What a run came to, and how long it took. */
async function timedRun<Result>(
  run: () => Promise<Result>,
): Promise<{ result: Result; seconds: number }> {
  const startedAtMs = performance.now();
  const result = await run();
  const seconds = Math.round((performance.now() - startedAtMs) / 1_000);
  return { result, seconds };
}

async function testLong(): Promise<number> {
  const endsAtMs = performance.now() +
    1_000 * Number(Deno.env.get("LONG_SECONDS_MAX") ?? 3_600);
  const leftOut: string[] = [];
  let totals = NO_TESTS;
  let failure = 0;
  for (const part of longParts()) {
    const leftMs = endsAtMs - performance.now();
    const left = `${Math.round(leftMs / 1_000)} s were left`;
    if (leftMs < part.secondsMin * 1_000) {
      const needs = `it needs at least ${part.secondsMin} s`;
      leftOut.push(`${part.name}: ${left}, ${needs}`);
      continue;
    }
    print(`\n== ${part.name}`);
    const result = await part.run(AbortSignal.timeout(leftMs));
    totals = addTotals(totals, result.totals);
    if (result.code === CANNOT_RUN) {
      leftOut.push(`${part.name}: it cannot run here, see above`);
    } else if (result.code === TIME_IS_UP) {
      leftOut.push(`${part.name}: not done, ${left}`);
    } else failure ||= result.code;
  }
  for (const line of leftOut) print(`Left out: ${line}`);
  printTotals(totals);
  return failure;
}

function longParts(): Part[] {
  const files = findTests().filter((file) => file.endsWith("_long_test.ts"));
  const alone = files.filter((file) => FILLS_MEMORY.test(file));
  const others = files.filter((file) => !FILLS_MEMORY.test(file));
  return [
    {
      name: "the files *_long_test.ts",
      secondsMin: 90,
      run: (signal) => testFiles(inGroups(others, 1), { signal }),
    },
    {
      name: "the files *memory_long_test.ts, one at a time",
      secondsMin: 330,
      run: (signal) =>
        testFiles(inGroups(alone, 1), { signal, env: { DENO_JOBS: "1" } }),
    },
    {
      name: "the usual files with full amounts",
      secondsMin: 90,
      run: (signal) =>
        testFiles(inGroups(findTests(AMOUNTS), 1), {
          signal,
          jobsPerCore: 1,
          env: { TEST_AMOUNTS: "full" },
        }),
    },
    { name: "test:soak", secondsMin: 45, run: soak },
    // On a new machine, Compose is built first, which may take five minutes.
    { name: "test:compose", secondsMin: 600, run: testCompose },
  ];
}

async function testFiles(
  groups: readonly TestGroup[],
  { signal, jobsPerCore, env = {} }: {
    signal?: AbortSignal;
    jobsPerCore?: number;
    env?: { [name: string]: string };
  } = {},
): Promise<TestResult> {
  const run = {
    args: DENO_TEST,
    cwd: ROOT,
    env: { ...denoJobs(jobsPerCore), ...env },
    signal,
  };
  const result = await runFiles(groups, run);
  await recordTotals(result.totals);
  return result;
}

async function soak(signal: AbortSignal): Promise<TestResult> {
  const args = ["task", "test:soak", SOAK_MINUTES];
  return {
    code: await run(Deno.execPath(), args, { signal }),
    totals: NO_TESTS,
  };
}

async function testCompose(signal: AbortSignal): Promise<TestResult> {
  await using directory = await makeTempDir();
  const report = join(directory.path, "junit.xml");
  const env = { TEST_REPORT: report };
  const code = await run("deploy/compose_test/run.sh", [], { signal, env });
  const isDone = code !== CANNOT_RUN && code !== TIME_IS_UP;
  const totals = isDone ? await readReport(report, code) : NO_TESTS;
  await recordTotals(totals);
  return { code, totals };
}

function printTotals(totals: TestTotals): void {
  for (const line of totalLines(totals)) print(line);
}

/** Writes down a part at once, so that it counts even if the next one is killed. */
async function recordTotals(totals: TestTotals): Promise<void> {
  const file = Deno.env.get("TEST_TOTALS");
  if (file === undefined) return;
  const text = totalLines(totals).map((line) => `${line}\n`).join("");
  await Deno.writeTextFile(file, text, { append: true });
}

/**
 * Runs a program in the root, with this process's output. Returns its exit code, or
 * {@link TIME_IS_UP} if the signal ended it.
 */
async function run(
  program: string,
  args: readonly string[],
  { signal, env }: {
    signal?: AbortSignal;
    env?: { [name: string]: string };
  } = {},
): Promise<number> {
  const { code } = await new Deno.Command(program, {
    args: [...args],
    cwd: ROOT,
    env: { ...denoJobs(), ...env },
    stdin: "null",
    ...signal !== undefined && { signal },
  }).spawn().status;
  return signal?.aborted ? TIME_IS_UP : code;
}

function denoJobs(perCore = JOBS_PER_CORE): { DENO_JOBS: string } {
  const jobs = perCore * navigator.hardwareConcurrency;
  return { DENO_JOBS: Deno.env.get("DENO_JOBS") ?? String(jobs) };
}

/**
 * The test files of the repository that contain a text; the slow ones of a folder come
 * first.
 */
function findTests(contained = ""): string[] {
  return readSources(SOURCE_FOLDERS, /_test\.tsx?$/)
    .filter(({ text }) => text.includes(contained)).map(({ path }) => path)
    .sort().sort((a, b) => Number(SLOW.test(b)) - Number(SLOW.test(a)));
}

/**
 * The slow files, each by itself, then small groups of costly ones, then the others:
 * those of `tests` first, because they take longer than those of a single file.
 */
function groupsOf(files: readonly string[]): TestGroup[] {
  const slow = files.filter((file) => SLOW.test(file));
  const costly = files.filter((file) => COSTLY.test(file) && !SLOW.test(file));
  const others = files.filter((file) => !COSTLY.test(file) && !SLOW.test(file));
  return [
    ...inGroups(slow, 1),
    ...inGroups(costly, COSTLY_FILES_MAX),
    ...inGroups(others.toReversed(), GROUP_FILES_MAX),
  ];
}
