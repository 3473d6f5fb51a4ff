// Promise: while more is asked for than there are slots, accounts and keys get the
// shares that their weights promise, over several edges, and hardly a slot is idle.
import assert from "node:assert/strict";
import { contest } from "./fairness.ts";
import { CONTESTS } from "./contests.ts";

const MINUTE_MS = 60_000;

/** How far a share may be from what is expected, as a part of all tokens. */
const TOLERANCE = 0.015;

for (const { name, parties } of CONTESTS) {
  Deno.test(`over four edges, each gets its share: ${name}`, async () => {
    const result = await contest({
      parties,
      workers: 4,
      slots: 4,
      answerMs: 500,
      lengthMs: MINUTE_MS,
    });
    const { portions, counts, answered, sentBack, used } = result;
    for (const { party: { key }, expected, got } of portions) {
      const text = `${key}: ${got.toFixed(4)}, not ${expected.toFixed(4)}`;
      assert.ok(Math.abs(got - expected) <= TOLERANCE, text);
    }
    assert.ok(used > 0.98, `${used}`);
    // Two edges hear of a slot that is passed on.
    assert.ok(counts.turns <= 2.5 * answered, `${counts.turns}`);
    assert.ok(counts.returns <= 0.02 * answered, `${counts.returns}`);
    assert.ok(sentBack <= 0.05 * answered, `${sentBack} of ${answered}`);
  });
}

for (const edge of [0, 1]) {
  Deno.test(`a thousand requests delay the first of another account by at most one per slot, at edge ${edge}`, async () => {
    const clients = [0, 0];
    clients[edge] = 1;
    const [workers, slots] = [2, 4];
    const { portions } = await contest({
      parties: [
        { account: "A", key: "a", clients: [1_000, 0] },
        { account: "B", key: "b", clients, beginsAtMs: MINUTE_MS / 4 },
      ],
      workers,
      slots,
      answerMs: 2_000,
      lengthMs: MINUTE_MS / 2,
    });
    const [, first] = portions;
    assert.ok(first !== undefined && first.requests > 0);
    assert.ok(first.firstTurn <= workers * slots, `${first.firstTurn}`);
    // Then it is served whenever it asks.
    assert.ok(first.longestWaitMs < 2_000, `${first.longestWaitMs}`);
  });
}
