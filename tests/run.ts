// Runs the tests: `deno task test` the usual ones, `deno task test:long` the long ones.
// CONTRIBUTING.md says how the name of a file decides how it runs.
//
// A file that fails is run once more, alone: other work on the machine may have
// taken what it needs. The lines about its first failure begin with `first run | `.
// `LONG_SECONDS_MAX` bounds `test:long`; its last lines name the parts left out.
import { resolve } from "node:path";
import { runFiles, TIME_IS_UP } from "./run_files.ts";
import { print } from "./support/process.ts";
import { readSources, SOURCE_FOLDERS } from "./support/source_files.ts";

const ROOT = resolve(import.meta.dirname ?? ".", "..");
const DENO_TEST = [
  "test",
  "--no-check",
  "--allow-net",
  "--allow-env",
  "--allow-read",
  "--allow-write",
  "--allow-run",
  "--allow-sys",
  "--allow-ffi",
];
const INSTALL = ["run", "--allow-all", "tests/support/install_servers.ts"];
/** Of files that measure no time: most wait for a server as long as they compute. */
const JOBS_PER_CORE = 2;
/**
 * Started first in their folders, so that the run does not wait for them at the end.
 */
const SLOW =
  /e2e\/(faults_process|videos_faults|faults_bus)|cli_test|limiter_pressure/;
const SOAK_MINUTES = "0.5";
/** Exit code of the compose test if it cannot run. */
const CANNOT_RUN = 77;

/** Of the long tests; it is left out if less than its `secondsMin` are left. */
type Part = (signal: AbortSignal) => Promise<number>;

const USAGE = `Usage: deno task test [folders, files and options of deno test]
       deno task ok             format, lint, types, and the tests
       deno task test:long
       deno task test:foreign
       deno task test:soak [minutes]`;

/** What other tasks than `test` run before or instead of the tests. */
const COMMANDS: { [task: string]: readonly (readonly string[])[] } = {
  ok: [["fmt", "--check"], ["lint"], ["check", "."]],
  foreign: [[...DENO_TEST, "tests/foreign/model_servers.ts"]],
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
  if (task === "foreign" || task === "soak") return 0;
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
  const startedAtMs = performance.now();
  const failure = await test(others);
  const timedAtMs = performance.now();
  const timedFailure = await test(timed, { jobsPerCore: 1 });
  const lengths = [timedAtMs - startedAtMs, performance.now() - timedAtMs];
  const [ofOthers, ofTimed] = lengths.map((ms) => Math.round(ms / 1_000));
  print(`${ofOthers} s, and ${ofTimed} s for timed tests`);
  return failure || timedFailure;
}

function test(
  files: readonly string[],
  { signal, jobsPerCore }: { signal?: AbortSignal; jobsPerCore?: number } = {},
): Promise<number> {
  const env = denoJobs(jobsPerCore);
  return runFiles(files, {
    args: DENO_TEST,
    cwd: ROOT,
    env,
    signal,
    write: print,
  });
}

async function testLong(): Promise<number> {
  const files = findTests().filter((file) => file.endsWith("_long_test.ts"));
  const soak = ["task", "test:soak", SOAK_MINUTES];
  const compose = "deploy/compose_test/run.sh";
  const parts: [name: string, secondsMin: number, run: Part][] = [
    ["the files *_long_test.ts", 90, (signal) => test(files, { signal })],
    ["test:soak", 45, (signal) => run(Deno.execPath(), soak, signal)],
    ["test:compose", 240, (signal) => run(compose, [], signal)],
  ];
  const endsAtMs = performance.now() +
    1_000 * Number(Deno.env.get("LONG_SECONDS_MAX") ?? 3_600);
  const leftOut: string[] = [];
  let failure = 0;
  for (const [name, secondsMin, run] of parts) {
    const leftMs = endsAtMs - performance.now();
    const left = `${Math.round(leftMs / 1_000)} s were left`;
    if (leftMs < secondsMin * 1_000) {
      leftOut.push(`${name}: ${left}, it needs at least ${secondsMin} s`);
      continue;
    }
    print(`\n== ${name}`);
    const code = await run(AbortSignal.timeout(leftMs));
    if (code === CANNOT_RUN) {
      leftOut.push(`${name}: it cannot run here, see above`);
    } else if (code === TIME_IS_UP) leftOut.push(`${name}: not done, ${left}`);
    else failure ||= code;
  }
  for (const line of leftOut) print(`Left out: ${line}`);
  return failure;
}

/** Runs a program in the root, with this process's output. Returns its exit code. */
async function run(
  program: string,
  args: readonly string[],
  signal?: AbortSignal,
): Promise<number> {
  const { code } = await new Deno.Command(program, {
    args: [...args],
    cwd: ROOT,
    env: denoJobs(),
    stdin: "null",
    ...(signal === undefined ? {} : { signal }),
  }).spawn().status;
  return signal?.aborted ? TIME_IS_UP : code;
}

function denoJobs(perCore = JOBS_PER_CORE) {
  const jobs = perCore * navigator.hardwareConcurrency;
  return { DENO_JOBS: Deno.env.get("DENO_JOBS") ?? String(jobs) };
}

function findTests(): string[] {
  return readSources(SOURCE_FOLDERS, /_test\.tsx?$/).map(({ path }) => path)
    .sort().sort((a, b) => Number(SLOW.test(b)) - Number(SLOW.test(a)));
}
