/** `deno task bench:check REF`, see `README.md` beside this file. */
import {
  type Contender,
  startGateway,
  startModelServer,
} from "./contenders.ts";
import { compareCosts, medians } from "./figures.ts";
import { CONNECTIONS, inTurn, measureLoop, measureStreams } from "./measure.ts";
import { type Options, print, runCommand } from "./options.ts";
import { run } from "./processes.ts";
import { OURS, Report } from "./report.ts";

const TOLERANCE = 0.1;
const STREAMS = 200;
const COSTS = ["CPU s per 1,000 requests", "CPU us per token"];

/** Checks a commit out into a folder of its own, removed in the end. */
async function checkOut(
  ref: string,
): Promise<{ name: string; root: string } & AsyncDisposable> {
  const root = await Deno.makeTempDir({ prefix: "gateway_bench_" });
  await run("git", ["worktree", "add", "--detach", root, ref]);
  const remove = async () => {
    await run("git", ["worktree", "remove", "--force", root]);
  };
  return { name: `${OURS} at ${ref}`, root, [Symbol.asyncDispose]: remove };
}

async function check(options: Options): Promise<void> {
  const { ref } = options;
  if (ref === undefined) throw new Error("Which commit? See --help");
  await using commit = await checkOut(ref);
  await using model = await startModelServer();
  await using before = await startGateway(model.url, commit);
  await using after = await startGateway(model.url, { name: `${OURS} here` });
  const gateways = [before, after];
  const measure = async (gateway: Contender) => {
    const [, perRequest = NaN, wrong = 0] = await measureLoop(
      gateway,
      options.seconds,
    );
    const [perToken = NaN, , broken = 0] = await measureStreams(
      gateway,
      STREAMS,
    );
    return [perRequest, perToken, wrong + broken];
  };
  for (const gateway of gateways) await measure(gateway);
  const rows = await inTurn(gateways, options, measure);
  const title =
    `${options.rounds} rounds in turn: ${CONNECTIONS} connections, then ${STREAMS} streams`;
  const report = new Report();
  report.add({ title, columns: [...COSTS, "wrong"], rows });
  await report.end(options);
  for (const [i, cost] of COSTS.entries()) {
    const [old = [], now = []] = rows.map((row) =>
      row.rounds.map((round) => round[i] ?? NaN)
    );
    const { ratio, isWorse } = compareCosts(old, now, TOLERANCE);
    const verdict = isWorse ? "too much" : "ok";
    print(`${cost}: ${ratio.toFixed(3)} times that of ${ref}, ${verdict}`);
    if (isWorse) Deno.exitCode = 1;
  }
  const [wrong = NaN] = medians(rows[1]?.rounds.map((r) => r.slice(2)) ?? []);
  if (wrong > 0) Deno.exitCode = 1;
}

await runCommand(check);
