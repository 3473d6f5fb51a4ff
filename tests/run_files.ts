/** Runs test files so that other work on the machine fails none of them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** What {@link runFiles} returns when it was aborted. */
export const TIME_IS_UP = -1;
/** If more files fail, the machine is not the reason. */
const RUN_AGAIN_MAX = 10;

/** Lines of `deno test --parallel`; a step has one more " ... " than a test. */
const PASSED = /^\.\/(\S+) => (?!.* \.\.\. .* \.\.\. ).* \.\.\. ok \(/;
const FAILED = new RegExp([
  String.raw`^\./(\S+) => .* \.\.\. (?:FAILED|cancelled) \(`,
  String.raw`^Uncaught error from \./(\S+) FAILED`,
].join("|"));
const SUMMARY = /^FAILED \| (\d+) passed/;

export interface TestRun {
  /** The arguments of deno before the files. */
  args: readonly string[];
  cwd: string;
  env?: { [name: string]: string };
  signal?: AbortSignal | undefined;
  write: (line: string) => void;
}

/**
 * Runs the files in parallel, then those that failed once more, each alone, and
 * returns the exit code. The first run's lines about failures are marked, so that
 * a sum of all lines like `ok | 3 passed | 0 failed (1s)` counts each test once.
 */
export async function runFiles(
  files: readonly string[],
  run: TestRun,
): Promise<number> {
  const { write, signal } = run;
  const passed: string[] = [];
  const failed = new Set<string>();
  let isReport = false;
  let summary = "";
  const code = await runDeno(["--parallel", ...files], run, (line) => {
    const [, file] = PASSED.exec(line) ?? [];
    if (file !== undefined) passed.push(file);
    const failure = FAILED.exec(line);
    if (failure) failed.add(failure[1] ?? failure[2] ?? "");
    isReport ||= line === " ERRORS ";
    if (SUMMARY.test(line)) summary = line;
    write(failure || isReport ? `first run | ${line}` : line);
  });
  if (signal?.aborted) return TIME_IS_UP;
  if (code === 0 || summary === "") return code;
  if (failed.size === 0 || failed.size > RUN_AGAIN_MAX) {
    write(summary);
    return code;
  }
  const [, total] = SUMMARY.exec(summary) ?? [];
  const kept = Number(total) - passed.filter((file) => failed.has(file)).length;
  if (kept > 0) write(`ok | ${kept} passed | 0 failed`);
  let failure = 0;
  for (const file of failed) {
    write(`\n${file} failed and is run again`);
    failure = await runDeno([file], run, write) || failure;
  }
  return failure;
}

/** Passes on each line of its output in turn. */
async function runDeno(
  files: readonly string[],
  { args, cwd, env, signal }: TestRun,
  write: (line: string) => void,
): Promise<number> {
  const child = spawn(Deno.execPath(), [...args, ...files], {
    cwd,
    env: { ...Deno.env.toObject(), ...env, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout });
  const stop = () => {
    child.kill();
    // A server that the files started may still hold the other end of the pipe.
    lines.close();
    child.stdout.destroy();
  };
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  const exited = once(child, "exit");
  for await (const line of lines) write(line);
  const [code] = await exited;
  signal?.removeEventListener("abort", stop);
  return typeof code === "number" ? code : 1;
}
