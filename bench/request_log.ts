/**
 * Measures the request log: how fast searches of a million rows are, what reading them
 * takes, and what a row costs an edge and Redis.
 *
 *     deno run --allow-all bench/request_log.ts [accounts] [rows of each]
 */
import { requestLogKey } from "@gateway/shared/keys/record";
import { encodeRow, type RequestRow } from "@gateway/shared/keys/request_row";
import { ApiError } from "@gateway/shared/openai/error";
import { silentLog } from "@gateway/shared/process/log";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { FailedRequests } from "../services/edge-auth/limits/failed_requests.ts";
import {
  RequestLog,
  type RequestQuery,
} from "../services/key-admin/domain/requests/request_log.ts";
import { ANY } from "../services/key-admin/domain/requests/request_query_fixture.ts";
import { startRedis } from "../services/key-admin/redis_fixture.ts";
import { print } from "../tests/support/process.ts";

const ACCOUNTS = Number(Deno.args[0] ?? 100);
const ROWS = Number(Deno.args[1] ?? 10_000);
const BATCH = 500;
const SEARCHES = 200;
const REFUSALS = 200_000;
const REASONS = ["requests_per_minute", "tokens_per_minute", "server", "cut"];

const idOf = (prefix: string, n: number) =>
  `${prefix}_${String(n).padStart(20, "0")}`;
const hexOf = (n: number) => `req_${n.toString(16).padStart(32, "0")}`;

const rowOf = (n: number, account: number): RequestRow => ({
  timeMs: 1_700_000_000_000 + n * 600,
  requestId: hexOf(n * 7_919),
  keyId: idOf("key", account * 5 + n % 5),
  outcome: n % 9 === 0 ? "failed" : "refused",
  status: 429,
  code: "rate_limit_exceeded",
  reason: REASONS[n % REASONS.length] ?? "",
  param: "",
  model: `model-${n % 40}`,
  endpoint: "chat",
  durationMs: n % 5_000,
  firstByteMs: n % 3 === 0 ? n % 900 : null,
  backend: `gpu-${n % 12}`,
  attempts: 1,
  clientAddress: `10.0.${n % 7}.${n % 250}`,
  more: 0,
  budget: "",
});

/** Adds rows with the times of their ids, as if they had come over days. */
const FILL = defineScript(
  "bench/fill",
  `for at = 2, #ARGV, 2 do
  redis.call('XADD', KEYS[1], ARGV[at], 'row', ARGV[at + 1])
end
redis.call('ZADD', 'logged:accounts', ARGV[1], KEYS[2])`,
);

async function fill(redis: RedisLink): Promise<void> {
  for (let account = 0; account < ACCOUNTS; account++) {
    const ownerId = idOf("own", account);
    for (let first = 0; first < ROWS; first += BATCH) {
      const rows = Array.from(
        { length: Math.min(BATCH, ROWS - first) },
        (_, n) => {
          const row = rowOf((first + n) * ACCOUNTS + account, account);
          return [`${row.timeMs}-1`, encodeRow(row)];
        },
      );
      const keys = [requestLogKey(ownerId), ownerId];
      // Each account's last row has a time of its own.
      const args = [String(account), ...rows.flat()];
      await redis.evalScript(FILL, { keys, args }, { deadlineMs: 10_000 });
    }
  }
}

const SOME: readonly (readonly [name: string, Partial<RequestQuery>])[] = [
  ["newest of all", {}],
  ["a request id that there is not", { requestId: hexOf(3) }],
  ["a key", { keyIds: [idOf("key", 17)] }],
  ["a code and a model", { code: "cut", model: "model-7" }],
  ["failures of a day", {
    outcome: "failed",
    fromMs: 1_700_000_000_000,
    toMs: 1_700_086_400_000,
  }],
  ["one account", { ownerId: idOf("own", 3), code: "server" }],
];

const percentile = (sorted: readonly number[], share: number) =>
  sorted[Math.floor(share * (sorted.length - 1))] ?? 0;

async function search(redis: RedisLink): Promise<void> {
  const log = new RequestLog({ redis, now: Date.now });
  const before = Deno.memoryUsage().rss;
  const start = performance.now();
  await log.readAll();
  const tookMs = performance.now() - start;
  const mib = (Deno.memoryUsage().rss - before) / 2 ** 20;
  print(
    `read ${ACCOUNTS * ROWS} rows: ${tookMs.toFixed(0)} ms, ${
      mib.toFixed(0)
    } MiB`,
  );
  for (const [name, some] of SOME) {
    const times: number[] = [];
    for (let n = 0; n < SEARCHES; n++) {
      const start = performance.now();
      await log.search({ ...ANY, ...some });
      times.push(performance.now() - start);
    }
    times.sort((a, b) => a - b);
    const [p50, p95] = [percentile(times, 0.5), percentile(times, 0.95)];
    print(`${name}: p50 ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms`);
  }
}

/** The CPU time of this process in µs. */
function cpuUs(): number {
  const [user = 0, system = 0] = Deno.readTextFileSync("/proc/self/stat")
    .split(" ").slice(13, 15).map(Number);
  return (user + system) * 10_000;
}

/** What the edge's own process does for each request that is refused. */
async function refuse(redis: RedisLink): Promise<void> {
  const failed = new FailedRequests({
    redis,
    log: silentLog,
    now: Date.now,
    catalog: { find: (id) => ({ id }) },
    requestLogMs: 7 * 86_400_000,
    requestLogRows: 10_000,
    onLost: (count) => print(`${count} requests were lost`),
  });
  const error = new ApiError("rate_limit_exceeded", "No.", {
    reason: "requests_per_minute",
  });
  const principal = { ownerId: idOf("own", 1), keyId: idOf("key", 5) };
  const start = cpuUs();
  for (let n = 0; n < REFUSALS; n++) {
    failed.add(principal, {
      requestId: "0".repeat(32),
      error,
      status: 429,
      model: "model-1",
      endpoint: "chat",
      how: "refused",
      clientAddress: "10.0.0.1",
      durationMs: 1,
      firstByteMs: null,
      attempts: 0,
    });
    if (n % 1_000 === 0) await failed.flush();
  }
  await failed.flush();
  const us = (cpuUs() - start) / REFUSALS;
  print(
    `an edge, per refused request at 1,000 a second: ${
      us.toFixed(2)
    } µs of CPU`,
  );
}

await using server = await startRedis(["--appendonly", "no"]);
const redis = await server.connect();
const usedBy = async () =>
  Number(
    /used_memory:(\d+)/.exec(String(await redis.command(["INFO", "memory"])))
      ?.[1],
  );
const empty = await usedBy();
await fill(redis);
const perRow = (await usedBy() - empty) / (ACCOUNTS * ROWS);
print(`a row takes ${perRow.toFixed(0)} bytes of Redis`);
await search(redis);
await refuse(redis);
