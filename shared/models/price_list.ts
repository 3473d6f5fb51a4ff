/** The prices in `models.json`, and the table that they are together. */
import { createHash } from "node:crypto";
import { z } from "zod";
import { AMOUNT_FAULTS, parseAmount } from "../money/amount.ts";
import {
  PRICE_NAMES,
  type PriceName,
  type Prices,
  TOKEN_PRICES,
} from "../money/prices.ts";
import { members, textOf } from "./backend.ts";
import type { ModelKind } from "./kinds.ts";

/** The prices that requests to models of a kind may have. */
const PRICES_OF_KIND: Readonly<Record<ModelKind, readonly PriceName[]>> = {
  chat: [...TOKEN_PRICES, "request"],
  embedding: ["input", "request"],
  rerank: ["input", "request"],
  image: ["image", "request"],
  speech: ["million_characters", "request"],
  transcription: ["second", "request"],
  video: ["second", "request"],
};

const amount = (description: string) =>
  z.string({ error: AMOUNT_FAULTS.form }).transform((text, context) => {
    const read = parseAmount(text);
    if (typeof read === "number") return read;
    context.addIssue({ code: "custom", message: AMOUNT_FAULTS[read] });
    return z.NEVER;
  }).optional().describe(`${description}, as a decimal such as "2.50".`);

/** The prices of a model, in units of the currency; read as billionths. */
export const pricesSchema = members({
  input: amount("A million tokens of input that no cache had"),
  cached_input: amount(
    "A million tokens of input that were read from a cache (default: input)",
  ),
  cache_write: amount(
    "A million tokens of input that were written to a cache (default: input)",
  ),
  output: amount("A million tokens of output, with reasoning"),
  request: amount("A request that has run"),
  image: amount("An image that was made"),
  second: amount("A second of a recording or a video"),
  million_characters: amount("A million characters that are spoken"),
}).superRefine((prices, context) => {
  const fail = (message: string, path: string[] = []) =>
    context.addIssue({ code: "custom", message, path });
  const isGiven = (name: PriceName) => prices[name] !== undefined;
  if (!PRICE_NAMES.some(isGiven)) fail("expected at least one price");
  const ofCache = [...TOKEN_PRICES].filter((name) => name.startsWith("cache"));
  const isInTokens = isGiven("output") || ofCache.some(isGiven);
  if (isInTokens && !isGiven("input")) {
    fail('missing: say "0" if input costs nothing', ["input"]);
  }
}).transform(({ input, ...prices }): Prices => {
  if (input === undefined) return definedPrices(prices);
  return definedPrices({
    cached_input: input,
    cache_write: input,
    input,
    ...definedPrices(prices),
  });
}).describe(
  "What requests cost, in the currency of CURRENCY. If absent, the model has no price, and its requests count as 0.",
);

/** Without members that are undefined. */
function definedPrices(
  prices: { [name in PriceName]?: number | undefined },
): Prices {
  const entries = PRICE_NAMES.map((name) => [name, prices[name]] as const)
    .filter(([, price]) => price !== undefined);
  return Object.fromEntries(entries);
}

/** Prices by the names of a server's models, or by beginnings of names. */
export const discoveredPricesSchema = z.record(
  textOf(
    /^[^*\p{Cc}]{0,200}\*?$/u,
    "a name, or the beginning of names and '*'",
  ),
  pricesSchema,
);

/** The mistakes in the prices of a model of a kind: which, and what is wrong. */
export function priceMistakes(
  kind: ModelKind,
  prices: Prices,
): { name: PriceName; message: string }[] {
  const allowed = PRICES_OF_KIND[kind];
  const isDefault = (name: PriceName) =>
    name.startsWith("cache") && prices[name] === prices.input;
  const mistakes = PRICE_NAMES
    .filter((name) => prices[name] !== undefined)
    .filter((name) => !allowed.includes(name) && !isDefault(name))
    .map((name) => ({
      name,
      message: `models of the kind "${kind}" have no such price: only ${
        allowed.join(", ")
      }`,
    }));
  if (kind === "chat" && "input" in prices && !("output" in prices)) {
    const message = 'missing: say "0" if output costs nothing';
    mistakes.push({ name: "output", message });
  }
  return mistakes;
}

/** The entry of a record for a name: its own, else that of its longest beginning. */
export function entryFor<Value>(
  entries: Readonly<Record<string, Value>>,
  name: string,
): Value | undefined {
  if (Object.hasOwn(entries, name)) return entries[name];
  const [longest] = Object.keys(entries)
    .filter((each) => each.endsWith("*") && name.startsWith(each.slice(0, -1)))
    .sort((a, b) => b.length - a.length);
  return longest === undefined ? undefined : entries[longest];
}

/** The prices that are in force, by models and servers. */
export interface PriceTable {
  /** What the amounts are in, as ISO 4217 names it. */
  readonly currency: string;
  /**
   * Names the content: the same prices in the same currency have the same. Null: no
   * model has a price.
   */
  readonly id: string | null;
}

/** The currency of a list that does not say. */
export const CURRENCY_DEFAULT = "USD";
const ID_CHARS = 12;

/** What a file says of prices. */
interface PricedFile {
  readonly models: readonly {
    readonly id: string;
    readonly prices?: Prices | undefined;
  }[];
  readonly servers: readonly {
    readonly name: string;
    readonly prices: Readonly<Record<string, Prices>>;
  }[];
}

/** Makes the table of all prices of a file, in a currency. */
export function priceTable(
  { models, servers }: PricedFile,
  currency: string,
): PriceTable {
  const rows = [
    ...models.map(({ id, prices }) => ["model", id, prices]),
    ...servers.flatMap(({ name, prices }) =>
      Object.entries(prices).map((entry) => ["server", name, ...entry])
    ),
  ].filter((row) => row.at(-1) !== undefined)
    .map((row) => JSON.stringify(row)).sort();
  if (rows.length === 0) return { currency, id: null };
  const text = JSON.stringify([currency, ...rows]);
  const id = createHash("sha256").update(text).digest("hex");
  return { currency, id: id.slice(0, ID_CHARS) };
}
