import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import { BODY_PIECES } from "@gateway/shared/limits";
import {
  BAD_BODY_LIMITS,
  badBodyWeight,
  createFailureLimiter,
} from "./auth_failures.ts";
import { createBodyBudget } from "./http/body_budget.ts";
import { createParseLane } from "./parse_lane.ts";
import { readChatRequest } from "./read_chat_request.ts";

/** Few, so that the test is quick. */
const LIMITS = { ...BAD_BODY_LIMITS, failuresMax: 5 };
const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };

Deno.test("readChatRequest() counts a body in too many pieces as what reading it cost", async () => {
  const badBodies = createFailureLimiter(LIMITS, monotonicNow);
  const deadlines = createDeadlines(monotonicNow);
  const checked: unknown[] = [];
  const dependencies = {
    catalog: new Map(),
    keys: {
      check(asker: unknown) {
        checked.push(asker);
        return Promise.resolve([]);
      },
    },
    now: monotonicNow,
    bodyBytesMax: 1_000_000,
    bodyBudget: createBodyBudget({
      processBytesMax: 1_000_000,
      keyBytesMax: 1_000_000,
    }),
    deadlines,
    badBodies,
    parseLane: createParseLane({
      now: monotonicNow,
      schedule: (callback) => queueMicrotask(callback),
      waitingMax: 1,
    }),
  };
  const read = (pieces: number) => {
    const unread = {
      principal: PRINCIPAL,
      body: {
        headers: new Headers(),
        openBody: () => Readable.from(blanks(pieces)),
      },
    };
    return readChatRequest(unread, dependencies);
  };
  const each = badBodyWeight(BODY_PIECES.free * BODY_PIECES.bytesMin);
  const allowed = Math.ceil(LIMITS.failuresMax / each);
  for (let count = 0; count < allowed; count += 1) {
    assert.equal(badBodies.waitMs(PRINCIPAL.keyId), 0);
    await assert.rejects(read(2 * BODY_PIECES.free), {
      status: 400,
      message: /too many pieces/,
    });
  }
  await assert.rejects(read(1), { status: 429 });
  assert.equal(checked.length, allowed + 1, "who may not be here hears that");
  deadlines.close();
});

function* blanks(count: number): Generator<Uint8Array<ArrayBuffer>> {
  for (let sent = 0; sent < count; sent += 1) yield new Uint8Array([0x20]);
}
