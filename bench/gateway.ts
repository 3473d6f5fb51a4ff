/**
 * Measures this gateway beside another one, in the same run on the same machine,
 * with the same model server behind both: `deno task bench`.
 *
 * Keys and limits are on here; the other one has neither. Everything shares the
 * machine's cores, the load generator too, so the ratio is what counts, and CPU
 * seconds per 1,000 requests, which no neighbour can change.
 *
 * Options: see {@link USAGE}.
 */
import { parseArgs } from "node:util";
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
const MODEL = "neutral-3.7-plus";

interface Contender {
  target: Target;
  pids: () => number[];
}

const USAGE = `Usage: deno task bench [options]

  --seconds N        length of a round (5)
  --rounds N         rounds of each kind, in turn (3)
  --connections N    of the closed loop (32)
  --streams A,B,C    how many paced streams at a time (100,300,500)
  --peer NAME        portkey or none (portkey)
`;
const text = (fallback: string) =>
  ({ type: "string", default: fallback }) as const;
const OPTIONS = parseArgs({
  args: Deno.args,
  options: {
    seconds: text("5"),
    rounds: text("3"),
    connections: text("32"),
    streams: text("100,300,500"),
    peer: text("portkey"),
    help: { type: "boolean", default: false },
  },
}).values;

const print = (line: string) =>
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
const fixed = (value: number, digits = 2) => value.toFixed(digits);

if (OPTIONS.help) {
  print(USAGE);
  Deno.exit();
}
const SECONDS = Number(OPTIONS.seconds);
const ROUNDS = Number(OPTIONS.rounds);
const CONNECTIONS = Number(OPTIONS.connections);
const STREAMS = OPTIONS.streams.split(",").map(Number);

async function startPeer(
  modelServer: string,
): Promise<(Contender & AsyncDisposable) | null> {
  if (OPTIONS.peer === "none") return null;
  const port = freePort();
  const child = new Deno.Command("npx", {
    args: ["-y", PEER_PACKAGE, `--port=${port}`, "--headless"],
    env: { NODE_ENV: "production" },
    stdout: "null",
    stderr: "null",
  }).spawn();
  const root = `http://127.0.0.1:${port}`;
  await waitFor(async () => {
    try {
      const response = await fetch(root);
      await response.body?.cancel();
      return true;
    } catch {
      return false;
    }
  }, { what: "the peer to start", timeoutMs: 120_000, intervalMs: 200 });
  const pids = () => withDescendants([child.pid]);
  return {
    target: {
      name: "portkey",
      baseUrl: `${root}/v1`,
      model: MODEL,
      headers: {
        "authorization": "Bearer none",
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": modelServer,
      },
    },
    pids,
    [Symbol.asyncDispose]: async () => {
      for (const pid of pids().reverse()) endProcess(pid);
      await child.status;
    },
  };
}

/** A parent may end with its child. */
function endProcess(pid: number): void {
  try {
    Deno.kill(pid, "SIGTERM");
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

async function measureThroughput(contenders: Contender[]): Promise<void> {
  print(
    `\n${CONNECTIONS} connections, no delay at the model server, ${ROUNDS} rounds of ${SECONDS} s in turn`,
  );
  const rates = new Map<string, number[]>();
  const costs = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const { target, pids } of contenders) {
      const before = cpuSeconds(pids());
      const result = await runLoad(target, {
        connections: CONNECTIONS,
        seconds: SECONDS,
      });
      const used = cpuSeconds(pids()) - before;
      if (result.errors > 0) {
        throw new Error(`${target.name}: ${result.errors} wrong answers`);
      }
      push(rates, target.name, result.requests / result.seconds);
      push(costs, target.name, used / result.requests * 1_000);
    }
  }
  for (const { target: { name } } of contenders) {
    print(
      `  ${name.padEnd(9)} ${
        fixed(median(rates.get(name) ?? []), 0).padStart(6)
      } req/s   ` +
        `${fixed(median(costs.get(name) ?? []), 3)} CPU s per 1,000 requests`,
    );
  }
}

async function measureLatency(
  contenders: Contender[],
  direct: Target,
): Promise<void> {
  print(
    `\n1 connection, ${ROUNDS} rounds in turn: latency added to the model server's own`,
  );
  const p50 = new Map<string, number[]>();
  const p99 = new Map<string, number[]>();
  const targets = [direct, ...contenders.map(({ target }) => target)];
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const target of targets) {
      const { latenciesMs } = await runLoad(target, {
        connections: 1,
        seconds: SECONDS / 2,
      });
      push(p50, target.name, percentile(latenciesMs, 0.5));
      push(p99, target.name, percentile(latenciesMs, 0.99));
    }
  }
  const base50 = median(p50.get(direct.name) ?? []);
  const base99 = median(p99.get(direct.name) ?? []);
  for (const { name } of targets.slice(1)) {
    print(
      `  ${name.padEnd(9)} p50 ${
        fixed(median(p50.get(name) ?? []) - base50)
      } ms   ` +
        `p99 ${fixed(median(p99.get(name) ?? []) - base99)} ms`,
    );
  }
}

async function measureStreams(contenders: Contender[]): Promise<void> {
  print(
    `\npaced streams, ${TOKENS} tokens at ${PACE_MS} ms, a pause over ${STALL_MS} ms is a stall`,
  );
  for (const streams of STREAMS) {
    for (const { target, pids } of contenders) {
      const before = cpuSeconds(pids());
      const result = await runStreams(target, {
        streams,
        tokens: TOKENS,
        paceMs: PACE_MS,
        stallMs: STALL_MS,
        spreadMs: TOKENS * PACE_MS / 2,
      });
      const used = cpuSeconds(pids()) - before;
      print(
        `  ${target.name.padEnd(9)} ${String(streams).padStart(5)} streams: ` +
          `${result.stalled} stalled, ${result.broken} broken, ` +
          `longest pause p99 ${
            fixed(percentile(result.pausesMs, 0.99), 0)
          } ms, ` +
          `${fixed(used / (streams * TOKENS) * 1e6, 0)} us CPU per token, ` +
          `${fixed(residentMib(pids()), 0)} MiB`,
      );
    }
  }
}

function push(map: Map<string, number[]>, name: string, value: number): void {
  map.set(name, [...map.get(name) ?? [], value]);
}

await using modelServer = await startService("model-simulator", {
  LOG_LEVEL: "error",
});
const modelUrl = `${modelServer.url}/v1`;
await using cluster = await startCluster({
  env: {
    UPSTREAM_BASE_URL: modelUrl,
    LOG_LEVEL: "warn",
  },
});
const created = JSON.parse(
  await cluster.keys(
    ...["create", "--description", "bench", "--json"],
    ...["--rpm", "1000000", "--tpm", "1000000000"],
    ...["--tokens-per-day", "1000000000000", "--concurrency", "100000"],
  ),
);
const ours: Contender = {
  target: {
    name: "gateway",
    baseUrl: cluster.baseUrl(),
    model: MODEL,
    headers: { authorization: `Bearer ${created.key}` },
  },
  pids: () => Object.values(cluster.state.pids).flat(),
};
await using peer = await startPeer(modelUrl);
const contenders = peer === null ? [ours] : [ours, peer];
const direct: Target = {
  name: "direct",
  baseUrl: modelUrl,
  model: MODEL,
  headers: {},
};

print(
  `resident memory, idle: ${
    contenders.map(({ target, pids }) =>
      `${target.name} ${fixed(residentMib(pids()), 0)} MiB`
    ).join(", ")
  }`,
);
for (const { target } of contenders) {
  await runLoad(target, { connections: 8, seconds: 2 });
}
await measureThroughput(contenders);
await measureLatency(contenders, direct);
await measureStreams(contenders);
print(
  `resident memory, at the end: ${
    contenders.map(({ target, pids }) =>
      `${target.name} ${fixed(residentMib(pids()), 0)} MiB`
    ).join(", ")
  }`,
);
