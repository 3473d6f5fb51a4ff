// Promise: what a request costs follows from the usage that its answer states; and the
// answer, the log, the usage of key and owner and the metric all say the same.
import assert from "node:assert/strict";
import { DEFAULT_MODEL_ID, parseCatalog } from "@gateway/shared/models/catalog";
import { formatAmount, parseAmount } from "@gateway/shared/money/amount";
import { usageCounted } from "../support/limits/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { until } from "../support/wait_for.ts";

const PRICED = parseCatalog({
  models: [{
    id: DEFAULT_MODEL_ID,
    prices: { input: "2.5", output: "10.000001", request: "0.000000003" },
    backends: [{ type: "openai", base_url: "http://a/v1", model: "m" }],
  }],
});

interface Stated {
  prompt_tokens: number;
  completion_tokens: number;
  cost: number;
}

/** In billionths, by hand: no price of a cache, because the server states no cache. */
const nanosOf = ({ prompt_tokens, completion_tokens }: Stated) =>
  Math.round(prompt_tokens * 2_500 + completion_tokens * 10_000.001 + 3);

async function statedBy(
  gateway: LimitedGateway,
  key: TestKey,
  { stream, edge }: { stream: boolean; edge: number },
): Promise<Stated> {
  const body = stream
    ? { stream, stream_options: { include_usage: true } }
    : {};
  const response = await gateway.ask(key, { edge, body });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  const json = stream
    ? text.split("\n").findLast((line) => line.includes('"usage":{'))?.slice(6)
    : text;
  return JSON.parse(json ?? "").usage;
}

Deno.test("the answer, the log and the usage say what a request costs", async () => {
  await using gateway = await startGateway("limited", {
    edges: 2,
    showsCost: true,
    door: { catalog: PRICED },
  });
  const key = await gateway.addKey();
  let total = 0;
  for (const stream of [false, true]) {
    for (const edge of [0, 1]) {
      const usage = await statedBy(gateway, key, { stream, edge });
      assert.equal(parseAmount(usage.cost.toFixed(9)), nanosOf(usage));
      total += nanosOf(usage);
    }
  }
  await until(async () =>
    (await usageCounted(gateway.world, key)).requests === 4
  );
  const { cost, unpriced } = await usageCounted(gateway.world, key);
  assert.deepEqual({ cost, unpriced }, { cost: total, unpriced: 0 });
  const lines = gateway.edges.flatMap(({ log }) => log.lines)
    .filter(({ event }) => event === "chat");
  const costs = lines.map(({ fields }) => parseAmount(String(fields.cost)));
  assert.equal(
    costs.reduce<number>((sum, each) => sum + Number(each), 0),
    total,
  );
  for (const { fields: { priceTable } } of lines) {
    assert.equal(priceTable, PRICED.prices.id);
  }
  assert.match(formatAmount(total), /^0\.\d{1,9}$/);
});

Deno.test("without prices neither the answer nor the usage says a cost", async () => {
  await using gateway = await startGateway("limited", { showsCost: true });
  const key = await gateway.addKey();
  const usage = await statedBy(gateway, key, { stream: false, edge: 0 });
  assert.equal(usage.cost, undefined);
  await until(async () =>
    (await usageCounted(gateway.world, key)).requests === 1
  );
  const { cost, unpriced } = await usageCounted(gateway.world, key);
  assert.deepEqual({ cost, unpriced }, { cost: 0, unpriced: 0 });
  const line = gateway.edge.log.find("chat");
  assert.deepEqual([line?.cost, line?.priceTable], [undefined, undefined]);
});
