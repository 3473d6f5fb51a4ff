/** How many unknown keys an address may try. */
import assert from "node:assert/strict";
import { UnknownKeyLimit } from "./unknown_key_limit.ts";

const PER_SECOND = 20;
const KEPT = 5;

Deno.test("only some unknown keys of an address are looked up at once and per second, others all", async () => {
  let nowMs = 0;
  const limit = new UnknownKeyLimit({
    perSecond: PER_SECOND,
    now: () => nowMs,
  });
  let guesses = 0;
  const guess = async (count: number) => {
    const questions = Array.from({ length: count }, () => {
      const guess = { address: "a", hash: `${guesses++}` };
      return limit.look(guess, () => Promise.resolve(null));
    });
    const ends = await Promise.allSettled(questions);
    for (const end of ends) {
      if (end.status === "fulfilled") continue;
      const { status, retryAfterMs } = end.reason;
      assert.deepEqual([status, retryAfterMs], [429, 1_000]);
    }
    return ends.filter(({ status }) => status === "fulfilled").length;
  };
  assert.equal(await guess(100), PER_SECOND - KEPT);
  const neighbour = { address: "b", hash: "neighbour" };
  assert.equal(await limit.look(neighbour, () => Promise.resolve(1)), 1);
  nowMs += 500;
  assert.equal(await guess(100), PER_SECOND / 2);
  nowMs += 60_000;
  assert.equal(await guess(100), PER_SECOND - KEPT);
});

Deno.test("look-ups that find a key do not count, however many there are at once", async () => {
  const limit = new UnknownKeyLimit({
    perSecond: PER_SECOND,
    now: () => 0,
  });
  const found = await Promise.all(Array.from({ length: 500 }, (_, at) => {
    const look = () => Promise.resolve(at);
    return limit.look({ address: "a", hash: `${at}` }, look);
  }));
  assert.equal(new Set(found).size, 500);
});

Deno.test("a look-up that waits is not overtaken by those that come later", async () => {
  const limit = new UnknownKeyLimit({
    perSecond: PER_SECOND,
    now: () => 0,
  });
  const started: string[] = [];
  const running: PromiseWithResolvers<string>[] = [];
  let count = 0;
  const start = (hash = `${count++}`) =>
    void limit.look({ address: "a", hash }, () => {
      started.push(hash);
      const look = Promise.withResolvers<string>();
      running.push(look);
      return look.promise;
    });
  while (running.length < PER_SECOND - KEPT) start();
  start("waits");
  for (let ended = 0; ended < PER_SECOND; ended += 1) {
    running.shift()?.resolve("found");
    await new Promise((resolve) => setTimeout(resolve));
    start();
  }
  assert.equal(started[PER_SECOND - KEPT], "waits");
});

Deno.test("a look-up that fails leaves room for the next", async () => {
  const limit = new UnknownKeyLimit({ perSecond: 1, now: () => 0 });
  const down = new Error("Redis is down");
  for (let count = 0; count < 3; count += 1) {
    const key = { address: "a", hash: `${count}` };
    await assert.rejects(limit.look(key, () => Promise.reject(down)), down);
  }
});

Deno.test("a request ends also if the limit allows it while it is being decided", async () => {
  let nowMs = 0;
  const limit = new UnknownKeyLimit({
    perSecond: PER_SECOND,
    // The clock goes on between two readings.
    now() {
      nowMs += 1;
      return nowMs;
    },
  });
  const ask = (hash: string) =>
    limit.look({ address: "a", hash }, () => Promise.resolve(null))
      .then(() => "unknown", () => "refused");
  const answers = new Set<string>();
  for (let count = 0; count < 1_000; count += 1) {
    answers.add(await ask(`${count}`));
  }
  assert.deepEqual([...answers], ["unknown", "refused"]);
});
