/** How contenders are measured: in turn, round after round. */
import type { Contender } from "./contenders.ts";
import { isSettled, percentile } from "./figures.ts";
import type { Pace } from "./lanes.ts";
import { requestTo, runLoop, runStreams } from "./load.ts";
import { print } from "../tests/support/process.ts";
import type { Options } from "./options.ts";
import { cpuSeconds, pidsOf, residentMib } from "./processes.ts";
import type { Row } from "./report.ts";
import { sleep } from "../tests/support/wait_for.ts";

/** Connections of whole answers; each sends its next request after an answer. */
export const CONNECTIONS = 32;
/** How the model server streams. */
export const PACE: Pace = { tokens: 256, paceMs: 20 };
/**
 * The part of a run of streams in which all are open: the first half opens them, and
 * what is compiled or allocated for a new stream is not the cost of its tokens.
 */
const STEADY = { from: 0.55, to: 0.95 };
/** A pause between two reads that is longer is a stall. */
export const STALL_MS = 10 * PACE.paceMs;
/** The smallest body of a request. */
export const SMALL_BYTES = 200;

/** Measures all in turn, `rounds` times. */
export async function inTurn<Of extends Contender>(
  contenders: readonly Of[],
  { rounds, stopping }: Options,
  measure: (contender: Of) => Promise<number[]>,
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

/** A warm-up ends after this many rounds, even if they still become cheaper. */
const WARM_UP_ROUNDS_MAX = 20;

/**
 * Asks for whole answers until they become no cheaper: hot code is compiled. That takes
 * some hundred thousand requests, of which the first cost twice as much, the more so
 * the more code there is: two versions cannot be compared before. All are warmed in
 * turn, because V8 drops the compiled code of a process that is idle for half a minute.
 */
export async function warmUp(
  contenders: readonly Contender[],
  seconds: number,
): Promise<void> {
  const costs = contenders.map((): number[] => []);
  const isWarm = () => costs.every(isSettled);
  for (let round = 0; round < WARM_UP_ROUNDS_MAX && !isWarm(); round += 1) {
    for (const [i, contender] of contenders.entries()) {
      const [, cost = NaN] = await measureLoop(contender, seconds);
      costs[i]?.push(cost);
    }
  }
}

/** The figures of {@link measureLoop}. */
export const LOOP_COLUMNS = ["req/s", "CPU s per 1,000", "wrong"];

/** Asks for whole answers for some seconds; returns the {@link LOOP_COLUMNS}. */
export async function measureLoop(
  contender: Contender,
  seconds: number,
  {
    requests = [requestTo(contender, SMALL_BYTES)],
    connections = CONNECTIONS,
  }: {
    /** Sent in turn; one with the smallest body if left out. */
    requests?: readonly Uint8Array[] | undefined;
    connections?: number;
  } = {},
): Promise<number[]> {
  const loop = runLoop(contender, { connections, seconds, requests });
  const result = await withCpuSeconds(contender, loop);
  const { latenciesMs: { length: answers }, cpu, wrong } = result;
  return [answers / result.seconds, cpu / answers * 1_000, wrong.length];
}

/** Streams at a time: enough that a few cores are busy, and nobody is too slow. */
export const STREAMS = 200;

/** The title of a table of {@link STREAMS}. */
export const streamTitle = (name: string): string =>
  `${name}, ${STREAMS} streams at a time, ${PACE.tokens} tokens at ` +
  `${PACE.paceMs} ms`;

/** The figures of {@link measureStreams}. */
export const STREAM_COLUMNS = [
  "CPU us per token",
  "stalled",
  "wrong",
  "gap p99 ms",
  "longest pause p99 ms",
  "MiB",
  "s",
];

/** Opens `count` streams at {@link PACE}; returns the {@link STREAM_COLUMNS}. */
export async function measureStreams(
  contender: Contender,
  count: number,
): Promise<number[]> {
  let memoryMib = NaN;
  const sampled = setTimeout(() => {
    memoryMib = residentMib(pidsOf(contender.processes()));
  }, PACE.tokens * PACE.paceMs * 0.75);
  const [result, cpuPerToken] = await Promise.all([
    runStreams(contender, count, PACE),
    steadyCpuPerToken(contender, count),
  ]);
  const { wrong, gapsMs, pausesMs, seconds } = result;
  clearTimeout(sampled);
  if (wrong.length > 0) {
    print(`${contender.name}: ${wrong.length} wrong, as ${wrong[0]}`);
  }
  return [
    cpuPerToken * 1e6,
    pausesMs.filter((pauseMs) => pauseMs > STALL_MS).length,
    wrong.length,
    percentile(gapsMs, 0.99) - PACE.paceMs,
    percentile(pausesMs, 0.99),
    memoryMib,
    seconds,
  ];
}

/** CPU seconds per token while all streams are open. */
async function steadyCpuPerToken(
  { processes }: Contender,
  count: number,
): Promise<number> {
  const lengthMs = PACE.tokens * PACE.paceMs;
  await sleep(STEADY.from * lengthMs);
  const beganAtMs = performance.now();
  const before = cpuSeconds(pidsOf(processes()));
  await sleep((STEADY.to - STEADY.from) * lengthMs);
  const tokens = count * (performance.now() - beganAtMs) / PACE.paceMs;
  return (cpuSeconds(pidsOf(processes())) - before) / tokens;
}
