/** The command line of `deno task bench` and `deno task bench:check`. */
import { parseArgs } from "node:util";
import { print } from "../tests/support/process.ts";

const USAGE = `Usage: deno task bench [options]
  This gateway beside others, with the same model server behind all.

Usage: deno task bench:check REF [options]
  This checkout beside a commit; fails when it costs over 10 % more CPU.

  --quick            every table in about six minutes, with more noise
  --seconds N        length of a round of whole answers (4; quick 1.5)
  --rounds N         rounds of each kind, in turn (3; check 2; budgets 9; quick 1)
  --lanes            only the forwarded endpoints, beside chat
  --limits           only models whose servers have limits, beside one without
  --kept             only answers that are kept, beside those that are not
  --budgets          only keys with budgets, beside one without; more rounds
  --streams A,B,C    paced streams at a time (50,200,500,1000; quick 50,500)
  --beside NAME,...  only these of the others, or none
  --rivals FILE      the list of the others (bench/rivals.json)
  --json FILE        write the figures of each round there
  --help, -h         print this
`;

/** What {@link USAGE} lists, with the defaults of the command. */
export interface Options {
  /** The commit to compare with. */
  ref: string | undefined;
  quick: boolean;
  lanes: boolean;
  limits: boolean;
  kept: boolean;
  budgets: boolean;
  help: boolean;
  seconds: number;
  rounds: number;
  streams: number[];
  /** Names of the others; undefined: all. */
  beside: string[] | undefined;
  /** Path of the list of the others. */
  rivals: string;
  /** Path of the file for the figures. */
  json: string | undefined;
  /** Aborted by Ctrl-C. */
  stopping: AbortSignal;
}

/**
 * Runs a command with the options of its command line, or prints help. Ctrl-C ends it
 * after the round that is running, so that everything it started is ended.
 */
export async function runCommand(
  main: (options: Options) => Promise<void>,
): Promise<void> {
  const options = read(Deno.args);
  if (options.help) return print(USAGE);
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => stop.abort(new Error("stopped")));
  }
  try {
    await main({ ...options, stopping: stop.signal });
  } catch (error) {
    print(stop.signal.aborted ? "stopped" : `${error}`);
    Deno.exitCode = 2;
  }
  Deno.exit();
}

function read(args: string[]): Options {
  const text = { type: "string" } as const;
  const flag = { type: "boolean", default: false } as const;
  const { values, positionals: [ref] } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      quick: flag,
      lanes: flag,
      limits: flag,
      kept: flag,
      budgets: flag,
      help: { ...flag, short: "h" },
      seconds: text,
      rounds: text,
      streams: text,
      beside: text,
      rivals: text,
      json: text,
    },
  });
  const { quick, budgets } = values;
  const rounds = quick ? 1 : budgets ? 9 : ref === undefined ? 3 : 2;
  const streams = values.streams ?? (quick ? "50,500" : "50,200,500,1000");
  const options: Options = {
    ...values,
    json: values.json,
    ref,
    seconds: Number(values.seconds ?? (quick ? 1.5 : 4)),
    rounds: Number(values.rounds ?? rounds),
    streams: streams.split(",").map(Number),
    beside: values.beside?.split(","),
    rivals: values.rivals ?? new URL("rivals.json", import.meta.url).pathname,
    stopping: AbortSignal.any([]),
  };
  for (const each of [options.seconds, options.rounds, ...options.streams]) {
    if (!(each > 0)) throw new Error("Only numbers above 0. See --help");
  }
  return options;
}
