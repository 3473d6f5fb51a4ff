/** Prices in the list of models, and mistakes in them. */
import assert from "node:assert/strict";
import { ConfigError } from "../process/env.ts";
import { parseCatalog } from "./catalog.ts";
import { entryFor } from "./price_list.ts";

const openai = { type: "openai", base_url: "http://a/v1" };
const backends = [{ ...openai, model: "m" }];

const withPrices = (prices: unknown, more: object = {}) => (
  { models: [{ id: "m", backends, prices, ...more }] }
);

Deno.test("prices are read as billionths, and those of caches default to input", () => {
  const read = (prices: object) => parseCatalog(withPrices(prices)).get("m");
  assert.deepEqual(read({ input: "2.50", output: "10" })?.prices, {
    input: 2_500_000_000,
    cached_input: 2_500_000_000,
    cache_write: 2_500_000_000,
    output: 10_000_000_000,
  });
  const prices = read({
    input: "3",
    cached_input: "0.3",
    cache_write: "3.75",
    output: "0",
    request: "0.000000001",
  })?.prices;
  assert.deepEqual(prices, {
    input: 3_000_000_000,
    cached_input: 300_000_000,
    cache_write: 3_750_000_000,
    output: 0,
    request: 1,
  });
  assert.deepEqual(read({ request: "1" })?.prices, { request: 1_000_000_000 });
  const free = parseCatalog({ models: [{ id: "m", backends }] });
  assert.equal(free.get("m")?.prices, undefined);
});

const WRONG: readonly { prices: unknown; kind?: string; says: RegExp }[] = [
  { prices: {}, says: /^models\[0\]\.prices: expected at least one price$/ },
  { prices: { input: 2.5, output: "1" }, says: /prices\.input: expected a/ },
  { prices: { input: "-1", output: "1" }, says: /input: .*not negative/ },
  { prices: { input: "1e3", output: "1" }, says: /input: expected a decimal/ },
  {
    prices: { input: "0.0000000001", output: "1" },
    says: /at most 9 decimals/,
  },
  { prices: { input: "9007200", output: "1" }, says: /at most 9007199/ },
  { prices: { output: "1" }, says: /prices\.input: missing: say "0"/ },
  { prices: { cached_input: "1" }, says: /prices\.input: missing: say "0"/ },
  { prices: { input: "1" }, says: /prices\.output: missing: say "0"/ },
  {
    prices: { inptu: "1", request: "1" },
    says: /unknown member 'inptu', did you mean/,
  },
  { prices: { image: "1" }, says: /image: models of the kind "chat" have no/ },
  {
    prices: { input: "1", output: "1" },
    kind: "embedding",
    says: /output: models of the kind "embedding" have no such price: only/,
  },
  {
    prices: { input: "1", cached_input: "2" },
    kind: "embedding",
    says: /cached_input: models of the kind "embedding"/,
  },
  { prices: { second: "1" }, kind: "image", says: /second: models of the/ },
];

Deno.test("a mistake in prices is named with its place", () => {
  for (const { prices, kind = "chat", says } of WRONG) {
    assert.throws(
      () => parseCatalog(withPrices(prices, { kind })),
      (error) => {
        assert.ok(error instanceof ConfigError);
        assert.equal(error.mistakes.length, 1, error.message);
        assert.match(error.mistakes[0] ?? "", says);
        return true;
      },
    );
  }
});

Deno.test("models that servers list have the prices of their names", () => {
  const server = (name: string, prices: object) => (
    { ...openai, name, discover: { prefix: `${name}/`, prices } }
  );
  const catalog = parseCatalog({
    servers: [
      server("a", {
        "gpt-*": { input: "1", output: "1" },
        "gpt-large": { input: "9", output: "9" },
        "embed-*": { input: "2", output: "2" },
      }),
      server("b", { "*": { input: "4", output: "4" } }),
    ],
  });
  catalog.list({
    a: ["a/gpt-small", "a/gpt-large", "a/embed-1", "a/other"],
    b: ["b/x"],
  });
  const input = (id: string) => catalog.get(id)?.prices?.input;
  assert.equal(input("a/gpt-small"), 1_000_000_000);
  assert.equal(input("a/gpt-large"), 9_000_000_000);
  assert.equal(input("a/other"), undefined);
  assert.equal(input("b/x"), 4_000_000_000);
  // The price of a model that makes no output cannot be meant.
  assert.equal(input("a/embed-1"), undefined);
});

Deno.test("the table of prices has an id, which only its content changes", () => {
  const id = (file: unknown, currency = "USD") =>
    parseCatalog(file, currency).prices.id;
  const prices = { input: "1", output: "2" };
  const table = id(withPrices(prices));
  assert.match(table ?? "", /^[0-9a-f]{12}$/);
  assert.equal(id({ models: [{ id: "m", backends }] }), null);
  const same = { output: "2.0", cached_input: "1", input: "1.00" };
  assert.equal(id(withPrices(same, { owned_by: "other" })), table);
  const others = [
    id(withPrices({ ...prices, output: "2.000000001" })),
    id(withPrices(prices, { id: "n" })),
    id(withPrices(prices), "EUR"),
    id({
      servers: [{ ...openai, name: "m", discover: { prices: { m: prices } } }],
    }),
  ];
  assert.equal(new Set([table, ...others]).size, 5);
});

Deno.test("entryFor() finds a name before a beginning, and the longest of those", () => {
  const entries = { "a*": 1, "ab*": 2, abc: 3 };
  const names = ["abc", "abd", "ax", "x", "toString"];
  const found = names.map((name) => entryFor(entries, name));
  assert.deepEqual(found, [3, 2, 1, undefined, undefined]);
});
