import assert from "node:assert/strict";
import { orderByRank } from "./order.ts";

/** A fixed sequence that looks random: a linear congruential generator. */
function sequence(): () => number {
  let state = 42;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

Deno.test("orderByRank() goes by preference first", () => {
  const backends = [
    { id: "c", preference: 2, weight: 100 },
    { id: "a", preference: 0, weight: 1 },
    { id: "b", preference: 1, weight: 1 },
  ];
  const random = sequence();
  for (let i = 0; i < 100; i++) {
    const order = orderByRank(backends, random).map(({ id }) => id).join("");
    assert.equal(order, "abc");
  }
});

const shares: { weights: number[]; first: number[] }[] = [
  { weights: [1], first: [1] },
  { weights: [1, 1], first: [0.5, 0.5] },
  { weights: [3, 1], first: [0.75, 0.25] },
  { weights: [5, 3, 2], first: [0.5, 0.3, 0.2] },
  { weights: [1, 0], first: [1, 0] },
];

for (const { weights, first } of shares) {
  Deno.test(`orderByRank() puts weights ${weights} first in shares of ${first}`, () => {
    const backends = weights.map((weight, id) => ({
      id,
      weight,
      preference: 0,
    }));
    const random = sequence();
    const rounds = 20_000;
    const counts = weights.map(() => 0);
    for (let i = 0; i < rounds; i++) {
      const order = orderByRank(backends, random);
      assert.equal(new Set(order).size, weights.length);
      const id = order[0]?.id ?? 0;
      counts[id] = (counts[id] ?? 0) + 1;
    }
    for (const [id, share] of first.entries()) {
      assert.ok(
        Math.abs((counts[id] ?? 0) / rounds - share) < 0.02,
        `${counts}`,
      );
    }
  });
}
