/** Who waits for what, who is offered a slot, and who gives way. */
import assert from "node:assert/strict";
import type { QueueTerms } from "@gateway/shared/models/queue";
import { type QueueFull, type Waiting, WaitQueue } from "./wait_queue.ts";

const TERMS: QueueTerms = {
  waitMs: 2_000,
  requestsMax: 4,
  tokensMax: 1_000,
};

/** A queue, and requests that write down what becomes of them. */
class Stage {
  nowMs = 0;
  readonly queue = new WaitQueue(() => this.nowMs);
  /** Who finds a free slot. */
  takes = (_name: string): boolean => true;
  readonly #events: string[] = [];

  /** `"a"`: of account a and its only key. */
  itemOf(
    name: string,
    { tokens = 1, lane = "m", terms = TERMS, family = "chat" as const } = {},
  ): Waiting {
    const [account = ""] = name;
    return {
      share: {
        account,
        keyId: name,
        weight: 1,
        keyWeight: 1,
        tokens,
        isBatch: false,
      },
      lane,
      family,
      terms,
      sinceMs: this.nowMs,
      offer: () => {
        this.#events.push(name);
        return this.takes(name);
      },
      giveUp: ({ retryAfterMs }: QueueFull) =>
        void this.#events.push(`${name} gave up for ${retryAfterMs} ms`),
    };
  }

  /** Offers, and returns what happened since the last time. */
  offer(): string {
    this.queue.offer();
    return this.take();
  }

  take(): string {
    return this.#events.splice(0).join(", ");
  }
}

Deno.test("a queue offers in turn, and asks no more of a lane that is full or of one that has gone", () => {
  const t = new Stage();
  const { queue } = t;
  const gone = t.itemOf("c");
  for (const lane of ["full", "m"]) {
    for (const name of ["a", "b"]) queue.push(t.itemOf(name, { lane }));
  }
  queue.push(gone);
  t.takes = (name) => {
    // Whoever starts may end another one.
    queue.remove(gone);
    return name !== "a";
  };
  assert.equal(t.offer(), "a, a");
  assert.equal(queue.length, 4);
  t.takes = () => true;
  assert.equal(t.offer(), "a, b, a, b");
  assert.equal(queue.length, 0);
  assert.equal(t.offer(), "");
});

Deno.test("a queue knows which lanes and families wait, and since when", () => {
  const t = new Stage();
  const { queue } = t;
  const item = t.itemOf("a");
  queue.push(item);
  t.nowMs = 1_500;
  queue.push(t.itemOf("b"));
  queue.push(t.itemOf("b", { lane: "uploads" }));
  assert.deepEqual([...queue.lanes()], [
    ["m", { requests: 2, tokens: 2, weight: 2, oldestMs: 1_500 }],
    ["uploads", { requests: 1, tokens: 1, weight: 1, oldestMs: 0 }],
  ]);
  assert.equal(queue.hasWaiting("chat", "m"), true);
  assert.equal(queue.hasWaiting("chat", "other"), false);
  assert.equal(queue.hasWaiting("media", "m"), false);
  assert.equal(queue.hasWaitingFor("chat"), true);
  assert.equal(queue.hasWaitingFor("media"), false);
  queue.remove(item);
  assert.equal(queue.length, 2);
});

interface Full {
  name: string;
  waits: { name: string; tokens?: number }[];
  comes: { name: string; tokens?: number };
  /** Who gives up; null: the one that comes may not wait. */
  events: string | null;
}

const FULL: readonly Full[] = [
  {
    name: "below its bounds takes everybody",
    waits: [{ name: "a" }, { name: "a" }, { name: "a" }],
    comes: { name: "a" },
    events: "",
  },
  {
    name:
      "at its bound of requests takes none of the account of which most waits",
    waits: [{ name: "a" }, { name: "a" }, { name: "a" }, { name: "b" }],
    comes: { name: "a" },
    events: null,
  },
  {
    name: "at its bound of requests lets that account make place for others",
    waits: [{ name: "a1" }, { name: "a1" }, { name: "a2" }, { name: "b" }],
    comes: { name: "b" },
    events: "a2 gave up for 1000 ms",
  },
  {
    name: "that is shared evenly takes no more of those who wait",
    waits: [{ name: "a" }, { name: "a" }, { name: "b" }, { name: "b" }],
    comes: { name: "b" },
    events: null,
  },
  {
    name: "at its bound of tokens takes no more",
    waits: [{ name: "a", tokens: 600 }],
    comes: { name: "b", tokens: 401 },
    events: "a gave up for 1000 ms",
  },
  {
    name: "just below its bound of tokens takes one more",
    waits: [{ name: "a", tokens: 600 }],
    comes: { name: "b", tokens: 400 },
    events: "",
  },
  {
    name: "takes nothing that asks for more than may wait at all",
    waits: [{ name: "a", tokens: 600 }],
    comes: { name: "b", tokens: 1_001 },
    events: null,
  },
];

for (const { name, waits, comes, events } of FULL) {
  Deno.test(`a queue ${name}`, () => {
    const t = new Stage();
    for (const { name, ...more } of waits) {
      assert.equal(t.queue.push(t.itemOf(name, more)), null);
    }
    const { name: coming, ...more } = comes;
    const full = t.queue.push(t.itemOf(coming, more));
    assert.deepEqual(full, events === null ? { retryAfterMs: 1_000 } : null);
    assert.equal(t.take(), events ?? "");
  });
}

Deno.test("who finds a queue full hears when it will have been served", () => {
  const t = new Stage();
  const terms = { ...TERMS, requestsMax: 100 };
  // Two a second, for a minute, each after it has waited.
  while (t.nowMs < 60_000) {
    t.queue.push(t.itemOf("a", { terms }));
    t.nowMs += 500;
    t.offer();
  }
  // Then nothing waits for a while.
  t.nowMs += 600_000;
  for (let n = 0; n < 100; n += 1) t.queue.push(t.itemOf("a", { terms }));
  const { retryAfterMs = 0 } = t.queue.push(t.itemOf("a", { terms })) ?? {};
  assert.ok(retryAfterMs > 45_000 && retryAfterMs < 55_000, `${retryAfterMs}`);
});
