/** Who is served when, by account and key. */
import assert from "node:assert/strict";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { FairQueue } from "./fair_queue.ts";
import type { Sharing } from "./share.ts";

interface Item extends Sharing {
  readonly name: string;
}

/** As many items with the same name. */
const several = (count: number, name: string, more: ItemMore = {}): Item[] =>
  Array.from({ length: count }, () => itemOf(name, more));

/** What may differ in an item. */
interface ItemMore {
  tokens?: number;
  isBatch?: boolean;
  lane?: string;
  sinceMs?: number;
  /** Which key of the account; the name if left out. */
  keyId?: string;
  weight?: number;
  keyWeight?: number;
}

/** `"a"`: of account a and its only key; `"a1"`: of its key a1. */
function itemOf(
  name: string,
  { lane = "m", sinceMs = 0, ...more }: ItemMore = {},
): Item {
  const { tokens = 1, isBatch = false, keyId = name } = more;
  const { weight = 1, keyWeight = 1 } = more;
  const [account = ""] = name;
  const share = { account, keyId, weight, keyWeight, tokens, isBatch };
  return { name, lane, sinceMs, share };
}

/** Takes all that wait, in turn. */
function drain(
  queue: FairQueue<Item>,
  besides: readonly string[] = [],
): string[] {
  const names: string[] = [];
  for (;;) {
    const item = queue.next(new Set(besides));
    if (item === undefined) return names;
    queue.take(item);
    names.push(item.name);
  }
}

interface Order {
  name: string;
  push: Item[];
  order: string;
}

const ORDERS: readonly Order[] = [
  {
    name: "accounts take turns",
    push: [..."aaaabbc"].map((name) => itemOf(name)),
    order: "a b c a b a a",
  },
  {
    name: "an account whose requests ask for more has fewer turns",
    push: [
      ...several(3, "a", { tokens: 300 }),
      ...several(6, "b", { tokens: 100 }),
    ],
    order: "a b b b a b b b a",
  },
  {
    name: "the first request of an account is never late, however large",
    push: [
      ...several(4, "a"),
      itemOf("b", { tokens: 1_000_000 }),
    ],
    order: "a b a a a",
  },
  {
    name: "the keys of an account take turns within its turns",
    push: ["a1", "a1", "a1", "a2", "b1", "b1", "b1"].map((name) =>
      itemOf(name)
    ),
    order: "a1 b1 a2 b1 a1 b1 a1",
  },
  {
    name: "batch requests wait behind the others of their account alone",
    push: [
      itemOf("a9", { isBatch: true }),
      itemOf("a1"),
      itemOf("a1"),
      itemOf("b9", { isBatch: true }),
    ],
    order: "a1 b9 a1 a9",
  },
  {
    name: "accounts have turns by their weights",
    push: [...several(4, "a", { weight: 3 }), ...several(4, "b")],
    order: "a b a a a b b b",
  },
  {
    name: "the keys of an account have turns by their weights",
    push: [
      ...several(2, "a1", { keyWeight: 0.5 }),
      ...several(4, "a2"),
      itemOf("b1"),
    ],
    order: "a1 b1 a2 a2 a1 a2 a2",
  },
  {
    name: "of a key the oldest comes first",
    push: [
      itemOf("a-late", { keyId: "a", sinceMs: 2 }),
      itemOf("a-early", { keyId: "a", sinceMs: 1 }),
    ],
    order: "a-early a-late",
  },
];

for (const { name, push, order } of ORDERS) {
  Deno.test(`in a fair queue ${name}`, () => {
    const queue = new FairQueue<Item>();
    for (const item of push) queue.push(item);
    assert.equal(queue.size, push.length);
    assert.equal(drain(queue).join(" "), order);
    assert.equal(queue.size, 0);
  });
}

Deno.test("a fair queue leaves lanes out, whose accounts keep their turns", () => {
  const queue = new FairQueue<Item>();
  const full = ["a", "b"].map((name) => itemOf(name, { lane: "full" }));
  for (const item of [...full, itemOf("a"), itemOf("c")]) queue.push(item);
  assert.deepEqual(drain(queue, ["full"]), ["a", "c"]);
  assert.equal(queue.amount("full").waiting, 2);
  assert.equal(queue.amount("m").waiting, 0);
  // The one that was served meanwhile has had its turn.
  assert.deepEqual(drain(queue), ["b", "a"]);
});

Deno.test("an account that comes back has no turns in store, and one whose request comes back has lost none", () => {
  const queue = new FairQueue<Item>();
  for (const name of "aaaaaa") queue.push(itemOf(name));
  queue.push(itemOf("b"));
  const served = [1, 2, 3, 4].map(() => {
    const item = queue.next(new Set()) ?? assert.fail("nobody");
    queue.take(item);
    return item.name;
  });
  assert.deepEqual(served, ["a", "b", "a", "a"]);
  // It has not waited meanwhile, so it gets every other turn, not three at once.
  for (const name of "bbb") queue.push(itemOf(name));
  const first = queue.next(new Set()) ?? assert.fail("nobody");
  queue.take(first);
  // No worker took it: it is as if it had not been served, and had just come.
  queue.push(first);
  assert.equal(drain(queue).join(""), "bababa");
});

Deno.test("who gives way is the account of which most waits, its latest and batch first", () => {
  const queue = new FairQueue<Item>();
  const late = itemOf("a", { sinceMs: 9 });
  const batch = itemOf("a", { sinceMs: 1, isBatch: true });
  const large = itemOf("b", { tokens: 500 });
  for (const each of [itemOf("a"), late, batch, large]) queue.push(each);
  assert.equal(queue.latestOfLargest("m", "waiting", 0), batch);
  queue.remove(batch);
  assert.equal(queue.latestOfLargest("m", "waiting", 1), late);
  assert.equal(queue.latestOfLargest("m", "waiting", 2), undefined);
  assert.equal(queue.latestOfLargest("m", "tokens", 2), large);
  assert.equal(queue.latestOfLargest("other", "tokens", 0), undefined);
  assert.deepEqual(
    [queue.amount("m", "a").waiting, queue.amount("m", "b").tokens],
    [2, 500],
  );
});

Deno.test("an account of more weight may have more that waits, and its weight counts in its lane", () => {
  const queue = new FairQueue<Item>();
  for (const each of several(3, "a", { weight: 2 })) queue.push(each);
  const late = itemOf("b", { sinceMs: 9 });
  for (const each of [itemOf("b"), late]) queue.push(each);
  assert.equal(queue.weightOf("m"), 3);
  assert.equal(queue.latestOfLargest("m", "waiting", 0), late);
  assert.equal(queue.latestOfLargest("m", "waiting", 2), undefined);
  // A weight that was changed counts from its next request on.
  queue.push(itemOf("b", { weight: 4 }));
  assert.equal(queue.weightOf("m"), 6);
  drain(queue);
  assert.equal(queue.weightOf("m"), 0);
});

/** What accounts of a simulation ask for: how often, and tokens of each request. */
const ACCOUNTS = [
  { account: "a", keys: 20, tokensMax: 100 },
  { account: "b", keys: 1, tokensMax: 4_000 },
  { account: "c", keys: 3, tokensMax: 1_000 },
];

Deno.test("over 30,000 turns, accounts that always wait get equal shares of tokens, and so do their keys", () => {
  const random = seededRandom(3);
  const queue = new FairQueue<Item>();
  const shares = new Map<string, number>();
  const add = (name: string, tokensMax: number, sinceMs: number) =>
    queue.push(
      itemOf(name, { tokens: 1 + Math.floor(random() * tokensMax), sinceMs }),
    );
  const maximumOf = (account: string) =>
    ACCOUNTS.find((each) => each.account === account)?.tokensMax ?? 0;
  for (const { account, keys, tokensMax } of ACCOUNTS) {
    for (let key = 0; key < keys; key += 1) {
      for (const at of [0, 1]) add(`${account}${key}`, tokensMax, at);
    }
  }
  for (let turn = 0; turn < 30_000; turn += 1) {
    const item = queue.next(new Set()) ?? assert.fail("nobody");
    queue.take(item);
    const { account, keyId, tokens } = item.share;
    for (const who of [account, keyId]) {
      shares.set(who, (shares.get(who) ?? 0) + tokens);
    }
    add(item.name, maximumOf(account), turn + 2);
  }
  const byAccount = ACCOUNTS.map(({ account }) => shares.get(account) ?? 0);
  const spread = Math.max(...byAccount) - Math.min(...byAccount);
  assert.ok(spread <= 2 * 4_000, `${byAccount}`);
  for (const { account, keys, tokensMax } of ACCOUNTS) {
    const byKey = Array.from(
      { length: keys },
      (_, key) => shares.get(`${account}${key}`) ?? 0,
    );
    const between = Math.max(...byKey) - Math.min(...byKey);
    assert.ok(between <= 2 * tokensMax, `${account}: ${byKey}`);
  }
});

Deno.test("a queue of 10,000 requests stays exact while clients leave at random", () => {
  const random = seededRandom(11);
  const queue = new FairQueue<Item>();
  const waiting = new Set<Item>();
  for (let at = 0; at < 10_000; at += 1) {
    const account = String.fromCharCode(97 + Math.floor(random() * 26));
    const name = `${account}${Math.floor(random() * 40)}`;
    const item = itemOf(name, { tokens: 10, sinceMs: at, lane: `m${at % 3}` });
    queue.push(item);
    waiting.add(item);
    if (random() < 0.3) {
      const [gone] = waiting;
      assert.ok(gone !== undefined && queue.remove(gone));
      waiting.delete(gone);
    }
  }
  assert.equal(queue.size, waiting.size);
  while (waiting.size > 0) {
    const item = queue.next(new Set()) ?? assert.fail("nobody");
    assert.ok(waiting.delete(item));
    queue.take(item);
    assert.equal(queue.has(item), false);
  }
  assert.equal(queue.next(new Set()), undefined);
});
