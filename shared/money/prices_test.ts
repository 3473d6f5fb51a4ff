// Promise: what a request costs is exact to the billionth, rounded once, half up, and a
// token is paid for once.
import assert from "node:assert/strict";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import {
  COST_NANOS_MAX,
  costAt,
  costShares,
  PRICE_NAMES,
  type PriceName,
  type Prices,
  type Quantities,
  QUANTITY_NAMES,
} from "./prices.ts";

/** A billionth of the currency for each token. */
const ONE_PER_TOKEN = 1_000_000;

const COSTS: readonly {
  name: string;
  prices: Prices;
  used: Quantities;
  nanos: number;
}[] = [
  {
    name: "nothing without prices",
    prices: {},
    used: { inputTokens: 9 },
    nanos: 0,
  },
  {
    name: "tokens by the million",
    prices: { input: 500_000_000 },
    used: { inputTokens: 3 },
    nanos: 1_500,
  },
  {
    name: "each bucket at its own price",
    prices: {
      input: 4 * ONE_PER_TOKEN,
      cached_input: ONE_PER_TOKEN,
      cache_write: 5 * ONE_PER_TOKEN,
      output: 20 * ONE_PER_TOKEN,
    },
    used: {
      inputTokens: 10,
      cachedTokens: 100,
      cacheWriteTokens: 1_000,
      outputTokens: 7,
    },
    nanos: 40 + 100 + 5_000 + 140,
  },
  {
    name: "half a billionth as one",
    prices: { input: 500_000 },
    used: { inputTokens: 1 },
    nanos: 1,
  },
  {
    name: "less than half a billionth as none",
    prices: { input: 499_999 },
    used: { inputTokens: 1 },
    nanos: 0,
  },
  {
    name: "the sum, rounded once",
    prices: { input: 400_000, output: 400_000, cached_input: 400_000 },
    used: { inputTokens: 1, outputTokens: 1, cachedTokens: 1 },
    nanos: 1,
  },
  {
    name: "what is not tokens",
    prices: { request: 3, image: 5, second: 7, million_characters: 2_000_000 },
    used: { requests: 1, images: 2, seconds: 3, characters: 4 },
    nanos: 3 + 10 + 21 + 8,
  },
  {
    name: "at most the bound of one request",
    prices: { second: Number.MAX_SAFE_INTEGER },
    used: { seconds: 2 ** 32 },
    nanos: COST_NANOS_MAX,
  },
];

Deno.test("costAt() adds up quantities at their prices", () => {
  for (const { name, prices, used, nanos } of COSTS) {
    assert.equal(costAt(prices, used), nanos, name);
  }
});

/** The same in integers of any size: parts of a millionth of a billionth. */
function reference(prices: Prices, used: Quantities): bigint {
  const isForMillion = new Set<PriceName>([
    "input",
    "cached_input",
    "cache_write",
    "output",
    "million_characters",
  ]);
  let parts = 0n;
  for (const [at, name] of PRICE_NAMES.entries()) {
    const quantity = QUANTITY_NAMES[at] ?? assert.fail();
    const factor = isForMillion.has(name) ? 1n : 1_000_000n;
    parts += BigInt(prices[name] ?? 0) * BigInt(used[quantity] ?? 0) * factor;
  }
  const nanos = (2n * parts + 1_000_000n) / 2_000_000n;
  return nanos > BigInt(COST_NANOS_MAX) ? BigInt(COST_NANOS_MAX) : nanos;
}

const RUNS = 20_000;

Deno.test("costAt() is the rounded sum of integers of any size", () => {
  const random = seededRandom(35);
  // Numbers of all magnitudes, and often the largest and the smallest.
  const upTo = (max: number) => {
    const choice = random();
    if (choice < 0.1) return max;
    return choice < 0.2 ? 1 : Math.floor(max ** random());
  };
  let large = 0;
  for (let run = 0; run < RUNS; run += 1) {
    const prices = Object.fromEntries(
      PRICE_NAMES.filter(() => random() < 0.6)
        .map((name) => [name, upTo(Number.MAX_SAFE_INTEGER)]),
    );
    const used = Object.fromEntries(
      QUANTITY_NAMES.filter(() => random() < 0.6)
        .map((name) => [name, upTo(2 ** 32 - 1)]),
    );
    const nanos = costAt(prices, used);
    assert.ok(Number.isSafeInteger(nanos) && nanos >= 0);
    assert.equal(BigInt(nanos), reference(prices, used));
    if (nanos > 1_000_000_000) large += 1;
  }
  assert.ok(large > RUNS / 10 && large < RUNS, `${large} are large`);
});

Deno.test("costShares() divides a cost among its prices", () => {
  const prices = { input: 1_000_000_000, output: 2_000_000_000, request: 5 };
  const used = { inputTokens: 500_000, outputTokens: 250_000 };
  assert.deepEqual(costShares(prices, used), [
    ["input", 0.5],
    ["output", 0.5],
  ]);
});
