/** What requests, tokens and open streams cost each process of a running gateway. */
import { print } from "../../tests/support/process.ts";
import { sleep } from "../../tests/support/wait_for.ts";
import { type OurGateway, startModelServer, startOurs } from "../contenders.ts";
import { requestTo, runLoop, runStreams } from "../load.ts";
import { CONNECTIONS, PACE, SMALL_BYTES, warmUp } from "../measure.ts";
import { cpuSeconds, residentMib } from "../processes.ts";

const SECONDS = 10;
const BODY_BYTES = [SMALL_BYTES, 20 * 1_024];
const STREAMS = [50, 200, 500, 1_000];
/** So rare that they cost nothing, but no model server is given up. */
const OPEN_PACE_MS = 10_000;
const OPEN_STREAMS = [500, 2_000];
/** Opening takes less. */
const OPEN_SECONDS = 15;
const STEADY = { from: 0.55, to: 0.95 };

/** CPU seconds, or MiB, of each kind of process. */
type Figures = Map<string, number>;

/** Prints CPU time per request and per token, and memory, by process. */
export async function measureProcesses(): Promise<void> {
  await using direct = await startModelServer();
  const [modelUrl = ""] = direct.baseUrls;
  await using gateway = await startOurs(modelUrl, { env: { SLOTS: "4096" } });
  show("idle, MiB", memoryOf(gateway));
  await warmUp([gateway], SECONDS / 2);
  for (const bytes of BODY_BYTES) await measureRequests(gateway, bytes);
  for (const count of STREAMS) await measureTokens(gateway, count);
  for (const count of OPEN_STREAMS) await measureMemory(gateway, count);
}

async function measureRequests(
  gateway: OurGateway,
  bytes: number,
): Promise<void> {
  const before = cpuOf(gateway);
  const requests = [requestTo(gateway, bytes)];
  const load = { connections: CONNECTIONS, seconds: SECONDS, requests };
  const { latenciesMs, seconds, wrong } = await runLoop(gateway, load);
  const answers = latenciesMs.length;
  const rate = (answers / seconds).toFixed(0);
  const title = `whole answers of ${bytes} B, ${rate}/s, ` +
    `${wrong.length} wrong: us per request`;
  show(title, since(before, cpuOf(gateway), 1e6 / answers));
}

async function measureTokens(
  gateway: OurGateway,
  count: number,
): Promise<void> {
  const lengthMs = PACE.tokens * PACE.paceMs;
  const streams = runStreams(gateway, count, PACE);
  await sleep(STEADY.from * lengthMs);
  const before = cpuOf(gateway);
  const beganAtMs = performance.now();
  await sleep((STEADY.to - STEADY.from) * lengthMs);
  const tokens = count * (performance.now() - beganAtMs) / PACE.paceMs;
  const spent = since(before, cpuOf(gateway), 1e6 / tokens);
  const { wrong } = await streams;
  const title = `${count} streams of ${1_000 / PACE.paceMs} tokens/s, ` +
    `${wrong.length} wrong: us per token`;
  show(title, spent);
}

async function measureMemory(
  gateway: OurGateway,
  count: number,
): Promise<void> {
  const tokens = Math.ceil(2_000 * OPEN_SECONDS / OPEN_PACE_MS);
  const opened = runStreams(gateway, count, { tokens, paceMs: OPEN_PACE_MS });
  await sleep(1_000 * OPEN_SECONDS);
  show(`${count} open streams, MiB`, memoryOf(gateway));
  const { wrong } = await opened;
  if (wrong.length > 0) print(`  ${wrong.length} broke, as ${wrong[0]}`);
}

const cpuOf = (gateway: OurGateway): Figures => figuresOf(gateway, cpuSeconds);

const memoryOf = (gateway: OurGateway): Figures =>
  figuresOf(gateway, residentMib);

function figuresOf(
  { processes }: OurGateway,
  read: (pids: readonly number[]) => number,
): Figures {
  const entries = Object.entries(processes());
  return new Map(entries.map(([name, pids]) => [name, read(pids)]));
}

function since(before: Figures, after: Figures, factor: number): Figures {
  const entries = [...after].map(([name, now]): [string, number] => [
    name,
    factor * (now - (before.get(name) ?? 0)),
  ]);
  return new Map(entries);
}

function show(title: string, figures: Figures): void {
  const parts = [...figures].map(([name, each]) =>
    `${name} ${each.toFixed(each < 10 ? 1 : 0)}`
  );
  print(`${title}: ${parts.join(", ")}`);
}
