/** How contenders are measured: in turn, round after round. */
import type { Contender } from "./contenders.ts";
import { percentile } from "./figures.ts";
import { chatRequest, type Pace, runLoop, runStreams } from "./load.ts";
import { print } from "./options.ts";
import { countSends, cpuSeconds, pidsOf, residentMib } from "./processes.ts";
import type { Row, Table } from "./report.ts";

/** How long and how often. */
export interface Effort {
  seconds: number;
  rounds: number;
  stopping: AbortSignal;
}

export const CONNECTIONS = 32;
export const PACE: Pace = { tokens: 100, paceMs: 20 };
/** A pause between two reads that is longer is a stall. */
const STALL_MS = 10 * PACE.paceMs;
const SMALL_BYTES = 200;
/** Who takes this many times as long as the pace says gets no more streams. */
const TOO_SLOW = 2;

/** Measures all, `rounds` times, each time another one first. */
export async function inTurn(
  contenders: readonly Contender[],
  { rounds, stopping }: Omit<Effort, "seconds">,
  measure: (contender: Contender) => Promise<number[]>,
): Promise<Row[]> {
  const rows = contenders.map(({ name, isGoverned }): Row => ({
    name,
    isGoverned,
    rounds: [],
  }));
  for (let turn = 0; turn < rounds * contenders.length; turn += 1) {
    stopping.throwIfAborted();
    const round = Math.floor(turn / contenders.length);
    const at = (turn + round) % contenders.length;
    const contender = contenders[at];
    if (contender !== undefined) {
      rows[at]?.rounds.push(await measure(contender));
    }
  }
  return rows;
}

export const WHOLE_COLUMNS = ["req/s", "CPU s per 1,000", "wrong"];

/** The figures of {@link WHOLE_COLUMNS} for a closed loop. */
export async function measureLoop(
  contender: Contender,
  seconds: number,
  requests = [chatRequest(contender, SMALL_BYTES)],
): Promise<number[]> {
  const before = cpuSeconds(pidsOf(contender.processes()));
  const loop = { connections: CONNECTIONS, seconds, requests };
  const result = await runLoop(contender, loop);
  const used = cpuSeconds(pidsOf(contender.processes())) - before;
  return [
    result.requests / result.seconds,
    used / result.requests * 1_000,
    countWrong(contender, result),
  ];
}

/** How many answers were wrong; one of them is shown. */
export function countWrong(
  { name }: Contender,
  { wrong }: { wrong: string[] },
): number {
  if (wrong.length > 0) print(`${name}: ${wrong.length} wrong, as ${wrong[0]}`);
  return wrong.length;
}

const STREAM_COLUMNS = [
  ...["CPU us per token", "stalled", "wrong"],
  ...["gap p99 ms", "longest pause p99 ms", "MiB", "s"],
];

/** The figures of {@link STREAM_COLUMNS}. */
export async function measureStreams(
  contender: Contender,
  count: number,
): Promise<number[]> {
  const before = cpuSeconds(pidsOf(contender.processes()));
  let memoryMib = NaN;
  const sampled = setTimeout(() => {
    memoryMib = residentMib(pidsOf(contender.processes()));
  }, PACE.tokens * PACE.paceMs * 0.75);
  const result = await runStreams(contender, count, PACE);
  clearTimeout(sampled);
  const used = cpuSeconds(pidsOf(contender.processes())) - before;
  const { pausesMs, gapsMs, seconds } = result;
  return [
    used / (count * PACE.tokens) * 1e6,
    pausesMs.filter((pauseMs) => pauseMs > STALL_MS).length,
    countWrong(contender, result),
    percentile(gapsMs, 0.99) - PACE.paceMs,
    percentile(pausesMs, 0.99),
    memoryMib,
    seconds,
  ];
}

export async function wholeAnswers(
  contenders: readonly Contender[],
  bodyBytes: number,
  effort: Effort,
): Promise<Table> {
  const rows = await inTurn(contenders, effort, (contender) => {
    const requests = [chatRequest(contender, bodyBytes)];
    return measureLoop(contender, effort.seconds, requests);
  });
  const title =
    `Whole answers, bodies of ${bodyBytes} B, ${CONNECTIONS} connections`;
  return { title, columns: WHOLE_COLUMNS, rows };
}

/** What a gateway adds to the latency of the model server, asked just before. */
export async function addedLatency(
  modelServer: Contender,
  gateways: readonly Contender[],
  effort: Effort,
): Promise<Table> {
  const latencies = async (contender: Contender) => {
    const requests = [chatRequest(contender, SMALL_BYTES)];
    const loop = { connections: 1, seconds: effort.seconds / 2, requests };
    const { latenciesMs } = await runLoop(contender, loop);
    return [0.5, 0.99].map((share) => percentile(latenciesMs, share));
  };
  const rows = await inTurn(gateways, effort, async (gateway) => {
    const own = await latencies(modelServer);
    const through = await latencies(gateway);
    return [...through.map((ms, i) => ms - (own[i] ?? NaN)), ...own];
  });
  return {
    title: "Latency added at one connection, and the model server's own",
    columns: ["p50 ms", "p99 ms", "own p50 ms", "own p99 ms"],
    rows,
  };
}

export async function sendsPerAnswer(
  contenders: readonly Contender[],
  { seconds, stopping }: Effort,
): Promise<Table> {
  const rows: Row[] = [];
  const notes: string[] = [];
  for (const contender of contenders) {
    stopping.throwIfAborted();
    const { name, isGoverned, processes } = contender;
    let requests = 0;
    try {
      const requestOf = [chatRequest(contender, SMALL_BYTES)];
      const sent = await countSends(processes(), async () => {
        const loop = { connections: CONNECTIONS, seconds, requests: requestOf };
        requests = (await runLoop(contender, loop)).requests;
      });
      for (const [role, count] of Object.entries(sent)) {
        const rounds = [[count / requests]];
        rows.push({ name: `${name}: ${role}`, isGoverned, rounds });
      }
    } catch (error) {
      notes.push(`${name} left out: ${error}`);
    }
  }
  const title =
    `Sends and writes per whole answer, ${CONNECTIONS} connections (strace)`;
  return { title, columns: ["per answer"], rows, notes };
}

/** A table for each number of streams, as it is ready. */
export async function* pacedStreams(
  contenders: readonly Contender[],
  counts: readonly number[],
  effort: Effort,
): AsyncGenerator<Table> {
  const tooSlow = new Set<string>();
  const secondsMax = TOO_SLOW * 1.5 * PACE.tokens * PACE.paceMs / 1_000;
  for (const count of counts) {
    const left = contenders.filter(({ name }) => !tooSlow.has(name));
    const notes = [...tooSlow].map((name) =>
      `${name} left out: too slow before`
    );
    const rows = await inTurn(left, effort, async (contender) => {
      const figures = await measureStreams(contender, count);
      if ((figures.at(-1) ?? 0) > secondsMax) tooSlow.add(contender.name);
      return figures;
    });
    yield {
      title:
        `${count} streams at a time, ${PACE.tokens} tokens at ${PACE.paceMs} ms;` +
        ` a pause over ${STALL_MS} ms is a stall`,
      columns: STREAM_COLUMNS,
      rows,
      notes,
    };
  }
}

export function memory(contenders: readonly Contender[]): Table {
  const rows = contenders.flatMap(({ name, isGoverned, processes }) => {
    const row = (label: string, pids: readonly number[]): Row => ({
      name: label,
      isGoverned,
      rounds: [[residentMib(pids)]],
    });
    const parts = Object.entries(processes());
    return [
      row(name, pidsOf(processes())),
      ...parts.length === 1
        ? []
        : parts.map(([role, pids]) => row(`${name}: ${role}`, pids)),
    ];
  });
  return { title: "Resident memory, idle", columns: ["MiB"], rows };
}
