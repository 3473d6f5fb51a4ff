/** `deno task bench:check REF`, see `README.md` beside this file. */
import { type Contender, startModelServer, startOurs } from "./contenders.ts";
import { compareCosts } from "./figures.ts";
import {
  CONNECTIONS,
  inTurn,
  measureLoop,
  measureStreams,
  warmUp,
} from "./measure.ts";
import { print, runProcess } from "../tests/support/process.ts";
import { type Options, runCommand } from "./options.ts";
import { OURS, type Row, startReport } from "./report.ts";

const TOLERANCE = 0.1;
const STREAMS = [50, 200, 500];
const COSTS = [
  "CPU s per 1,000 requests",
  ...STREAMS.map((count) => `CPU us per token at ${count}`),
];

/**
 * Two processes of the same code differ by more than the tolerance: how V8 compiles.
 */
const INSTANCES = 3;

await runCommand(async (options) => {
  const { ref } = options;
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
  const rows: Row[] = [];
  for (let instance = 0; instance < INSTANCES; instance += 1) {
    await using before = await startOurs(url, { name, root });
    await using after = await startOurs(url);
    const contenders = [before, after];
    for (const each of contenders) {
      await warmUp(each, options.seconds);
      await measureCosts(each, options);
    }
    const measured = await inTurn(
      contenders,
      options,
      (each) => measureCosts(each, options),
    );
    for (const [i, { name, rounds }] of measured.entries()) {
      rows[i] ??= { name, rounds: [] };
      rows[i].rounds.push(...rounds);
    }
  }
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

/** The {@link COSTS}, and how many answers were wrong. */
async function measureCosts(
  gateway: Contender,
  { seconds }: Options,
): Promise<number[]> {
  const loop = await measureLoop(gateway, seconds);
  const [, perRequest = NaN, wrong = 0] = loop;
  const costs = [perRequest];
  let wrongInAll = wrong;
  for (const count of STREAMS) {
    const streams = await measureStreams(gateway, count);
    const [perToken = NaN, , wrong = 0] = streams;
    costs.push(perToken);
    wrongInAll += wrong;
  }
  return [...costs, wrongInAll];
}
