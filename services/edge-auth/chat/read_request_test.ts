import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { BODY_PIECES } from "@gateway/shared/limits";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import { BodyBudget } from "../http/read_body.ts";
import { readChatRequest, RefusedBodies } from "./read_request.ts";

const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };

Deno.test("readChatRequest() makes a key wait for the time of its refused bodies, but a forbidden key gets its own error first", async () => {
  const checked: unknown[] = [];
  const charged: number[] = [];
  /** Charges ten times the cost of a body. */
  class DearBodies extends RefusedBodies {
    override charge(keyId: string, tookMs: number): void {
      charged.push(tookMs);
      super.charge(keyId, 51);
    }
  }
  const deadlines = createDeadlines(monotonicNow);
  const dependencies = {
    catalog: new Map(),
    admission: {
      checkRefused: () => Promise.resolve(),
      modelsOf(principal: unknown) {
        checked.push(principal);
        return Promise.resolve([]);
      },
    },
    now: monotonicNow,
    bodyBytesMax: 1_000_000,
    bodyBudget: new BodyBudget({ bodiesBytesMax: 1e6, bodyBytesMax: 1e6 }),
    deadlines,
    refusedBodies: new DearBodies(monotonicNow),
  };
  const read = (body: Iterable<Uint8Array>, keyId = PRINCIPAL.keyId) =>
    readChatRequest(
      { headers: new Map(), openBody: () => Readable.from(body) },
      { ...PRINCIPAL, keyId },
      dependencies,
    );
  const brace = new TextEncoder().encode("{");
  await assert.rejects(read([brace]), { status: 400 });
  const [tookMs = 0] = charged;
  assert.ok(tookMs > 0 && tookMs < 1_000);
  await dependencies.refusedBodies.wait("key_b", deadlines);
  // A millisecond more than a key may spend at once, at a fortieth of a core.
  const startedAtMs = monotonicNow();
  await assert.rejects(read([brace]), { status: 400 });
  assert.ok(monotonicNow() - startedAtMs >= 30, "it had to wait");
  dependencies.refusedBodies.charge(PRINCIPAL.keyId, 51);
  await assert.rejects(read([brace]), {
    status: 429,
    headers: { connection: "close" },
  });
  assert.equal(checked.length, 3);
  charged.length = 0;
  const blanks = Array(2 * BODY_PIECES.free).fill(new Uint8Array([0x20]));
  await assert.rejects(read(blanks, "key_b"), { message: /too many pieces/ });
  assert.ok((charged[0] ?? 0) > 40, `${charged[0]} ms`);
  deadlines.close();
});

Deno.test("a key spends 50 ms on refused bodies at once, then 25 ms a second, and others are not affected", () => {
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
});
