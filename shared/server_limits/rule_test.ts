/** What a worker may take of the limit of a server. */
import assert from "node:assert/strict";
import { LOOK_AGAIN_MS, mayTake, type Situations, waitOf } from "./rule.ts";

const CASES: readonly {
  what: string;
  limit: number;
  own: number;
  justTaken: number;
  others: number;
  workers: number;
  expected: boolean;
}[] = [
  {
    what: "a lone worker takes all",
    limit: 3,
    own: 2,
    justTaken: 2,
    others: 0,
    workers: 1,
    expected: true,
  },
  {
    what: "and no more",
    limit: 3,
    own: 3,
    justTaken: 3,
    others: 0,
    workers: 1,
    expected: false,
  },
  {
    what: "one of three takes ten of thirty",
    limit: 30,
    own: 9,
    justTaken: 9,
    others: 0,
    workers: 3,
    expected: true,
  },
  {
    what: "and then tells",
    limit: 30,
    own: 10,
    justTaken: 10,
    others: 0,
    workers: 3,
    expected: false,
  },
  {
    what: "the others know of its ten: it takes of the rest",
    limit: 30,
    own: 10,
    justTaken: 0,
    others: 0,
    workers: 3,
    expected: true,
  },
  {
    what: "the last one may be taken by any",
    limit: 30,
    own: 10,
    justTaken: 0,
    others: 19,
    workers: 3,
    expected: true,
  },
  {
    what: "but by none twice",
    limit: 31,
    own: 11,
    justTaken: 1,
    others: 19,
    workers: 3,
    expected: false,
  },
  {
    what: "nothing is free",
    limit: 30,
    own: 0,
    justTaken: 0,
    others: 30,
    workers: 3,
    expected: false,
  },
  {
    what: "others are above the limit",
    limit: 30,
    own: 0,
    justTaken: 0,
    others: 33,
    workers: 3,
    expected: false,
  },
];

Deno.test("mayTake() permits an equal share of what is free until the others have heard", () => {
  for (const { what, expected, ...situation } of CASES) {
    assert.equal(mayTake(situation), expected, what);
  }
});

const NOTHING = { inFlight: 0, requests: 0, tokens: 0 };
const IDLE: Situations = {
  own: NOTHING,
  justTaken: NOTHING,
  others: NOTHING,
  workers: 1,
  nextFreeMs: Infinity,
};

Deno.test("waitOf() names the time after which a request may be sent", () => {
  const own = { inFlight: 5, requests: 5, tokens: 5 };
  const used = { ...IDLE, own, nextFreeMs: 7_000 };
  assert.equal(waitOf({}, used), 0);
  assert.equal(waitOf({ inFlight: 6, requests: 6, tokens: 6 }, used), 0);
  assert.equal(waitOf({ inFlight: 5 }, used), LOOK_AGAIN_MS);
  assert.equal(waitOf({ requests: 5 }, used), 7_000);
  assert.equal(waitOf({ tokens: 5, inFlight: 5 }, used), 7_000);
  const others = { ...IDLE, others: own, nextFreeMs: 10 };
  assert.equal(waitOf({ requests: 5 }, others), LOOK_AGAIN_MS);
  const shared = { ...IDLE, own, justTaken: own, workers: 2, nextFreeMs: 9 };
  assert.equal(waitOf({ requests: 10 }, shared), LOOK_AGAIN_MS);
});
