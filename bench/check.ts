/** `deno task bench:check REF`, see `README.md` beside this file. */
import {
  type Contender,
  KEY_LIMITS,
  type OurGateway,
  startModelServer,
  startOurs,
} from "./contenders.ts";
import { compareCosts } from "./figures.ts";
import {
  CONNECTIONS,
  inTurn,
  measureLoop,
  measureStreams,
  SMALL_BYTES,
  warmUp,
} from "./measure.ts";
import { print, runProcess } from "../tests/support/process.ts";
import { requestTo } from "./load.ts";
import pLimit from "p-limit";
import { type Options, runCommand } from "./options.ts";
import { OURS, type Row, startReport } from "./report.ts";

const TOLERANCE = 0.1;
const STREAMS = [50, 200, 500];
/** Calls to Redis of a busy key are shared; those of others are not. */
const KEYS = CONNECTIONS;
/** Commands that create keys at a time. */
const COMMANDS_AT_A_TIME = 4;
const COSTS = [
  "CPU s per 1,000 requests",
  `CPU s per 1,000 requests of ${KEYS} keys`,
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
    const contenders = [await withKeys(before), await withKeys(after)];
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

/** A gateway with keys. */
interface Keyed extends Contender {
  /** A request of each key. */
  readonly requests: readonly Uint8Array[];
}

async function withKeys(ours: OurGateway): Promise<Keyed> {
  const limit = pLimit(COMMANDS_AT_A_TIME);
  const keys = await limit.map(
    Array.from({ length: KEYS }),
    () => ours.gateway.createKey(...KEY_LIMITS),
  );
  const requests = keys.map(({ key }) => {
    const headers = { ...ours.headers, authorization: `Bearer ${key}` };
    return requestTo({ ...ours, headers }, SMALL_BYTES);
  });
  return { ...ours, requests };
}

/** The {@link COSTS}, and how many answers were wrong. */
async function measureCosts(
  gateway: Keyed,
  { seconds }: Options,
): Promise<number[]> {
  const { requests } = gateway;
  const costs: number[] = [];
  let wrongInAll = 0;
  for (const load of [{}, { requests }]) {
    const [, perRequest = NaN, wrong = 0] = await measureLoop(
      gateway,
      seconds,
      load,
    );
    costs.push(perRequest);
    wrongInAll += wrong;
  }
  for (const count of STREAMS) {
    const streams = await measureStreams(gateway, count);
    const [perToken = NaN, , wrong = 0] = streams;
    costs.push(perToken);
    wrongInAll += wrong;
  }
  return [...costs, wrongInAll];
}
