/** How contenders are measured: in turn, round after round. */
import type { Contender } from "./contenders.ts";
import { percentile } from "./figures.ts";
import {
  chatRequest,
  type Pace,
  runLoop,
  runStreams,
  type Target,
} from "./load.ts";
import { type Options, print } from "./options.ts";
import { countSends, cpuSeconds, pidsOf, residentMib } from "./processes.ts";
import type { Row, Table } from "./report.ts";

export const CONNECTIONS = 32;
const PACE: Pace = { tokens: 100, paceMs: 20 };
/** A pause between two reads that is longer is a stall. */
const STALL_MS = 10 * PACE.paceMs;
const SMALL_BYTES = 200;
/** Who takes twice as long as the pace says gets no more streams. */
const SECONDS_MAX = 2 * 1.5 * PACE.tokens * PACE.paceMs / 1_000;

/** Measures all in turn, `rounds` times. */
export async function inTurn(
  contenders: readonly Contender[],
  { rounds, stopping }: Options,
  measure: (contender: Contender) => Promise<number[]>,
): Promise<Row[]> {
  const rows = contenders.map(({ name }): Row => ({ name, rounds: [] }));
  for (let round = 0; round < rounds; round += 1) {
    for (const [i, contender] of contenders.entries()) {
      stopping.throwIfAborted();
      rows[i]?.rounds.push(await measure(contender));
    }
  }
  return rows;
}

/** What the contender's processes use of the CPU while `load` runs. */
async function withCpuSeconds<T extends { wrong: string[] }>(
  { name, processes }: Contender,
  load: Promise<T>,
): Promise<T & { cpu: number }> {
  const before = cpuSeconds(pidsOf(processes()));
  const result = await load;
  const { wrong } = result;
  if (wrong.length > 0) print(`${name}: ${wrong.length} wrong, as ${wrong[0]}`);
  return { ...result, cpu: cpuSeconds(pidsOf(processes())) - before };
}

/** Sends the smallest body again and again. */
function smallLoop(target: Target, connections: number, seconds: number) {
  const requests = [chatRequest(target, SMALL_BYTES)];
  return runLoop(target, { connections, seconds, requests });
}

export const LOOP_COLUMNS = ["req/s", "CPU s per 1,000", "wrong"];

export async function measureLoop(
  contender: Contender,
  seconds: number,
  requests = [chatRequest(contender, SMALL_BYTES)],
  connections = CONNECTIONS,
): Promise<number[]> {
  const loop = runLoop(contender, { connections, seconds, requests });
  const result = await withCpuSeconds(contender, loop);
  const { latenciesMs: { length: answers }, cpu, wrong } = result;
  return [answers / result.seconds, cpu / answers * 1_000, wrong.length];
}

const STREAM_COLUMNS = [
  ...["CPU us per token", "stalled", "wrong"],
  ...["gap p99 ms", "longest pause p99 ms", "MiB", "s"],
];

export async function measureStreams(
  contender: Contender,
  count: number,
): Promise<number[]> {
  let memoryMib = NaN;
  const sampled = setTimeout(() => {
    memoryMib = residentMib(pidsOf(contender.processes()));
  }, PACE.tokens * PACE.paceMs * 0.75);
  const streams = runStreams(contender, count, PACE);
  const result = await withCpuSeconds(contender, streams);
  const { cpu, wrong, gapsMs, pausesMs, seconds } = result;
  clearTimeout(sampled);
  return [
    cpu / (count * PACE.tokens) * 1e6,
    pausesMs.filter((pauseMs) => pauseMs > STALL_MS).length,
    wrong.length,
    percentile(gapsMs, 0.99) - PACE.paceMs,
    percentile(pausesMs, 0.99),
    memoryMib,
    seconds,
  ];
}

export async function wholeAnswers(
  contenders: readonly Contender[],
  bodyBytes: number,
  options: Options,
): Promise<Table> {
  const rows = await inTurn(contenders, options, (contender) => {
    const requests = [chatRequest(contender, bodyBytes)];
    return measureLoop(contender, options.seconds, requests);
  });
  const title =
    `Whole answers, bodies of ${bodyBytes} B, ${CONNECTIONS} connections`;
  return { title, columns: LOOP_COLUMNS, rows };
}

/** What a gateway adds to the latency of the model server, asked just before. */
export async function addedLatency(
  modelServer: Contender,
  gateways: readonly Contender[],
  options: Options,
): Promise<Table> {
  const latencies = async (contender: Contender) => {
    const { latenciesMs } = await smallLoop(contender, 1, options.seconds / 2);
    return [0.5, 0.99].map((share) => percentile(latenciesMs, share));
  };
  const rows = await inTurn(gateways, options, async (gateway) => {
    const own = await latencies(modelServer);
    const through = await latencies(gateway);
    return [...through.map((ms, i) => ms - (own[i] ?? NaN)), ...own];
  });
  const title = "Latency added at one connection, and the model server's own";
  const columns = ["p50 ms", "p99 ms", "own p50 ms", "own p99 ms"];
  return { title, columns, rows };
}

export async function sendsPerAnswer(
  contenders: readonly Contender[],
  { seconds, stopping }: Options,
): Promise<Table> {
  const rows: Row[] = [];
  const notes: string[] = [];
  for (const contender of contenders) {
    stopping.throwIfAborted();
    const load = () => smallLoop(contender, CONNECTIONS, seconds);
    try {
      const { sent, result } = await countSends(contender.processes(), load);
      rows.push(...sent.map(([role, count]) => ({
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
export async function* pacedStreams(
  contenders: readonly Contender[],
  options: Options,
): AsyncGenerator<Table> {
  const notes: string[] = [];
  let left = contenders;
  for (const count of options.streams) {
    const measure = (each: Contender) => measureStreams(each, count);
    const rows = await inTurn(left, options, measure);
    const title = `${count} streams at a time, ${PACE.tokens} tokens at ` +
      `${PACE.paceMs} ms; a pause over ${STALL_MS} ms is a stall`;
    yield { title, columns: STREAM_COLUMNS, rows, notes: [...notes] };
    const slow = rows.filter(({ rounds }) =>
      rounds.some((figures) => (figures.at(-1) ?? 0) > SECONDS_MAX)
    ).map(({ name }) => name);
    left = left.filter(({ name }) => !slow.includes(name));
    notes.push(...slow.map((name) => `${name} left out: too slow before`));
  }
}

export function idleMemory(contenders: readonly Contender[]): Table {
  const rows = contenders.flatMap(({ name, processes }) => [
    { name, rounds: [[residentMib(pidsOf(processes()))]] },
    ...Object.entries(processes()).map(([role, pids]) => ({
      name: `${name}: ${role}`,
      rounds: [[residentMib(pids)]],
    })),
  ]);
  return { title: "Resident memory, idle", columns: ["MiB"], rows };
}
