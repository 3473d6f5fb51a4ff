// Promise: a request is charged at the prices of its admission, each token once; and
// what a lease says of its request is what was reserved.
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { type Cost, costsOnly } from "./cost.ts";
import {
  chargeFields,
  leaseId,
  type LeaseTerms,
  nanosReserved,
  nanosToHold,
  priced,
  type Rate,
  rateOf,
  sharesOf,
  termsOf,
} from "./rate.ts";

const backends = [{ type: "openai", base_url: "http://a/v1", model: "m" }];
const CATALOG = parseCatalog({
  models: [
    { id: "m", prices: { input: "1", output: "2", request: "0.5" }, backends },
    { id: "free", backends },
  ],
});
const RATE: Rate = {
  table: "t",
  prices: {
    input: 10_000_000,
    cached_input: 1_000_000,
    cache_write: 20_000_000,
    output: 100_000_000,
    request: 7,
    image: 1_000,
    second: 50,
    million_characters: 3_000_000,
  },
};
const RAN: Cost = { promptTokens: 0, completionTokens: 0, kind: "complete" };

Deno.test("rateOf() is null without prices, and says so of a model without one", () => {
  assert.equal(
    rateOf(parseCatalog({ models: [{ id: "m", backends }] }), "m"),
    null,
  );
  assert.equal(rateOf(CATALOG, null), null);
  const table = CATALOG.prices.id;
  assert.deepEqual(rateOf(CATALOG, "free"), { table, prices: null });
  assert.equal(rateOf(CATALOG, "m")?.prices?.output, 2_000_000_000);
});

Deno.test("priced() pays for no token twice, and for nothing that did not run", () => {
  const cost: Cost = {
    ...RAN,
    promptTokens: 100,
    completionTokens: 5,
    cachedTokens: 60,
    cacheWriteTokens: 10,
  };
  const nanos = 30 * 10 + 60 * 1 + 10 * 20 + 5 * 100 + 7;
  assert.equal(priced(cost, null, RATE).nanos, nanos);
  const none: Cost = { ...RAN, kind: "failed" };
  assert.equal(priced(none, null, RATE).nanos, 0);
  assert.equal(priced({ ...none, completionTokens: 1 }, null, RATE).nanos, 107);
  assert.equal(priced({ ...RAN, unitsMade: 0 }, null, RATE).nanos, 7);
  const costOf = (unitsMade: number) => ({ ...RAN, unitsMade });
  assert.equal(priced(costOf(2), "images", RATE).nanos, 2_007);
  assert.equal(priced(costOf(2), "audioSeconds", RATE).nanos, 107);
  assert.equal(priced(costOf(2), "videoSeconds", RATE).nanos, 107);
  assert.equal(priced(costOf(2), "characters", RATE).nanos, 13);
  const running: Cost = { ...RAN, unitsMade: null };
  assert.deepEqual(priced(running, "videoSeconds", RATE), running);
  assert.deepEqual(priced(cost, null, null), cost);
  const unpriced = priced(cost, null, { table: "t", prices: null });
  assert.equal(unpriced.isUnpriced, true);
  assert.equal(unpriced.nanos, undefined);
});

Deno.test("the log has the exact cost and the table, or that there is no price", () => {
  const cost = priced({ ...RAN, promptTokens: 1 }, null, RATE);
  assert.deepEqual(chargeFields({ cost, rate: RATE }), {
    cost: "0.000000017",
    isUnpriced: undefined,
    priceTable: "t",
  });
  assert.deepEqual(sharesOf(cost, null, RATE), [
    ["input", 1e-8],
    ["request", 7e-9],
  ]);
  assert.deepEqual(chargeFields({ cost: RAN, rate: null }), {});
});

Deno.test("nanosReserved() is the cost of all that is reserved", () => {
  const size = { promptTokens: 10, totalTokens: 15, units: null };
  assert.equal(nanosReserved(size, RATE), 100 + 500 + 7);
  assert.equal(nanosReserved(size, null), 0);
});

Deno.test("nanosToHold() holds the bound of a prompt at its dearest price, and what a file may have", () => {
  const prices = {
    input: 2_000_000,
    cached_input: 1_000_000,
    cache_write: 5_000_000,
    output: 10_000_000,
  };
  const rate = { table: "t", prices };
  const chat = {
    promptTokens: 10,
    totalTokens: 30,
    bounds: { promptTokensMax: 1_000, completionTokensMax: 20 },
    units: null,
  };
  assert.equal(nanosToHold(chat, rate), 25 * 5 + 20 * 10);
  const bounds = { ...chat.bounds, promptTokensMax: 12 };
  assert.equal(nanosToHold({ ...chat, bounds }, rate), 12 * 5 + 20 * 10);
  const recording = costsOnly("audioSeconds");
  const bySecond = { table: "t", prices: { second: 7 } };
  assert.equal(nanosToHold(recording, bySecond), 1);
  const measured = { ...recording, heldUnits: 90 };
  assert.equal(nanosToHold(measured, bySecond), 90 * 7);
  for (const none of [null, { table: "t", prices: null }]) {
    assert.equal(nanosToHold(chat, none), null);
  }
});

Deno.test("termsOf() reads what leaseId() writes, and no other id", () => {
  const terms: LeaseTerms = {
    hour: "2026112809",
    promptTokens: 10,
    completionTokens: 5,
    unit: null,
    count: 0,
    nanos: 607,
    isUnpriced: false,
    suffix: "@chat:org/model:7b@2",
  };
  assert.deepEqual(termsOf(leaseId("abc.1", terms)), terms);
  const images = { ...terms, unit: "images", count: 2, suffix: "" } as const;
  assert.deepEqual(termsOf(leaseId("abc.1", images)), images);
  for (const id of ["abc.1", "", `!${leaseId("a", terms)}~`]) {
    assert.equal(termsOf(id), null);
  }
});
