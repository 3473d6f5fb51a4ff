import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { BODY_PIECES } from "@gateway/shared/limits";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import { createBodyBudget } from "../http/body_budget.ts";
import { readChatRequest } from "./read_request.ts";

const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };
const WAIT_MS = 30;

/** A reader whose keys wait from the third refused body on. */
function setup() {
  const checked: unknown[] = [];
  const charged: number[] = [];
  const deadlines = createDeadlines(monotonicNow);
  const dependencies = {
    catalog: new Map(),
    keys: {
      check(principal: unknown) {
        checked.push(principal);
        return Promise.resolve([]);
      },
    },
    admission: { checkRefused: () => Promise.resolve() },
    now: monotonicNow,
    bodyBytesMax: 1_000_000,
    bodyBudget: createBodyBudget({
      processBytesMax: 1_000_000,
      keyBytesMax: 1_000_000,
    }),
    deadlines,
    refusedBodies: {
      waitMs: () => charged.length < 2 ? 0 : WAIT_MS,
      charge: (_keyId: string, tookMs: number) => void charged.push(tookMs),
    },
  };
  const read = (body: Iterable<Uint8Array>) =>
    readChatRequest({
      principal: PRINCIPAL,
      body: { headers: new Headers(), openBody: () => Readable.from(body) },
    }, dependencies);
  return { read, checked, charged, deadlines };
}

function* blanks(count: number): Generator<Uint8Array> {
  for (let sent = 0; sent < count; sent += 1) yield new Uint8Array([0x20]);
}

Deno.test("readChatRequest() makes a key wait for what its refused bodies took, and whoever may not be here hears that first", async () => {
  const { read, checked, charged, deadlines } = setup();
  for (let count = 0; count < 2; count += 1) {
    await assert.rejects(read([new Uint8Array([0x7b])]), { status: 400 });
  }
  assert.ok(charged.every((tookMs) => tookMs > 0 && tookMs < 1_000));
  const startedAtMs = monotonicNow();
  await assert.rejects(read([new Uint8Array([0x7b])]), {
    status: 429,
    retryAfterMs: WAIT_MS,
    headers: { connection: "close" },
  });
  assert.ok(monotonicNow() - startedAtMs >= WAIT_MS - 1);
  assert.equal(checked.length, 3);
  deadlines.close();
});

Deno.test("readChatRequest() counts a body in too many pieces as what reading it cost", async () => {
  const { read, charged, deadlines } = setup();
  await assert.rejects(read(blanks(2 * BODY_PIECES.free)), {
    status: 400,
    message: /too many pieces/,
  });
  assert.equal(charged.length, 1);
  assert.ok((charged[0] ?? 0) > 40, `${charged[0]} ms`);
  deadlines.close();
});
