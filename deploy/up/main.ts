/**
 * `deno task up`: starts the whole gateway on this machine and stops it again.
 */
import { ConfigError } from "@gateway/shared/process/env";
import { parseOptions, ROOT } from "./options.ts";
import type { ProgramName } from "./plan.ts";
import { createOutput, EXIT, listenForStop, UpError } from "./terminal.ts";
import { runUp } from "./up.ts";

/** Runs the launcher in this process and returns the exit code. Tests pass their own entry files. */
export async function runCli(
  scriptOf: (name: ProgramName) => string,
): Promise<number> {
  // `deno task` runs in the root and sets INIT_CWD to the operator's directory.
  const cwd = Deno.env.get("INIT_CWD") || Deno.cwd();

  let out = createOutput(false);
  try {
    const options = parseOptions(Deno.args, cwd);
    if (typeof options === "string") {
      out.say(options);
      return EXIT.ok;
    }
    const { quiet = false, models } = options;
    out = createOutput(quiet);
    const env = {
      ...Deno.env.toObject(),
      ...models === undefined ? {} : { MODELS_FILE: models },
    };
    const stopping = await listenForStop();
    await runUp(options, { cwd, scriptOf, env, out, stopping });
    return EXIT.ok;
  } catch (error) {
    if (error instanceof UpError || error instanceof ConfigError) {
      out.warn(error.message);
      return error instanceof UpError ? error.exitCode : EXIT.config;
    }
    const fault = error instanceof Error ? error.stack : String(error);
    out.warn(`Fault in the launcher, please report it: ${fault}`);
    return EXIT.failed;
  }
}

if (import.meta.main) {
  Deno.exit(
    await runCli((name) =>
      name === "keys"
        ? `${ROOT}/services/key-admin/cli.ts`
        : `${ROOT}/services/${name}/main.ts`
    ),
  );
}
