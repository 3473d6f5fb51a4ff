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

/** A cost that is compared. */
interface ComparedCost {
  readonly name: string;
  readonly measure: (gateway: Keyed, seconds: number) => Promise<Measured>;
}

/** A cost as measured, and how many answers were wrong. */
interface Measured {
  readonly cost: number;
  readonly wrong: number;
}

const COSTS: readonly ComparedCost[] = [
  {
    name: "CPU s per 1,000 requests",
    measure: (gateway, seconds) => measureRequests(gateway, seconds, {}),
  },
  {
    name: `CPU s per 1,000 requests of ${KEYS} keys`,
    measure: (gateway, seconds) => {
      const { requests } = gateway;
      return measureRequests(gateway, seconds, { requests });
    },
  },
  ...STREAMS.map((count) => ({
    name: `CPU us per token at ${count}`,
    measure: async (gateway: Keyed) => {
      const [cost = NaN, , wrong = 0] = await measureStreams(gateway, count);
      return { cost, wrong };
    },
  })),
];

const COLUMNS = [...COSTS.map(({ name }) => name), "wrong"];

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
    await warmUp(contenders, options.seconds);
    await measureCosts(contenders, options);
    for (let round = 0; round < options.rounds; round += 1) {
      const figures = await measureCosts(contenders, options);
      for (const [i, { name }] of contenders.entries()) {
        rows[i] ??= { name, rounds: [] };
        rows[i].rounds.push(figures[i] ?? []);
      }
    }
  }
  const report = startReport();
  const title = `In turn: ${CONNECTIONS} connections, then streams`;
  report.add({ title, columns: COLUMNS, rows });
  await report.end(options);
  for (const [i, { name: cost }] of COSTS.entries()) {
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

/**
 * Measures all costs of all contenders. For each of them in turn returns its costs, and
 * how many answers were wrong. Between two costs of one, the others have only one: V8
 * drops the compiled code of a process that is idle for half a minute.
 */
async function measureCosts(
  contenders: readonly Keyed[],
  { seconds, stopping }: Options,
): Promise<number[][]> {
  const costs: number[][] = contenders.map(() => []);
  const wrong = contenders.map(() => 0);
  for (const { measure } of COSTS) {
    for (const [i, contender] of contenders.entries()) {
      stopping.throwIfAborted();
      const measured = await measure(contender, seconds);
      costs[i]?.push(measured.cost);
      wrong[i] = (wrong[i] ?? 0) + measured.wrong;
    }
  }
  return costs.map((each, i) => [...each, wrong[i] ?? 0]);
}

async function measureRequests(
  gateway: Keyed,
  seconds: number,
  load: { requests?: readonly Uint8Array[] },
): Promise<Measured> {
  const [, cost = NaN, wrong = 0] = await measureLoop(gateway, seconds, load);
  return { cost, wrong };
}
