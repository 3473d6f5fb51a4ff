/**
 * Measures this gateway and another one in the same run on the same machine, with
 * the same model server behind both: `deno task bench`.
 *
 * This gateway checks keys and limits; the other one has neither. Everything shares
 * the machine's cores, including the load generator, so only the ratio counts, and
 * CPU seconds per 1,000 requests, which other processes do not affect.
 */
import { parseArgs } from "node:util";
import { createKey } from "../tests/conformance/context.ts";
import { startCluster } from "../tests/support/cluster.ts";
import { freePort } from "../tests/support/local_server.ts";
import { startService } from "../tests/support/service_processes.ts";
import { waitFor } from "../tests/support/wait_for.ts";
import {
  median,
  percentile,
  runLoad,
  runStreams,
  type Target,
} from "./http_load.ts";
import { cpuSeconds, residentMib, withDescendants } from "./processes.ts";

const PEER_PACKAGE = "@portkey-ai/gateway@1.15.2";
/** A pause between two reads this long is a stall: ten times the pace. */
const STALL_MS = 200;
const PACE_MS = 20;
const TOKENS = 64;

const USAGE = `Usage: deno task bench [options]

  --seconds N        length of a round (5)
  --rounds N         rounds of each kind, in turn (3)
  --connections N    connections of the closed loop (32)
  --streams A,B,C    how many paced streams at a time (100,300,500)
  --peer NAME        portkey or none (portkey)
`;
const text = (fallback: string) =>
  ({ type: "string", default: fallback }) as const;
const { values: options } = parseArgs({
  args: Deno.args,
  options: {
    seconds: text("5"),
    rounds: text("3"),
    connections: text("32"),
    streams: text("100,300,500"),
    peer: text("portkey"),
    help: { type: "boolean", default: false },
  },
});
const seconds = Number(options.seconds);
const rounds = Number(options.rounds);
const connections = Number(options.connections);

/** A gateway under test with its processes. */
interface Contender extends Target {
  pids: () => number[];
}

const print = (line: string) =>
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));

async function startPeer(
  modelServer: string,
): Promise<Contender & AsyncDisposable> {
  const port = freePort();
  const child = new Deno.Command("npx", {
    args: ["-y", PEER_PACKAGE, `--port=${port}`, "--headless"],
    env: { NODE_ENV: "production" },
    stdout: "null",
    stderr: "null",
  }).spawn();
  const root = `http://127.0.0.1:${port}`;
  const answers = () =>
    fetch(root).then((answer) => answer.body?.cancel())
      .then(() => true, () => false);
  await waitFor(answers, {
    what: "the peer to start",
    timeoutMs: 120_000,
    intervalMs: 200,
  });
  const pids = () => withDescendants([child.pid]);
  return {
    name: "portkey",
    baseUrl: `${root}/v1`,
    headers: {
      "authorization": "Bearer none",
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": modelServer,
    },
    pids,
    [Symbol.asyncDispose]: async () => {
      for (const pid of pids().reverse()) endProcess(pid);
      await child.status;
    },
  };
}

/** Ends a process, unless it has already ended with its child. */
function endProcess(pid: number): void {
  try {
    Deno.kill(pid, "SIGTERM");
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

/** Runs `measure` for each target in turn, and takes the median of each figure. */
async function inTurn<T extends Target>(
  contenders: readonly T[],
  measure: (contender: T) => Promise<number[]>,
): Promise<Map<string, number[]>> {
  const all = new Map<string, number[][]>();
  for (let round = 0; round < rounds; round += 1) {
    for (const contender of contenders) {
      const { name } = contender;
      all.set(name, [...all.get(name) ?? [], await measure(contender)]);
    }
  }
  return new Map([...all].map(([name, figures]) => [
    name,
    (figures[0] ?? []).map((_, i) => median(figures.map((f) => f[i] ?? NaN))),
  ]));
}

async function measureThroughput(contenders: Contender[]): Promise<void> {
  print(
    `\n${connections} connections, no delay at the model server, ${rounds} rounds of ${seconds} s in turn`,
  );
  const figures = await inTurn(contenders, async (contender) => {
    const { name, pids } = contender;
    const before = cpuSeconds(pids());
    const result = await runLoad(contender, { connections, seconds });
    const used = cpuSeconds(pids()) - before;
    const { requests, errors } = result;
    if (errors > 0) throw new Error(`${name}: ${errors} wrong answers`);
    return [requests / result.seconds, used / requests * 1_000];
  });
  for (const [name, [rate = NaN, cost = NaN]] of figures) {
    const perSecond = rate.toFixed(0).padStart(6);
    print(
      `  ${name.padEnd(9)} ${perSecond} req/s   ` +
        `${cost.toFixed(3)} CPU s per 1,000 requests`,
    );
  }
}

async function measureLatency(
  contenders: Contender[],
  direct: Target,
): Promise<void> {
  print(
    `\n1 connection, ${rounds} rounds in turn: latency added to the model server's own`,
  );
  const figures = await inTurn([direct, ...contenders], async (target) => {
    const load = { connections: 1, seconds: seconds / 2 };
    const { latenciesMs } = await runLoad(target, load);
    return [0.5, 0.99].map((share) => percentile(latenciesMs, share));
  });
  const own = figures.get(direct.name) ?? [];
  figures.delete(direct.name);
  for (const [name, latencies] of figures) {
    const [p50, p99] = latencies.map((ms, i) =>
      (ms - (own[i] ?? 0)).toFixed(2)
    );
    print(`  ${name.padEnd(9)} p50 ${p50} ms   p99 ${p99} ms`);
  }
}

async function measureStreams(contenders: Contender[]): Promise<void> {
  print(
    `\npaced streams, ${TOKENS} tokens at ${PACE_MS} ms, a pause over ${STALL_MS} ms is a stall`,
  );
  for (const streams of options.streams.split(",").map(Number)) {
    for (const contender of contenders) {
      const { name, pids } = contender;
      const before = cpuSeconds(pids());
      const { broken, pausesMs } = await runStreams(contender, {
        streams,
        tokens: TOKENS,
        paceMs: PACE_MS,
        spreadMs: TOKENS * PACE_MS / 2,
      });
      const used = cpuSeconds(pids()) - before;
      const stalled = pausesMs.filter((pauseMs) => pauseMs > STALL_MS).length;
      print(
        `  ${name.padEnd(9)} ${String(streams).padStart(5)} streams: ` +
          `${stalled} stalled, ${broken} broken, ` +
          `longest pause p99 ${percentile(pausesMs, 0.99).toFixed(0)} ms, ` +
          `${(used / (streams * TOKENS) * 1e6).toFixed(0)} us CPU per token, ` +
          `${residentMib(pids()).toFixed(0)} MiB`,
      );
    }
  }
}

function printMemory(when: string, contenders: Contender[]): void {
  const each = contenders.map(({ name, pids }) =>
    `${name} ${residentMib(pids()).toFixed(0)} MiB`
  );
  print(`resident memory, ${when}: ${each.join(", ")}`);
}

async function main(): Promise<void> {
  await using modelServer = await startService("model-simulator", {
    LOG_LEVEL: "error",
  });
  const modelUrl = `${modelServer.url}/v1`;
  await using cluster = await startCluster({
    env: { UPSTREAM_BASE_URL: modelUrl, LOG_LEVEL: "warn" },
  });
  const { key } = await createKey(
    cluster,
    ...["--rpm=1000000", "--tpm=1000000000", "--concurrency=100000"],
    "--tokens-per-day=1000000000000",
  );
  const ours: Contender = {
    name: "gateway",
    baseUrl: cluster.baseUrl(),
    headers: { authorization: `Bearer ${key}` },
    pids: () => Object.values(cluster.state.pids).flat(),
  };
  await using peer = options.peer === "none" ? null : await startPeer(modelUrl);
  const contenders = peer === null ? [ours] : [ours, peer];
  printMemory("idle", contenders);
  for (const contender of contenders) {
    await runLoad(contender, { connections: 8, seconds: 2 });
  }
  await measureThroughput(contenders);
  const direct = { name: "direct", baseUrl: modelUrl, headers: {} };
  await measureLatency(contenders, direct);
  await measureStreams(contenders);
  printMemory("at the end", contenders);
}

if (options.help) print(USAGE);
else await main();
