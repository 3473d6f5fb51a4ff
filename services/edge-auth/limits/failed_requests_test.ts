/** How refused and failed requests are counted and listed. */
import assert from "node:assert/strict";
import {
  failedRequestSchema,
  FAILURE_REASONS,
  type FailureReason,
} from "@gateway/shared/keys/limiter_state";
import {
  failedKey,
  ownerUsageKey,
  type Principal,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import { FAILED_REQUESTS } from "@gateway/shared/keys/limits";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink, ScriptInput } from "@gateway/shared/redis/link";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/limits/admission_fixture.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { FailedRequests, type Failure } from "./failed_requests.ts";
import { edgeLink } from "./lone_edge_fixture.ts";
import {
  isLimitName,
  type KeyRefusal,
  LIMIT_NAMES,
  type LimitName,
  refusalError,
} from "./refusal.ts";

const { listedMax, heldMax } = FAILED_REQUESTS;
const KEY: Principal = { keyId: "key_a", ownerId: "own_a" };
const MODEL = "small:1";
const ALIAS = "gpt-small";
const NOW_MS = Date.UTC(2026, 0, 1, 10, 30);
const DAY = "20260101";

const failure = (error: ApiError, more: Partial<Failure> = {}): Failure => ({
  requestId: "r",
  error,
  model: MODEL,
  how: "refused",
  ...more,
});
const errorOf = (code: ErrorCode) => new ApiError(code, "No.");
const UNKNOWN_MODEL = failure(errorOf("model_not_found"), { model: "gpt" });

/** A record by a clock of its own. Collects what is lost. */
function record(redis: Pick<RedisLink, "state" | "evalScript">) {
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

async function listed(world: RedisWorld, key: Principal) {
  const name = failedKey(key);
  const list = await listOf(world, "LRANGE", name, "0", "-1");
  return list.map((text) => failedRequestSchema.parse(JSON.parse(text)));
}

const limited = (limit: LimitName, holder: "key" | "owner") =>
  refusalError({
    isAdmitted: false,
    reason: "limited",
    limit,
    holder,
    waitMs: 1,
    rates: { requests: null, tokens: null },
  });
const refused = (reason: KeyRefusal): ApiError =>
  refusalError({ isAdmitted: false, reason });

interface Reason {
  error: ApiError;
  reason: FailureReason;
  how?: Failure["how"];
}
const REASONS: Reason[] = [
  ...LIMIT_NAMES.filter(isLimitName).flatMap((limit, at): Reason[] => {
    const reason = FAILURE_REASONS[at] ?? assert.fail();
    const owners = FAILURE_REASONS[at + LIMIT_NAMES.length] ??
      assert.fail();
    assert.equal(owners, `${reason}.owner`);
    return [
      { error: limited(limit, "key"), reason },
      { error: limited(limit, "owner"), reason: owners },
    ];
  }),
  { error: refused("expired"), reason: "key_expired" },
  { error: refused("disabled"), reason: "key_disabled" },
  { error: refused("scope"), reason: "endpoint_forbidden" },
  { error: refused("model"), reason: "model_forbidden" },
  {
    error: new ApiError("rate_limit_exceeded", "No.", {
      reason: "request_bodies",
    }),
    reason: "request_bodies",
  },
  { error: errorOf("key_revoked"), reason: "key_disabled", how: "cut" },
  { error: errorOf("model_not_found"), reason: "unknown_model" },
  {
    error: errorOf("upstream_rate_limited"),
    reason: "model_server_limit",
    how: "failed",
  },
  { error: errorOf("invalid_type"), reason: "invalid_request" },
  { error: errorOf("request_too_large"), reason: "invalid_request" },
  {
    error: errorOf("context_length_exceeded"),
    reason: "invalid_request",
    how: "failed",
  },
  { error: errorOf("service_unavailable"), reason: "server" },
  { error: errorOf("overloaded"), reason: "server", how: "failed" },
  { error: errorOf("upstream_truncated"), reason: "cut", how: "cut" },
];

Deno.test("ASVS 16.2.5: each reason is counted by hour and model for key and owner, and listed without content", async () => {
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
      ...how === "refused" ? { [`10:ref:${MODEL}`]: 1 } : {},
    };
    for (const name of names) {
      assert.deepEqual(await hash(world, name), counts);
      const ttlS = Number(await world.command("TTL", name));
      assert.ok(ttlS > 39 * 86_400 && ttlS <= 40 * 86_400, `${ttlS} s`);
    }
    assert.deepEqual(await listed(world, key), [{
      timeMs: NOW_MS,
      reason,
      model: MODEL,
      requestId: "req_r",
      code: error.wireCode,
      param: null,
      status: how === "cut" ? 200 : error.status,
    }]);
    const ttlS = Number(await world.command("TTL", failedKey(key)));
    assert.ok(ttlS > 6 * 86_400 && ttlS <= 7 * 86_400, `${ttlS} s`);
  }
  assert.deepEqual([...ids].sort(), [...FAILURE_REASONS].sort());
  assert.deepEqual(failed.lost, []);
});

Deno.test("the list has the last 200 failures of all edges; unknown models and deleted keys get no entry", async () => {
  await using world = await startRedisWorld();
  const key = await world.addKey();
  const link = await edgeLink(world);
  const edges = [record(link), record(link)];
  for (const [edge, { add, flush, clock }] of edges.entries()) {
    clock.nowMs += edge;
    for (let n = 0; n < 150; n++) {
      const model = `${"gpt".repeat(100)}${n}\u202E`;
      add(key, failure(errorOf("model_not_found"), { model }));
    }
    await flush();
  }
  const list = await listed(world, key);
  assert.equal(list.length, listedMax);
  assert.equal(list.filter(({ timeMs }) => timeMs > NOW_MS).length, 150);
  assert.equal(list[0]?.model?.length, 201, "clipped");
  assert.deepEqual(await hash(world, usageKey(key, DAY)), {
    "10:unknown_model": 300,
    "10:ref": 300,
  });
  const names = [failedKey(key), recordKey(key)];
  await world.command("DEL", ...names);
  edges[0]?.add(key, UNKNOWN_MODEL);
  edges[0]?.add(key, failure(errorOf("unauthorized")));
  await edges[0]?.flush();
  assert.equal(await world.command("EXISTS", ...names), 0);
  const counts = await hash(world, ownerUsageKey(key.ownerId, DAY));
  assert.equal(counts["10:ref"], 301);
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
  const [[use, ownerUse, list, recordName, counters, ...counts] = []] =
    redis.writes;
  assert.equal(redis.writes.length, 2);
  assert.deepEqual([use, ownerUse, list, recordName, counters], [
    usageKey(KEY, DAY),
    ownerUsageKey(KEY.ownerId, DAY),
    failedKey(KEY),
    recordKey(KEY),
    "2",
  ]);
  const fields = [`10:invalid_request:${MODEL}`, `10:ref:${MODEL}`]
    .flatMap((field) => [field, "5000"]);
  assert.deepEqual(counts.slice(0, 4), fields);
  assert.equal(counts.length, 4 + listedMax);
  assert.match(counts.at(-1) ?? "", /"req_4999"/);
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
  assert.deepEqual(write.slice(3, 7), [
    recordKey(KEY),
    "1",
    `10:server:${MODEL}`,
    "3",
  ]);
  const ids = write.slice(7).map((text) => JSON.parse(text).requestId);
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
  // Two counters and an entry each.
  const keys = Math.ceil(heldMax / 3);
  addKeys(keys + 7);
  await flush();
  assert.deepEqual(lost.splice(0), [7]);
  await stop();
  assert.deepEqual(lost, [keys]);
  assert.equal(log.find("failed_requests_lost")?.requests, 100);
  assert.deepEqual(redis.writes, []);
});
