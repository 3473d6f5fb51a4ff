import assert from "node:assert/strict";
import { REFUSED_BODIES } from "@gateway/shared/limits";
import { RefusedBodies } from "./read_request.ts";

Deno.test("a key spends 50 ms on refused bodies at once, then 25 ms a second, and others are not affected", async () => {
  let nowMs = 1_000_000;
  const refused = new RefusedBodies(() => nowMs);
  const waits = (keyId: string, retryAfterMs: number) =>
    assert.throws(() => refused.require(keyId), { status: 429, retryAfterMs });
  refused.charge("a", 20);
  refused.charge("a", 30);
  refused.require("a");
  refused.charge("a", 40);
  waits("a", 1_600);
  refused.require("b");
  nowMs += 1_599;
  waits("a", 1);
  nowMs += 1;
  refused.require("a");
  nowMs += 60_000;
  refused.charge("a", 50);
  refused.require("a");
  refused.charge("a", 1);
  waits("a", 40);
  // A client that retries at once is slowed down before it is refused or served.
  const pausesMs: number[] = [];
  const deadlines = {
    add: ({ expiresAtMs, expire }: { expiresAtMs: number; expire(): void }) => {
      pausesMs.push(expiresAtMs - nowMs);
      nowMs = expiresAtMs;
      expire();
    },
  };
  await refused.wait("a", deadlines);
  await refused.wait("a", deadlines);
  refused.charge("a", 50);
  await assert.rejects(refused.wait("a", deadlines), { status: 429 });
  assert.deepEqual(pausesMs, [40, REFUSED_BODIES.waitMs]);
});
