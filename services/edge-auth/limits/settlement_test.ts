import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { type Log, silentLog } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { createRedisLink, type RedisLink } from "@gateway/shared/redis/link";
import { startRedisWorld } from "../../../tests/support/admission_fixture.ts";
import { freePort } from "../../../tests/support/local_server.ts";
import { until } from "../../../tests/support/wait_for.ts";
import { createSettleQueue, settlementOf } from "./settlement.ts";

const AT_MS = Date.UTC(2026, 0, 1, 10);
const PRINCIPAL = { keyId: "k", ownerId: "o" };
const LEASES = "lease:{o}:k";

function settlement(id: string, promptTokens: number | null = 2) {
  const rates = { requests: null, tokens: null };
  return settlementOf({
    ...{ isAdmitted: true, id, principal: PRINCIPAL },
    ...{ reservedTokens: 100, atMs: AT_MS, rates, isSlotLimited: false },
  }, { promptTokens, completionTokens: 3, kind: "complete" });
}

function createQueue(redis: RedisLink, waitingMax = 10) {
  const errors: [event: string, fields: unknown][] = [];
  const log: Log = {
    ...silentLog,
    error: (event, fields) => errors.push([event, fields]),
  };
  const clocks = { now: monotonicNow, random: Math.random };
  const queue = createSettleQueue({ redis, ...clocks, log, waitingMax });
  return { errors, queue };
}

Deno.test("settlementOf() corrects to the actual use, or keeps the reservation if that is unknown", () => {
  assert.equal(settlement("a", 27).terms[0], "-70");
  assert.equal(settlement("a", 97).terms[0], "0");
  assert.equal(settlement("a", 107).terms[0], "10");
  assert.equal(settlement("a", null).terms[0], "0");
});

Deno.test("the queue is bounded: beyond it the oldest are dropped and logged", async () => {
  const link = createRedisLink({
    address: { url: `redis://127.0.0.1:${freePort()}` },
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
  });
  const { queue, errors } = createQueue(link);
  for (let i = 0; i < 25; i++) queue.add(settlement(`lease${i}`));
  await until(() => errors.length > 0, 1_000);
  const left = await queue.drain(50);
  assert.ok(left <= 10, `${left}`);
  const counts = errors.map(([, fields]) => Object(fields).count);
  assert.equal(counts.reduce((sum, count) => sum + count, 0), 25);
  await link.close();
});

Deno.test("a settlement that Redis refuses is tried again until it is not, and logged once", async () => {
  await using world = await startRedisWorld();
  const { queue, errors } = createQueue(world.link);
  await world.command("SET", LEASES, "not a set");
  queue.add(settlement("a"));
  await until(() => errors.length > 0, 1_000);
  await world.command("DEL", LEASES);
  await world.command("ZADD", LEASES, "1", "a");
  await until(() => queue.pending === 0, 3_000);
  assert.deepEqual(errors.map(([event]) => event), ["settle_failed"]);
  const used = await world.command("HGET", "use:{o}:k:20260101", "10:req");
  assert.equal(used, "1");
  assert.equal(await queue.drain(100), 0);
});

Deno.test("the same settlement delivered by two edges takes effect once", async () => {
  await using world = await startRedisWorld();
  await world.command("ZADD", LEASES, "1", "a");
  // A first attempt that may have run says that a lease which is gone is no loss.
  const unanswered = async (): Promise<RedisLink> => {
    const link = await world.open();
    let calls = 0;
    return {
      ...link,
      state: "ready",
      evalScript: async (...call) => {
        const reply = await link.evalScript(...call);
        if (calls++ > 0) return reply;
        throw new RedisUnavailableError("connection_lost", "for the test");
      },
    };
  };
  for (const link of [await unanswered(), await unanswered()]) {
    const { queue } = createQueue(link);
    queue.add(settlement("a"));
    assert.equal(await queue.drain(2_000), 0);
  }
  const used = await world.command("HGET", "use:{o}:k:20260101", "10:out");
  assert.equal(used, "3");
});

Deno.test("a settlement whose lease Redis has lost is still counted, once", async () => {
  await using world = await startRedisWorld();
  let calls = 0;
  const { queue, errors } = createQueue({
    ...world.link,
    state: "ready",
    evalScript: async (...call) => {
      const reply = await world.link.evalScript(...call);
      // The second attempt runs, and its answer is lost.
      if (++calls !== 2) return reply;
      throw new RedisUnavailableError("deadline", "for the test");
    },
  });
  queue.add(settlement("a"));
  assert.equal(await queue.drain(2_000), 0);
  assert.equal(calls, 2);
  const lost = [["settle_lost", { count: 1, reason: "unanswered" }]];
  assert.deepEqual(errors, lost);
  const used = await world.command("HGET", "use:{o}:k:20260101", "10:out");
  assert.equal(used, "3");
});
