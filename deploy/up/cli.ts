import { monotonicNow } from "@gateway/shared/process/clock";
import { USUAL_DIRS } from "./install.ts";
import { parseOptions, USAGE } from "./options.ts";
import { createOutput } from "./output.ts";
import { type Scripts, withAbsoluteFiles } from "./service_programs.ts";
import { listenForStop, watchRunners } from "./stop.ts";
import { runUp } from "./up.ts";
import { EXIT, UpError } from "./up_error.ts";
import { within } from "./wait.ts";

/** What differs between the product and a test of the launcher. */
export interface CliDeps {
  root: string;
  scripts: Scripts;
  /** Directories searched for servers beyond `PATH`. */
  usualDirs?: readonly string[];
}

/** How long the last lines may take to be read. */
const FLUSH_MS = 1_000;

/**
 * Runs the launcher as the process it is in: its arguments, environment, signals
 * and streams. Answers with the exit code.
 */
export async function runCli(
  { root, scripts, usualDirs = USUAL_DIRS }: CliDeps,
): Promise<number> {
  // `deno task` runs in the root; it notes where the operator stood.
  const cwd = Deno.env.get("INIT_CWD") || Deno.cwd();
  const env = withAbsoluteFiles(Deno.env.toObject(), cwd);
  const isAsked = (...names: string[]) =>
    Deno.args.some((arg) => names.includes(arg));
  const isHelp = isAsked("--help", "-h");
  const out = createOutput(isAsked("--quiet", "-q") && !isHelp);
  try {
    if (isHelp) {
      out.say(USAGE.trimEnd());
      return EXIT.ok;
    }
    const modelsFile = env.MODELS_FILE;
    const options = parseOptions(Deno.args, { root, cwd, modelsFile });
    const stop = await listenForStop(monotonicNow);
    const endWatch = await watchRunners(Deno.pid, env, stop.stop);
    try {
      return await runUp(options, {
        root,
        execPath: Deno.execPath(),
        pid: Deno.pid,
        env,
        dirs: [...(env.PATH ?? "").split(":"), ...usualDirs],
        isRoot: Deno.uid() === 0,
        scripts,
        out,
        stop,
        now: monotonicNow,
      });
    } finally {
      endWatch();
    }
  } catch (error) {
    if (error instanceof UpError) {
      out.warn(error.message);
      return error.exitCode;
    }
    const fault = error instanceof Error ? error.stack : String(error);
    out.warn(`Fault in the launcher, please report it: ${fault}`);
    return EXIT.failed;
  } finally {
    await within(out.flush(), FLUSH_MS);
  }
}
