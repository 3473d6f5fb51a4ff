import assert from "node:assert/strict";
import type { Deadlines, Timed } from "@gateway/shared/process/deadlines";
import { ApiError } from "@gateway/shared/openai/error";
import { createLookupTurns } from "./lookup_turns.ts";

const PER_SECOND = 20;

function setup() {
  let nowMs = 0;
  const items = new Set<Timed>();
  const deadlines: Pick<Deadlines, "add" | "remove"> = {
    add: (item) => items.add(item),
    remove: (item) => items.delete(item),
  };
  const turns = createLookupTurns({
    perSecond: PER_SECOND,
    now: () => nowMs,
    deadlines: { ...deadlines, size: 0, close: () => {} },
  });
  const outcomes = new Map<string, string>();
  return {
    turns,
    items,
    outcomes,
    ask(hash: string, address = "a") {
      turns.take(address, hash).then(
        () => outcomes.set(hash, "go"),
        (error) => {
          assert.ok(error instanceof ApiError);
          assert.equal(error.status, 429);
          assert.equal(error.retryAfterMs, 1_000);
          outcomes.set(hash, "refused");
        },
      );
    },
    /** Lets time pass in steps that no deadline falls between. */
    async pass(ms: number) {
      for (const until = nowMs + ms; nowMs < until;) {
        nowMs += 10;
        for (const item of items) {
          if (item.expiresAtMs > nowMs) continue;
          items.delete(item);
          item.expire();
        }
        await Promise.resolve();
      }
      await new Promise((resolve) => setTimeout(resolve));
    },
    count: (kind: string) =>
      [...outcomes.values()].filter((outcome) => outcome === kind).length,
  };
}

Deno.test("an address has so many look-ups at once, the next as time passes, and others are not affected", async () => {
  const t = setup();
  for (let count = 0; count < 30; count += 1) t.ask(`guess ${count}`);
  await t.pass(10);
  assert.equal(t.count("go"), PER_SECOND);
  t.ask("neighbour", "b");
  await t.pass(490);
  assert.equal(t.outcomes.get("neighbour"), "go");
  assert.equal(t.count("go"), PER_SECOND + 1 + PER_SECOND / 2);
  assert.equal(t.items.size, 0);
});

Deno.test("a look-up that found a key makes room for the next at once", async () => {
  const t = setup();
  for (let count = 0; count < 500; count += 1) t.ask(`key ${count}`);
  for (let round = 0; round < 500; round += PER_SECOND) {
    await new Promise((resolve) => setTimeout(resolve));
    for (let count = 0; count < PER_SECOND; count += 1) t.turns.giveBack("a");
  }
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(t.count("go"), 500);
});

Deno.test("a key that exists is found behind an address that guesses without end", async () => {
  const t = setup();
  let guesses = 0;
  const guess = async (ms: number) => {
    for (let passed = 0; passed < ms; passed += 10) {
      for (let count = 0; count < 10; count += 1) t.ask(`${guesses += 1}`);
      await t.pass(10);
    }
  };
  await guess(1_000);
  t.ask("good");
  await guess(1_010);
  assert.equal(t.outcomes.get("good"), "refused");
  t.ask("good");
  await guess(100);
  assert.equal(t.outcomes.get("good"), "go");
  assert.ok(t.count("go") <= 4 * PER_SECOND, `${t.count("go")} look-ups`);
});
