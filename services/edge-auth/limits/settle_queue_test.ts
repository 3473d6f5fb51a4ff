import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { type Log, silentLog } from "@gateway/shared/process/log";
import { createRedisLink } from "@gateway/shared/redis/link";
import { startRedisWorld } from "../../../tests/support/admission_fixture.ts";
import { freePort, until } from "../../../tests/support/redis_fixture.ts";
import { createSettleQueue } from "./settlement.ts";
import type { Settlement } from "./settlement.ts";

function settlement(leaseId: string): Settlement {
  return {
    leaseId,
    keys: [
      "lim:{o}:k",
      "lease:{o}:k",
      "lim:{o}",
      "lease:{o}",
      "use:{o}:k:20260101",
      `late:{o}:${leaseId}`,
      "use:{o}:20260101",
    ],
    mode: "held",
    terms: ["0", "0", "0", "0", "0", "10", "1", "2", "3", "0"],
  };
}

Deno.test("the queue is bounded: beyond it the oldest are given up, and the log says so", async () => {
  const lost: unknown[] = [];
  const log: Log = {
    ...silentLog,
    error: (_event, fields) => lost.push(fields),
  };
  const link = createRedisLink({
    address: { url: `redis://127.0.0.1:${freePort()}` },
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
  });
  const queue = createSettleQueue({
    redis: link,
    now: monotonicNow,
    random: Math.random,
    log,
    waitingMax: 10,
  });
  for (let i = 0; i < 25; i++) queue.add(settlement(`lease${i}`));
  await until(() => lost.length > 0, 1_000);
  const left = await queue.drain(50);
  assert.ok(left <= 10, `${left}`);
  const counts = lost.map((each) => Object(each).count);
  assert.equal(counts.reduce((sum, count) => sum + count, 0), 25);
  await link.close();
});

Deno.test("a settlement that Redis refuses is tried again until it is not, and logged once", async () => {
  await using world = await startRedisWorld();
  const errors: unknown[] = [];
  const log: Log = { ...silentLog, error: (event) => errors.push(event) };
  const queue = createSettleQueue({
    redis: world.link,
    now: monotonicNow,
    random: Math.random,
    log,
  });
  await world.command("SET", "lease:{o}:k", "not a set");
  queue.add(settlement("a"));
  await until(() => errors.length > 0, 1_000);
  await world.command("DEL", "lease:{o}:k");
  await world.command("ZADD", "lease:{o}:k", "1", "a");
  await until(() => queue.pending === 0, 3_000);
  assert.deepEqual(errors, ["settle_failed"]);
  assert.equal(
    await world.command("HGET", "use:{o}:k:20260101", "10:req"),
    "1",
  );
  assert.equal(await queue.drain(100), 0);
});

Deno.test("the same settlement delivered by two edges works once", async () => {
  await using world = await startRedisWorld();
  await world.command("ZADD", "lease:{o}:k", "1", "a");
  const queues = [world.link, await world.open()].map((redis) =>
    createSettleQueue({
      redis,
      now: monotonicNow,
      random: Math.random,
      log: silentLog,
    })
  );
  for (const queue of queues) {
    queue.add({ ...settlement("a"), mode: "late" });
    queue.add({ ...settlement("a"), mode: "late" });
  }
  for (const queue of queues) assert.equal(await queue.drain(2_000), 0);
  assert.equal(
    await world.command("HGET", "use:{o}:k:20260101", "10:out"),
    "3",
  );
});
