/** The prices of a model, and what a request costs at them. */
import { NANOS_PER_UNIT } from "./amount.ts";

/** The prices of tokens, each for a million. Reasoning is a part of the output. */
export const TOKEN_PRICES = [
  "input",
  "cached_input",
  "cache_write",
  "output",
] as const;
/** All prices. That of a second is of audio or video. */
export const PRICE_NAMES = [
  ...TOKEN_PRICES,
  "request",
  "image",
  "second",
  "million_characters",
] as const;
/** What has a price. */
export type PriceName = typeof PRICE_NAMES[number];

/** Prices in billionths; an absent one is none: that costs nothing. */
export type Prices = { readonly [name in PriceName]?: number };

/** What was used of everything that may have a price: whole numbers, not negative. */
export type Quantities = { readonly [name in QuantityName]?: number };

/** No token is in two of the buckets. */
export const QUANTITY_NAMES = [
  "inputTokens",
  "cachedTokens",
  "cacheWriteTokens",
  "outputTokens",
  "requests",
  "images",
  "seconds",
  "characters",
] as const;
type QuantityName = typeof QUANTITY_NAMES[number];

/** The quantity of each price, and to how many of it the price applies. */
const TERMS: Readonly<
  Record<PriceName, { quantity: QuantityName; per: number }>
> = {
  input: { quantity: "inputTokens", per: 1_000_000 },
  cached_input: { quantity: "cachedTokens", per: 1_000_000 },
  cache_write: { quantity: "cacheWriteTokens", per: 1_000_000 },
  output: { quantity: "outputTokens", per: 1_000_000 },
  request: { quantity: "requests", per: 1 },
  image: { quantity: "images", per: 1 },
  second: { quantity: "seconds", per: 1 },
  million_characters: { quantity: "characters", per: 1_000_000 },
};

/** Parts of a billionth in which is calculated, because prices are for a million. */
const PARTS = 1_000_000;
/**
 * The most that one request may cost: 45,000 units of the currency. A script in Redis
 * adds up 200 of them, in doubles, and must not pass 2^53 billionths.
 */
export const COST_NANOS_MAX = 45_000 * NANOS_PER_UNIT;

/**
 * The cost of quantities in billionths: the exact sum, rounded once, half up. Example:
 * 3 tokens at 0.5 for a million are 1,500 billionths. At most {@link COST_NANOS_MAX}.
 */
export function costAt(prices: Prices, quantities: Quantities): number {
  let sum = 0;
  for (const name of PRICE_NAMES) sum += partsOf(name, prices, quantities);
  // Every summand is rounded, if at all, to a larger one than 2^53.
  const parts = sum + PARTS / 2;
  if (parts <= Number.MAX_SAFE_INTEGER) return Math.floor(parts / PARTS);
  return Math.min(exactCost(prices, quantities), COST_NANOS_MAX);
}

/**
 * What each of the prices has to do with the cost, in units of the currency. For
 * metrics: not rounded.
 */
export function costShares(
  prices: Prices,
  quantities: Quantities,
): [name: PriceName, units: number][] {
  return PRICE_NAMES.map((name): [PriceName, number] => [
    name,
    partsOf(name, prices, quantities) / PARTS / NANOS_PER_UNIT,
  ]).filter(([, units]) => units > 0);
}

function partsOf(
  name: PriceName,
  { [name]: price = 0 }: Prices,
  quantities: Quantities,
): number {
  const { quantity, per } = TERMS[name];
  return price * (quantities[quantity] ?? 0) * (PARTS / per);
}

/** The same where doubles do not suffice. */
function exactCost(prices: Prices, quantities: Quantities): number {
  let parts = BigInt(PARTS / 2);
  for (const name of PRICE_NAMES) {
    const { quantity, per } = TERMS[name];
    parts += BigInt(prices[name] ?? 0) * BigInt(quantities[quantity] ?? 0) *
      BigInt(PARTS / per);
  }
  return Number(parts / BigInt(PARTS));
}
