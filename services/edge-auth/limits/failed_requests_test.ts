/** How refused, failed and slow requests are counted and logged. */
import assert from "node:assert/strict";
import { isBudgetName } from "@gateway/shared/keys/budget_state";
import { FAILURE_REASONS } from "@gateway/shared/keys/limiter_state";
import {
  ownerUsageKey,
  type Principal,
  recordKey,
  REQUEST_LOGS_KEY,
  requestLogKey,
  usageKey,
} from "@gateway/shared/keys/record";
import { decodeRow } from "@gateway/shared/keys/request_row";
import { FAILED_REQUESTS } from "@gateway/shared/keys/limits";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink, ScriptInput } from "@gateway/shared/redis/link";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/limits/admission_fixture.ts";
import { REASONS } from "../../../tests/support/limits/failure_reasons.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { FailedRequests, type Failure } from "./failed_requests.ts";
import { edgeLink } from "./lone_edge_fixture.ts";

const { rowsPerWrite, heldMax } = FAILED_REQUESTS;
const KEY: Principal = { keyId: "key_a", ownerId: "own_a" };
const MODEL = "small:1";
const ALIAS = "gpt-small";
const NOW_MS = Date.UTC(2026, 0, 1, 10, 30);
const DAY = "20260101";
const DAYS_MS = 7 * 86_400_000;

const failure = (
  error: ApiError | null,
  more: Partial<Failure> = {},
): Failure => ({
  requestId: "r",
  error,
  status: error?.status ?? 200,
  model: MODEL,
  how: "refused",
  clientAddress: "192.0.2.1",
  durationMs: 12.4,
  firstByteMs: null,
  attempts: 0,
  ...more,
});
const errorOf = (code: ErrorCode) => new ApiError(code, "No.");
const UNKNOWN_MODEL = failure(errorOf("model_not_found"), { model: "gpt" });

/** A record by a clock of its own. Collects what is lost. */
function record(
  redis: Pick<RedisLink, "state" | "evalScript">,
  requestLogRows = 10_000,
) {
  const clock = { nowMs: NOW_MS };
  const log = createRecordingLog();
  const lost: number[] = [];
  const failed = new FailedRequests({
    redis,
    log,
    now: () => clock.nowMs,
    catalog: {
      find: (name) => [MODEL, ALIAS].includes(name) ? { id: MODEL } : undefined,
    },
    requestLogMs: DAYS_MS,
    requestLogRows,
    onLost: (count) => lost.push(count),
  });
  return {
    add: (...added: Parameters<FailedRequests["add"]>) => failed.add(...added),
    flush: () => failed.flush(),
    stop: () => failed.stop(),
    clock,
    log,
    lost,
  };
}

/** A Redis that keeps the arguments of each write, or fails with `error`. */
function fakeRedis() {
  const writes: string[][] = [];
  const redis = {
    writes,
    isAway: false,
    isSilent: false,
    get state() {
      return redis.isAway ? "offline" as const : "ready" as const;
    },
    evalScript(_: unknown, { keys = [], args = [] }: ScriptInput) {
      if (redis.isSilent) {
        // The link notices it.
        redis.isAway = true;
        const error = new RedisUnavailableError("deadline", "silent");
        return Promise.reject(error);
      }
      writes.push([...keys, ...args]);
      return Promise.resolve(null);
    },
  };
  return redis;
}

async function listOf(world: RedisWorld, ...command: string[]) {
  const list = await world.command(...command);
  assert.ok(Array.isArray(list));
  return list.map(String);
}

async function hash(world: RedisWorld, name: string) {
  const flat = await listOf(world, "HGETALL", name);
  return Object.fromEntries(
    flat.flatMap((field, at) => at % 2 ? [] : [[field, Number(flat[at + 1])]]),
  );
}

/** The rows of the log of the key's owner, oldest first. */
async function logged(world: RedisWorld, { ownerId }: Principal) {
  const log = requestLogKey(ownerId);
  const entries = await world.command("XRANGE", log, "-", "+");
  assert.ok(Array.isArray(entries));
  return entries.map(([, fields]) => decodeRow(String(fields[1])));
}

Deno.test("ASVS 16.2.5: each reason is counted for key and owner, and logged without content", async () => {
  await using world = await startRedisWorld();
  const failed = record(await edgeLink(world));
  const ids = new Set<string>();
  for (const { error, reason, how = "refused" } of REASONS) {
    ids.add(reason);
    const key = await world.addKey();
    const names = [
      usageKey(key, DAY),
      ownerUsageKey(key.ownerId, DAY),
    ];
    failed.add(key, failure(error, { how }));
    await failed.flush();
    const counts = {
      [`10:${reason}:${MODEL}`]: 1,
      ...how === "refused" && { [`10:ref:${MODEL}`]: 1 },
    };
    for (const name of names) {
      assert.deepEqual(await hash(world, name), counts);
      const ttlS = Number(await world.command("TTL", name));
      assert.ok(ttlS > 39 * 86_400 && ttlS <= 40 * 86_400, `${ttlS} s`);
    }
    assert.deepEqual(await logged(world, key), [{
      timeMs: NOW_MS,
      requestId: "req_r",
      keyId: key.keyId,
      outcome: how,
      status: error.status,
      code: error.wireCode,
      reason,
      param: "",
      model: MODEL,
      endpoint: "",
      durationMs: 12,
      firstByteMs: null,
      backend: "",
      attempts: 0,
      clientAddress: "192.0.2.1",
      more: 0,
      budget: isBudgetName(reason) ? `${reason} 5 6 1 0` : "",
    }]);
    const log = requestLogKey(key.ownerId);
    const ttlS = Number(await world.command("TTL", log));
    assert.ok(ttlS > 6 * 86_400 && ttlS <= 7 * 86_400, `${ttlS} s`);
  }
  assert.deepEqual([...ids].sort(), [...FAILURE_REASONS].sort());
  assert.deepEqual(failed.lost, []);
});

Deno.test("slow requests, and those of deleted keys, are logged and not counted", async () => {
  await using world = await startRedisWorld();
  const key = await world.addKey();
  const { add, flush } = record(await edgeLink(world));
  const slow = {
    how: "slow",
    firstByteMs: 40_000.4,
    backend: "gpu-1",
  } as const;
  add(key, failure(null, { ...slow, attempts: 2, endpoint: "chat" }));
  add(key, failure(errorOf("unauthorized"), { model: "a".repeat(300) }));
  await flush();
  assert.equal(await world.command("EXISTS", usageKey(key, DAY)), 0);
  const [first, second] = await logged(world, key);
  assert.partialDeepStrictEqual(first, {
    outcome: "slow",
    status: 200,
    code: "",
    reason: "",
    firstByteMs: 40_000,
    backend: "gpu-1",
    attempts: 2,
    endpoint: "chat",
  });
  assert.partialDeepStrictEqual(second, { status: 401, reason: "key_deleted" });
  assert.equal(second?.model.length, 201, "clipped");
});

Deno.test("the log of an owner is bounded in rows and days, over all keys and edges", async () => {
  await using world = await startRedisWorld();
  const key = await world.addKey();
  const other = await world.addKey({ owner: key.ownerId });
  const log = requestLogKey(key.ownerId);
  // Redis drops whole nodes of a stream, which have a hundred entries.
  await world.command("CONFIG", "SET", "stream-node-max-entries", "10");
  await world.command("XADD", log, "1-1", "row", "of a day long ago");
  const link = await edgeLink(world);
  const edges = [record(link, 100), record(link, 100)];
  for (let n = 0; n < 20; n++) {
    for (const { add, flush } of edges) {
      for (const principal of [key, other]) {
        for (let row = 0; row < 3; row++) add(principal, UNKNOWN_MODEL);
      }
      await flush();
    }
  }
  const rows = await logged(world, key);
  assert.ok(rows.length >= 100 && rows.length < 120, `${rows.length} rows`);
  const members = ["ZRANGE", REQUEST_LOGS_KEY, "0", "-1"];
  const accounts = await listOf(world, ...members);
  assert.deepEqual(accounts, [key.ownerId]);
  const { size } = new Set(rows.map(({ keyId }) => keyId));
  assert.equal(size, 2);
  await world.command("DEL", recordKey(key));
  edges[0]?.add(key, failure(errorOf("unauthorized")));
  await edges[0]?.flush();
  assert.equal((await logged(world, key)).at(-1)?.reason, "key_deleted");
  assert.equal(await world.command("EXISTS", recordKey(key)), 0);
});

Deno.test("API4: a flood of refusals is one write per key and flush, and nothing without one", async () => {
  const redis = fakeRedis();
  const { add, flush, clock } = record(redis);
  const other = { keyId: "key_b", ownerId: "own_b" };
  for (let n = 0; n < 5_000; n++) {
    add(KEY, failure(errorOf("invalid_type"), { requestId: String(n) }));
    add(other, UNKNOWN_MODEL);
  }
  assert.equal(redis.writes.length, 0);
  await flush();
  const [write = []] = redis.writes;
  assert.equal(redis.writes.length, 2);
  assert.deepEqual(write.slice(0, 8), [
    usageKey(KEY, DAY),
    ownerUsageKey(KEY.ownerId, DAY),
    requestLogKey(KEY.ownerId),
    REQUEST_LOGS_KEY,
    KEY.ownerId,
    "10000",
    String(DAYS_MS),
    "2",
  ]);
  const counts = write.slice(8);
  const fields = [`10:invalid_request:${MODEL}`, `10:ref:${MODEL}`]
    .flatMap((field) => [field, "5000"]);
  assert.deepEqual(counts.slice(0, 4), fields);
  const rows = counts.slice(4).map(decodeRow);
  assert.equal(rows.length, rowsPerWrite);
  assert.equal(rows[0]?.requestId, "req_0");
  const all = rows.reduce((sum, { more }) => sum + 1 + more, 0);
  assert.equal(all, 5_000, "the last row says how many more there were");
  await flush();
  assert.equal(redis.writes.length, 2);
  // At midnight a key has two days.
  add(KEY, UNKNOWN_MODEL);
  clock.nowMs += 86_400_000;
  add(KEY, UNKNOWN_MODEL);
  await flush();
  assert.deepEqual(redis.writes.slice(2).map(([name]) => name), [
    usageKey(KEY, DAY),
    usageKey(KEY, "20260102"),
  ]);
});

Deno.test("failures are kept while Redis is away; those it may have, and those too many to keep, are lost", async () => {
  const redis = fakeRedis();
  const { add, flush, stop, lost, log } = record(redis);
  const addAs = (requestId: string) =>
    add(KEY, failure(errorOf("overloaded"), { requestId, how: "failed" }));
  redis.isAway = true;
  addAs("first");
  await flush();
  addAs("second");
  await flush();
  redis.isAway = false;
  addAs("third");
  await flush();
  const [write = []] = redis.writes;
  assert.deepEqual(write.slice(7, 10), ["1", `10:server:${MODEL}`, "3"]);
  const ids = write.slice(10).map((text) => decodeRow(text).requestId);
  assert.deepEqual(ids, ["req_first", "req_second", "req_third"]);
  assert.deepEqual(lost, []);

  const addKeys = (count: number) => {
    for (let n = 0; n < count; n++) {
      add({ keyId: `key_${n}`, ownerId: "own_a" }, UNKNOWN_MODEL);
    }
  };
  redis.isSilent = true;
  addKeys(150);
  await flush();
  assert.deepEqual(lost.splice(0), [100], "what was sent, and no more");
  [redis.isSilent, redis.isAway] = [false, false];
  await flush();
  assert.equal(redis.writes.splice(0).length, 1 + 50);
  redis.isAway = true;
  // Two counters and a row each.
  const keys = Math.ceil(heldMax / 3);
  addKeys(keys + 7);
  await flush();
  assert.deepEqual(lost.splice(0), [7]);
  await stop();
  assert.deepEqual(lost, [keys]);
  assert.equal(log.find("failed_requests_lost")?.requests, 100);
  assert.deepEqual(redis.writes, []);
});
