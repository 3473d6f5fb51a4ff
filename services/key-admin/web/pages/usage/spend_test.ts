/**
 * Guarantee: what was spent is shown as it was settled, by day, model, endpoint and
 * key, and a file of a month adds up to it, to the billionth.
 */
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { formatAmount } from "@gateway/shared/money/amount";
import type { TestClient } from "../../../client_fixture.ts";
import {
  startConsole,
  storedKey,
  type TestConsole,
} from "../../../console_fixture.ts";
import { spendMonths } from "../../../domain/keys/spend_csv.ts";
import { routeOwner } from "../../../routes_fixture.ts";
import { countUse, type UseCounts } from "../../../usage_fixture.ts";
import { money } from "../../view/texts.tsx";

const backends = [{ type: "openai", base_url: "http://a/v1", model: "m" }];
const prices = { input: "1", output: "2" };
const CATALOG = parseCatalog({
  models: [{ id: "small-1", prices, backends }, { id: "free-1", backends }],
}, "EUR");

const textOf = async (client: TestClient, path: string) =>
  (await client.get(path)).text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ");

/** The last cells of each line: from the endpoint on. */
async function linesOf(client: TestClient, path: string): Promise<string[]> {
  const { text } = await client.get(path);
  return text.trimEnd().split("\r\n").slice(1).map((line) =>
    line.split(",").slice(6).join(" ")
  );
}

/** The name of the current month. */
function monthOf({ deps }: TestConsole): string {
  const [{ name } = { name: "" }] = spendMonths(deps.now(), deps.budgetZone);
  return name;
}

/** A console with two keys of an owner that have spent something. */
async function startSpent() {
  const site = await startConsole({ catalog: CATALOG });
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const count = (
    counts: UseCounts,
    { model = "small-1", id = keyId }: { model?: string; id?: string } = {},
  ) =>
    countUse(site, { ownerId, keyId: id }, {
      atMs: site.deps.now(),
      counts,
      model,
      endpoint: "chat",
    });
  await count({
    requests: 3,
    cost: 1_234_567_891,
    lostRequests: 1,
    lostCost: 4,
  });
  await count({ requests: 2, unpriced: 2 }, { model: "free-1" });
  await count({ requests: 1, cost: 7 }, { id: `key_${"9".repeat(20)}` });
  return { site, client, keyId };
}

Deno.test("spend is shown by key, model and endpoint, and what has no price as that", async () => {
  const { site, client, keyId } = await startSpent();
  await using _ = site;
  const usage = await textOf(client, "/usage");
  for (
    const part of [
      "Cost €1.23 Estimated of that",
      "Estimated of that €0.000000004",
      "Requests without a price 2",
      "Estimated requests 1",
      "small-1 €1.23 4",
      "free-1 No price 2",
      "Chat €1.23 some without price 6",
      "Deleted keys and Try it €0.000000007 1",
    ]
  ) assert.ok(usage.includes(part), `${part} in ${usage}`);
  assert.ok((await textOf(client, "/keys")).includes("Cost today"));
  assert.ok((await textOf(client, "/keys")).includes("€1.23"));
  assert.ok((await textOf(client, `/keys/${keyId}`)).includes("€1.23"));
});

Deno.test("the file of a month has every billionth, and of deleted keys, too", async () => {
  const { site, client } = await startSpent();
  await using _ = site;
  const month = monthOf(site);
  const lines = await linesOf(client, `/usage/spend.csv?month=${month}`);
  assert.deepEqual(lines.sort(), [
    "chat free-1 2 2 0 0 0 EUR",
    "chat small-1 1 0 0 0.000000007 0 EUR",
    "chat small-1 3 0 1 1.234567891 0.000000004 EUR",
  ]);
  assert.deepEqual((await linesOf(client, "/usage/spend.csv")).sort(), lines);
  for (const wrong of ["2020-01", "x", "2026-13"]) {
    const { status } = await client.get(`/usage/spend.csv?month=${wrong}`);
    assert.equal(status, 404);
  }
  const hourly = (await client.get("/usage/export.csv")).text;
  assert.ok(hourly.includes("1.234567891"));
});

Deno.test("operators file what all accounts spent in a month, and nobody else gets that", async () => {
  const { site, client } = await startSpent();
  await using _ = site;
  const { projects, owners } = site.deps;
  const operator = await site.signedIn("op@example.org", "192.0.2.9");
  await owners.giveRole(await owners.find("op@example.org") ?? "");
  const { id } = await projects.create(
    { by: "op@example.org", ip: "", ownerId: null, as: "operator" },
    { name: "=Search", adminId: null },
  );
  const { id: keyId } = await storedKey(site, id);
  await countUse(site, { ownerId: id, keyId }, {
    atMs: site.deps.now(),
    counts: { requests: 1, cost: 5 },
    model: "small-1",
    endpoint: "chat",
  });
  const month = monthOf(site);
  const path = `/people/usage/spend.csv?month=${month}`;
  assert.deepEqual((await linesOf(operator, path)).sort(), [
    "chat free-1 2 2 0 0 0 EUR",
    "chat small-1 1 0 0 0.000000005 0 EUR",
    "chat small-1 1 0 0 0.000000007 0 EUR",
    "chat small-1 3 0 1 1.234567891 0.000000004 EUR",
  ]);
  const { text, headers } = await operator.get(path);
  assert.match(text, new RegExp(`^${month},"'=Search",${id},${keyId},`, "m"));
  assert.match(
    headers.get("content-disposition") ?? "",
    new RegExp(`spend-${month}\\.csv`),
  );
  const { text: page } = await operator.get("/people/usage");
  assert.match(page, /people\/usage\/spend\.csv/);
  assert.equal((await client.get(path)).status, 404);
});

Deno.test("without prices no page speaks of cost", async () => {
  await using site = await startConsole();
  const { client } = await routeOwner(site, 1);
  for (const path of ["/keys", "/usage"]) {
    assert.doesNotMatch(await textOf(client, path), /\bCost\b|Spend of/);
  }
});

Deno.test("spendMonths() offers months of which no hour is gone, in any time zone", () => {
  const at = (time: string, zone = "UTC") =>
    spendMonths(Date.parse(time), zone).map(({ name }) => name);
  assert.deepEqual(at("2026-12-05T12:00:00Z"), ["2026-12", "2026-11"]);
  assert.deepEqual(at("2026-12-25T12:00:00Z"), ["2026-12"]);
  assert.deepEqual(at("2027-01-01T12:00:00Z"), ["2027-01", "2026-12"]);
  // On the tenth, November of UTC is whole. That of Tokyo began on October 31.
  assert.deepEqual(at("2026-12-10T12:00:00Z"), ["2026-12", "2026-11"]);
  assert.deepEqual(at("2026-12-10T12:00:00Z", "Asia/Tokyo"), ["2026-12"]);
  assert.deepEqual(at("2026-11-30T15:00:00Z", "Asia/Tokyo"), [
    "2026-12",
    "2026-11",
  ]);
});

Deno.test("the file of a month has the hours that budgets of that month count", async () => {
  const budgetZone = "America/New_York";
  await using site = await startConsole({ catalog: CATALOG, budgetZone });
  site.clock.nowMs = Date.parse("2026-12-02T12:00:00Z");
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  // The month begins there at 04:00 UTC, and the next one at 05:00: clocks change.
  const costs = [
    ["2026-11-01T03:30:00Z", 1],
    ["2026-11-01T04:30:00Z", 10],
    ["2026-11-29T11:00:00Z", 100],
    ["2026-12-01T04:30:00Z", 1_000],
    ["2026-12-01T05:30:00Z", 10_000],
  ] as const;
  for (const [time, cost] of costs) {
    await countUse(site, { ownerId, keyId }, {
      atMs: Date.parse(time),
      counts: { requests: 1, cost },
      model: "small-1",
      endpoint: "chat",
    });
  }
  const spentIn = async (month: string) =>
    await linesOf(client, `/usage/spend.csv?month=${month}`);
  assert.deepEqual(await spentIn("2026-11"), [
    "chat small-1 3 0 0 0.00000111 0 EUR",
  ]);
  assert.deepEqual(await spentIn("2026-12"), [
    "chat small-1 1 0 0 0.00001 0 EUR",
  ]);
});

Deno.test("money() shows small amounts with more decimals", () => {
  assert.equal(money(0, "USD"), "$0.00");
  assert.equal(money(1_234_567_890_000, "USD"), "$1,234.57");
  assert.equal(money(1_234_000, "USD"), "$0.001234");
  assert.equal(money(7, "USD"), "$0.000000007");
  assert.equal(money(-1_500_000_000, "USD"), "-$1.50");
  assert.equal(formatAmount(1_234_000), "0.001234");
});
