/** A change of the currency is noticed once. */
import assert from "node:assert/strict";
import { startRedis } from "../../redis_fixture.ts";
import { keepCurrency } from "./currency.ts";

Deno.test("keepCurrency() tells of a change once, and of none at the first start", async () => {
  await using redis = await startRedis();
  const link = await redis.connect("key-admin");
  const starts = [
    { currency: "USD", before: null },
    { currency: "USD", before: null },
    { currency: "EUR", before: "USD" },
    { currency: "EUR", before: null },
    { currency: "USD", before: "EUR" },
  ];
  for (const { currency, before } of starts) {
    assert.equal(await keepCurrency(link, currency), before);
  }
});
