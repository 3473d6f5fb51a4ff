/** `deno task bench:check REF`, see `README.md` beside this file. */
import { type Contender, startModelServer, startOurs } from "./contenders.ts";
import { compareCosts } from "./figures.ts";
import { CONNECTIONS, inTurn, measureLoop, measureStreams } from "./measure.ts";
import { print, runProcess } from "../tests/support/process.ts";
import { runCommand } from "./options.ts";
import { OURS, startReport } from "./report.ts";

const TOLERANCE = 0.1;
const STREAMS = [50, 200, 500];
const COSTS = [
  "CPU s per 1,000 requests",
  ...STREAMS.map((count) => `CPU us per token at ${count}`),
];

await runCommand(async (options) => {
  const { ref, seconds } = options;
  if (ref === undefined) throw new Error("Which commit? See --help");
  await using cleanUp = new AsyncDisposableStack();
  const root = await Deno.makeTempDir({ prefix: "gateway_bench_" });
  await runProcess("git", ["worktree", "add", "--detach", root, ref]);
  cleanUp.defer(async () => {
    await runProcess("git", ["worktree", "remove", "--force", root]);
  });
  await using model = await startModelServer();
  const [url = ""] = model.baseUrls;
  const name = `${OURS} at ${ref}`;
  await using before = await startOurs(url, { name, root });
  await using after = await startOurs(url);
  const measure = async (gateway: Contender) => {
    const [, perRequest = NaN, wrong = 0] = await measureLoop(gateway, seconds);
    const costs = [perRequest];
    let allWrong = wrong;
    for (const count of STREAMS) {
      const [perToken = NaN, , broken = 0] = await measureStreams(
        gateway,
        count,
      );
      costs.push(perToken);
      allWrong += broken;
    }
    return [...costs, allWrong];
  };
  for (const gateway of [before, after]) await measure(gateway);
  const rows = await inTurn([before, after], options, measure);
  const report = startReport();
  const title = `In turn: ${CONNECTIONS} connections, then streams`;
  report.add({ title, columns: [...COSTS, "wrong"], rows });
  await report.end(options);
  for (const [i, cost] of COSTS.entries()) {
    const [old = [], now = []] = rows.map(({ rounds }) =>
      rounds.map((round) => round[i] ?? NaN)
    );
    const { ratio, isWorse } = compareCosts(old, now, TOLERANCE);
    const verdict = isWorse ? "too much" : "ok";
    print(`${cost}: ${ratio.toFixed(3)} times that of ${ref}, ${verdict}`);
    if (isWorse) Deno.exitCode = 1;
  }
});
