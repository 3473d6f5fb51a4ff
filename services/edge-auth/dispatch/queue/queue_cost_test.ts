/**
 * Promise: what a request that waits costs grows with the logarithm of how many wait.
 * Counted, so that no machine is too slow for it: comparisons, and elements of maps
 * and sets that are looked through.
 */
import assert from "node:assert/strict";
import type { QueueTerms } from "@gateway/shared/models/queue";
import { FairQueue } from "./fair_queue.ts";
import type { Sharing } from "./share.ts";
import { type Waiting, WaitQueue } from "./wait_queue.ts";

const COUNT = 10_000;
/**
 * A request is in three heaps, its key in one and its account in three; each change of
 * a heap takes at most twice the binary logarithm of its size, up and down.
 */
const COMPARISONS_MAX = 7 * 2 * Math.ceil(Math.log2(COUNT));
/** Some small heaps are looked through: the lanes, and those of an account. */
const LOOKED_AT_MAX = 20;

interface Shape {
  name: string;
  accounts: number;
  keys: number;
}

const SHAPES: readonly Shape[] = [
  { name: "one account", accounts: 1, keys: 1 },
  { name: "one account with as many keys", accounts: 1, keys: COUNT },
  { name: "100 accounts with 100 keys each", accounts: 100, keys: 100 },
  { name: "as many accounts", accounts: COUNT, keys: 1 },
];

function itemOf(at: number, { accounts, keys }: Shape): Sharing {
  return {
    lane: "m",
    sinceMs: at,
    share: {
      account: `a${at % accounts}`,
      keyId: `k${at % (accounts * keys)}`,
      weight: 1,
      keyWeight: 1,
      tokens: 1 + at % 100,
      isBatch: at % 7 === 0,
    },
  };
}

/** Counts the elements of maps and sets that are iterated while `run` runs. */
function lookedAt(run: () => void): number {
  let count = 0;
  const prototypes = [new Map().keys(), new Set().keys()].map((each) =>
    Object.getPrototypeOf(each)
  );
  const originals = prototypes.map(({ next }) => next);
  for (const [at, prototype] of prototypes.entries()) {
    prototype.next = function (...args: unknown[]) {
      count += 1;
      return originals[at].apply(this, args);
    };
  }
  try {
    run();
  } finally {
    for (const [at, prototype] of prototypes.entries()) {
      prototype.next = originals[at];
    }
  }
  return count;
}

Deno.test("elements that are looked through are counted", () => {
  const set = new Set([1, 2, 3]);
  const counted = lookedAt(() => {
    let sum = 0;
    for (const each of set) sum += each;
    assert.equal(sum, 6);
  });
  assert.equal(counted, 4, "and the end of them");
});

for (const shape of SHAPES) {
  Deno.test(`of 10,000 requests of ${shape.name}, none takes more than logarithmic work`, () => {
    const queue = new FairQueue<Sharing>();
    const besides = new Set<string>();
    let most = 0;
    const measure = (act: () => void) => {
      const before = queue.work.comparisons;
      act();
      most = Math.max(most, queue.work.comparisons - before);
    };
    const items = Array.from({ length: COUNT }, (_, at) => itemOf(at, shape));
    const looked = lookedAt(() => {
      for (const item of items) measure(() => queue.push(item));
      for (let at = 0; at < COUNT; at += 3) {
        const item = items[at];
        if (item !== undefined) measure(() => queue.remove(item));
      }
      for (let item = queue.next(besides); item; item = queue.next(besides)) {
        const next = item;
        measure(() => queue.take(next));
      }
    });
    assert.equal(queue.size, 0);
    assert.ok(most <= COMPARISONS_MAX, `${most} > ${COMPARISONS_MAX}`);
    assert.ok(looked / COUNT <= LOOKED_AT_MAX, `${looked / COUNT} looked at`);
  });

  Deno.test(`a full queue of ${shape.name} refuses and gives way with logarithmic work, and tells what waits`, () => {
    const queue = new WaitQueue(() => COUNT);
    const terms: QueueTerms = {
      waitMs: 1,
      requestsMax: COUNT,
      tokensMax: Infinity,
    };
    let gaveWay = 0;
    const waiting = (at: number, more: Partial<Shape> = {}): Waiting => ({
      ...itemOf(at, { ...shape, ...more }),
      family: "chat",
      terms,
      offer: () => false,
      giveUp: () => {
        gaveWay += 1;
      },
    });
    for (let at = 0; at < COUNT; at += 1) queue.push(waiting(at));
    const refused = lookedAt(() => {
      assert.notEqual(queue.push(waiting(0)), null);
      assert.equal(queue.lanes().get("m")?.requests, COUNT);
      queue.offer();
    });
    assert.ok(refused <= LOOKED_AT_MAX, `${refused} looked at`);
    // Another account has none that waits, so it may have a place of a large one.
    const other = { ...waiting(COUNT), share: { ...OTHER } };
    const gives = lookedAt(() => {
      const full = queue.push(other);
      const isShared = shape.accounts === COUNT;
      assert.equal(full === null, !isShared, "nobody has more than one");
      assert.equal(gaveWay, isShared ? 0 : 1);
    });
    assert.ok(gives <= LOOKED_AT_MAX, `${gives} looked at`);
  });
}

const OTHER = {
  account: "other",
  keyId: "other",
  weight: 1,
  keyWeight: 1,
  tokens: 1,
  isBatch: false,
};
