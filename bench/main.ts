/** `deno task bench`, see `README.md` beside this file. */
import * as contenders from "./contenders.ts";
import { budgetCosts } from "./budgets.ts";
import { percentile } from "./figures.ts";
import { growth } from "./growth.ts";
import { forwardedLanes, serverLimits } from "./forwarded.ts";
import { KEPT_ENV, keptCosts } from "./kept.ts";
import { modelsFile, POOL_KEYS } from "./lanes.ts";
import { requestTo, runLoop } from "./load.ts";
import * as measure from "./measure.ts";
import { type Options, runCommand } from "./options.ts";
import { countSends, pidsOf, residentMib } from "./processes.ts";
import { type Row, startReport, type Table } from "./report.ts";
import { makeTempDir, print } from "../tests/support/process.ts";
import { sleep } from "../tests/support/wait_for.ts";

type Contenders = readonly contenders.Contender[];
const { CONNECTIONS, PACE, STALL_MS } = measure;

const BODY_BYTES = [200, 20 * 1_024, 200 * 1_024];
/** After this time without requests, what only the start needed is collected. */
const IDLE_MS = 60_000;
/** Who takes twice as long as the pace says gets no more streams. */
const SECONDS_MAX = 2 * 1.5 * PACE.tokens * PACE.paceMs / 1_000;

await runCommand(async (options) => {
  const report = startReport();
  await using direct = await contenders.startModelServer();
  const [modelUrl = ""] = direct.baseUrls;
  // Everybody beside everybody.
  await using running = new AsyncDisposableStack();
  const ours = running.use(await startWithLanes(modelUrl, running, options));
  const tables = alone(options);
  if (tables !== null) {
    for await (const table of tables(ours, options)) report.add(table);
    return await report.end(options);
  }
  const gateways: contenders.Contender[] = [ours];
  const notes: string[] = [];
  const { rivals: file, beside } = options;
  for (const rival of await contenders.readRivals(file, beside)) {
    try {
      gateways.push(running.use(await contenders.startRival(rival, modelUrl)));
    } catch (error) {
      notes.push(`${rival.name} left out: ${error}`);
    }
  }
  const all = [direct, ...gateways];
  if (options.lanes) {
    for (const note of notes) print(note);
    for await (const table of forwardedLanes(all, options)) report.add(table);
    return await report.end(options);
  }
  await sleep(IDLE_MS);
  report.add({ ...idleMemory(gateways), notes });
  await measure.warmUp(all, options.seconds);
  for (const bodyBytes of BODY_BYTES) {
    report.add(await wholeAnswers(all, bodyBytes, options));
  }
  report.add(await addedLatency(direct, gateways, options));
  report.add(await sendsPerAnswer(gateways, options));
  for await (const table of pacedStreams(all, options)) report.add(table);
  for await (const table of forwardedLanes(all, options)) report.add(table);
  for await (const table of serverLimits(ours, options)) report.add(table);
  await running.disposeAsync();
  report.add(await growth(modelUrl, options));
  await report.end(options);
});

/** The tables of a run that measures one thing only; null: it measures all. */
function alone({ limits, budgets, kept }: Options) {
  if (limits) return serverLimits;
  if (kept) return keptCosts;
  return budgets ? budgetCosts : null;
}

/** This gateway, with the models and a key for all lanes. */
async function startWithLanes(
  modelUrl: string,
  running: AsyncDisposableStack,
  { budgets: isPriced }: Options,
): Promise<contenders.OurGateway> {
  const { path } = running.use(await makeTempDir());
  const file = `${path}/models.json`;
  await Deno.writeTextFile(file, modelsFile(modelUrl, { isPriced }));
  return await contenders.startOurs("", {
    env: { MODELS_FILE: file, ...POOL_KEYS, ...KEPT_ENV },
    scopes: "chat,models,embedding",
  });
}

function idleMemory(contenders: Contenders): Table {
  const rows = contenders.flatMap(({ name, processes }) => {
    const roles = { [name]: pidsOf(processes()), ...processes() };
    return Object.entries(roles).map(([role, pids]) => ({
      name: role === name ? name : `${name}: ${role}`,
      rounds: [[residentMib(pids)]],
    }));
  });
  return { title: "Resident memory, idle a minute", columns: ["MiB"], rows };
}

async function wholeAnswers(all: Contenders, bytes: number, options: Options) {
  const rows = await measure.inTurn(all, options, (contender) => {
    const requests = [requestTo(contender, bytes)];
    return measure.measureLoop(contender, options.seconds, { requests });
  });
  const title =
    `Whole answers, bodies of ${bytes} B, ${CONNECTIONS} connections`;
  return { title, columns: measure.LOOP_COLUMNS, rows };
}

/** Sends the smallest body again and again. */
function smallLoop(
  target: contenders.Contender,
  connections: number,
  seconds: number,
) {
  const requests = [requestTo(target, measure.SMALL_BYTES)];
  return runLoop(target, { connections, seconds, requests });
}

/** What a gateway adds to the latency of the model server, asked just before. */
async function addedLatency(
  modelServer: contenders.Contender,
  gateways: Contenders,
  options: Options,
) {
  const latencies = async (contender: contenders.Contender) => {
    const { latenciesMs } = await smallLoop(contender, 1, options.seconds / 2);
    return [0.5, 0.99].map((share) => percentile(latenciesMs, share));
  };
  const rows = await measure.inTurn(gateways, options, async (gateway) => {
    const own = await latencies(modelServer);
    const through = await latencies(gateway);
    return [...through.map((ms, i) => ms - (own[i] ?? NaN)), ...own];
  });
  const title = "Latency added at one connection, and the model server's own";
  const columns = ["p50 ms", "p99 ms", "own p50 ms", "own p99 ms"];
  return { title, columns, rows };
}

async function sendsPerAnswer(
  contenders: Contenders,
  { seconds, stopping }: Options,
) {
  const rows: Row[] = [];
  const notes: string[] = [];
  for (const contender of contenders) {
    stopping.throwIfAborted();
    const load = () => smallLoop(contender, CONNECTIONS, seconds);
    try {
      const { sends, result } = await countSends(contender.processes(), load);
      rows.push(...sends.map(([role, count]) => ({
        name: `${contender.name}: ${role}`,
        rounds: [[count / result.latenciesMs.length]],
      })));
    } catch (error) {
      notes.push(`${contender.name} left out: ${error}`);
    }
  }
  const title =
    `Sends and writes per whole answer, ${CONNECTIONS} connections (strace)`;
  return { title, columns: ["per answer"], rows, notes };
}

/** A table for each number of streams, as it is ready. */
async function* pacedStreams(contenders: Contenders, options: Options) {
  const notes: string[] = [];
  let left = contenders;
  for (const count of options.streams) {
    const measureOne = (each: contenders.Contender) =>
      measure.measureStreams(each, count);
    const rows = await measure.inTurn(left, options, measureOne);
    const title = `${count} streams at a time, ${PACE.tokens} tokens at ` +
      `${PACE.paceMs} ms; a pause over ${STALL_MS} ms is a stall`;
    yield { title, columns: measure.STREAM_COLUMNS, rows, notes: [...notes] };
    const slow = rows.filter(({ rounds }) =>
      rounds.some((figures) => (figures.at(-1) ?? 0) > SECONDS_MAX)
    ).map(({ name }) => name);
    left = left.filter(({ name }) => !slow.includes(name));
    notes.push(...slow.map((name) => `${name} left out: too slow before`));
  }
}
