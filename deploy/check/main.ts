/** `gateway check` and `deno task check-config`: the command line of `check.ts`. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import { resolve } from "node:path";
import { versionLine } from "@gateway/shared/version";
import { check, EXIT } from "./check.ts";

const EXIT_USAGE = 2;

const HELP = `Usage: gateway check [options]

Says whether the list of models and the environment are right, before they count,
and names every mistake. Nothing is changed.

Options:
  --models <file>   list of models and backends (MODELS_FILE)
  --ask             send each model server one tiny request, and say what came back
  --without-keys    do not look for the keys of model servers, which only workers have
  --version         print the version
  --help            print this

Exit codes: 0 all is right, ${EXIT.unanswered} a server cannot be used, ${EXIT.wrong} a mistake, ${EXIT_USAGE} invalid command line.`;

/** Runs the command with these arguments and returns its exit code. */
async function run(args: readonly string[]): Promise<number> {
  const say = (line: string) => {
    Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
  };
  const refuse = (why: string) => {
    Deno.stderr.writeSync(
      new TextEncoder().encode(`${why}\n(--help lists the options)\n`),
    );
    return EXIT_USAGE;
  };
  const left = [...args];
  const flags = new Set<string>();
  let models: string | undefined;
  for (let word = left.shift(); word !== undefined; word = left.shift()) {
    const [name = "", value] = word.split(/=(.*)/s);
    if (name === "--models") {
      models = value ?? left.shift();
      if (!models) return refuse("--models needs the path of a file");
    } else if (/^--(ask|without-keys|help|version)$/.test(word)) {
      flags.add(word);
    } else return refuse(`Unknown argument: ${word}`);
  }
  if (flags.has("--help")) say(HELP);
  else if (flags.has("--version")) say(versionLine("gateway"));
  else {
    const environment = Deno.env.toObject();
    // `deno task` runs in the root and sets INIT_CWD to the operator's directory.
    const cwd = environment.INIT_CWD || Deno.cwd();
    return await check({
      env: models ? { ...environment, MODELS_FILE: models } : environment,
      readFile: (path) => readSettingsFile(resolve(cwd, path)),
      asks: flags.has("--ask"),
      hasKeys: !flags.has("--without-keys"),
      say,
    });
  }
  return EXIT.right;
}

if (import.meta.main) Deno.exit(await run(Deno.args));
