import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { writeAll } from "./connection.ts";
import { withAbsoluteFiles } from "./file_variables.ts";
import { USUAL_DIRS } from "./find_program.ts";
import { parseOptions, USAGE } from "./options.ts";
import { createOutput, type Output } from "./output.ts";
import type { ServiceScripts } from "./service_programs.ts";
import { listenForStop } from "./stop_signals.ts";
import { runUp } from "./up.ts";
import { EXIT, UpError } from "./up_error.ts";
import { within } from "./wait.ts";

/** What differs between the product and a test of the launcher. */
export interface CliDeps {
  root: string;
  scripts: ServiceScripts;
  /** Directories searched for servers beyond `PATH`. */
  usualDirs?: readonly string[];
}

/** How long the last lines may take to be read. */
const FLUSH_MS = 1_000;

/**
 * Runs the launcher as the process it is in: its arguments, environment, signals
 * and streams. Answers with the exit code.
 */
export async function runCli(deps: CliDeps): Promise<number> {
  // `deno task` runs in the root; it notes where the operator stood.
  const cwd = Deno.env.get("INIT_CWD") ?? Deno.cwd();
  const env = withAbsoluteFiles(Deno.env.toObject(), cwd);
  const out = createProcessOutput(Deno.args);
  try {
    const options = parseOptions(Deno.args, {
      root: deps.root,
      cwd,
      modelsFile: env.MODELS_FILE,
    });
    if (options === "help") {
      out.say(USAGE.trimEnd());
      return EXIT.ok;
    }
    return await runUp(options, {
      root: deps.root,
      execPath: Deno.execPath(),
      pid: Deno.pid,
      env,
      host: {
        dirs: [
          ...(env.PATH ?? "").split(":"),
          ...(deps.usualDirs ?? USUAL_DIRS),
        ],
        isRoot: Deno.uid() === 0,
        env,
      },
      scripts: deps.scripts,
      out,
      stop: listenForStop({
        addListener: Deno.addSignalListener,
        isHangUpIgnored: await isHangUpIgnored(),
        now: monotonicNow,
      }),
      now: monotonicNow,
      wallNow,
    });
  } catch (error) {
    out.warn(
      error instanceof UpError
        ? error.message
        : `Fault in the launcher, please report it: ${describeFault(error)}`,
    );
    return error instanceof UpError ? error.exitCode : EXIT.failed;
  } finally {
    await within(out.flush(), FLUSH_MS);
  }
}

/**
 * True under `nohup`. An ignored signal stays ignored in a new process, so a shell
 * that outlives its own hang-up tells. Must be asked before we listen for it.
 */
async function isHangUpIgnored(): Promise<boolean> {
  const { success } = await new Deno.Command("sh", {
    args: ["-c", "kill -s HUP $$; exit 0"],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).output();
  return success;
}

function createProcessOutput(args: readonly string[]): Output {
  const isQuiet = (args.includes("--quiet") || args.includes("-q")) &&
    !args.includes("--help");
  return createOutput({
    quiet: isQuiet,
    stdout: (bytes) => writeAll(Deno.stdout, bytes),
    stderr: (bytes) => writeAll(Deno.stderr, bytes),
  });
}

function describeFault(error: unknown): string {
  return error instanceof Error ? error.stack ?? error.message : String(error);
}
