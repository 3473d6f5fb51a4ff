// Promise: what a request costs follows from the usage that its answer states; and the
// answer, the log, the usage of key and owner and the metric all say the same. A budget
// that is spent refuses for good, one that others hold for a moment, and both say why.
import assert from "node:assert/strict";
import { DEFAULT_MODEL_ID, parseCatalog } from "@gateway/shared/models/catalog";
import { formatAmount, parseAmount } from "@gateway/shared/money/amount";
import { callApi } from "../support/chat_request.ts";
import {
  hello,
  type ScriptedCall,
} from "../support/model_servers/scripted_model_server.ts";
import { usageCounted } from "../support/limits/admission_fixture.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { until } from "../support/wait_for.ts";

const MODEL = {
  id: DEFAULT_MODEL_ID,
  backends: [{
    type: "openai" as const,
    base_url: "http://a/v1",
    model: "m",
    dialect: "vllm",
  }],
};
const PRICED = parseCatalog({
  models: [{
    ...MODEL,
    prices: { input: "2.5", output: "10.000001", request: "0.000000003" },
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

Deno.test("the answer, the log and the usage say what a request costs, and refusals what is left", async () => {
  const waiting: ScriptedCall[] = [];
  let keepsWaiting = false;
  await using gateway = await startGateway("limited", {
    edges: 2,
    showsCost: true,
    door: { catalog: PRICED },
    onCall: (call) => keepsWaiting ? waiting.push(call) : hello(call),
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
  await checkLostPrice(gateway);
  assert.match(formatAmount(total), /^0\.\d{1,9}$/);
  await checkRefusals(gateway);
  await checkEndUsers(gateway);
  keepsWaiting = true;
  await checkHeldRefusal(gateway, waiting);
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

/** The list loses the price of a model while a request runs, and gets it back. */
async function checkLostPrice(gateway: LimitedGateway): Promise<void> {
  const priced = PRICED.file;
  const budgeted = await gateway.addKey({ limits: { budgetTotal: 1_000_000 } });
  const free = await gateway.addKey();
  const lease = await gateway.edge.limiter.admit(budgeted, {
    scope: "chat",
    model: DEFAULT_MODEL_ID,
    endpoint: "chat",
    wantTokens: 1,
    wantNanos: 5,
    rate: { table: "t", prices: { request: 3 } },
  });
  assert.ok(lease.isAdmitted);
  const other = { ...MODEL, id: "other", prices: { request: "1" } };
  PRICED.replace(parseCatalog({ models: [MODEL, other] }).file);
  const refused = await gateway.ask(budgeted);
  const { error } = await refused.json();
  assert.equal(refused.status, 403);
  assert.match(error.message, /^This model has no price/);
  // Without a budget it is served, and counted as one without a price.
  assert.equal(await gateway.status(free), 200);
  await gateway.settled(free);
  const usage = await usageCounted(gateway.world, free);
  assert.deepEqual([usage.unpriced, usage.cost], [1, 0]);
  // What runs pays what it was admitted for.
  await gateway.edge.limiter.settle(lease, {
    promptTokens: 0,
    completionTokens: 1,
    nanos: 3,
    kind: "complete",
  });
  assert.equal((await usageCounted(gateway.world, budgeted)).cost, 3);
  PRICED.replace(priced);
  assert.equal(await gateway.status(budgeted), 200);
}

/** What an answer says about trying again. */
const retryOf = ({ headers }: Response) => ({
  shouldRetry: headers.get("x-should-retry"),
  seconds: Number(headers.get("retry-after")),
});

async function checkRefusals(gateway: LimitedGateway): Promise<void> {
  const dayKey = await gateway.addKey({ limits: { budgetDay: 1 } });
  const totalKey = await gateway.addKey({ ownerLimits: { budgetTotal: 1 } });
  for (const key of [dayKey, totalKey]) {
    assert.equal(await gateway.status(key), 200);
    await gateway.settled(key);
  }
  const chat = await gateway.ask(dayKey);
  const { error } = await chat.json();
  assert.equal(chat.status, 429);
  assert.deepEqual([error.code, error.type, error.param], [
    "insufficient_quota",
    "insufficient_quota",
    null,
  ]);
  assert.match(
    error.message,
    /^The budget of this API key for this day .*: 0\.\d+ of 0\.000000001 USD spent, 0 held by running requests\. It is reset at \d{4}-\d\d-\d\dT00:00:00Z/,
  );
  const toMidnightS = 86_400 - await gateway.world.time() / 1_000 % 86_400;
  const { shouldRetry, seconds } = retryOf(chat);
  assert.equal(shouldRetry, "false");
  assert.ok(Math.abs(seconds - toMidnightS) < 60, `${seconds} s`);

  const messages = await callApi(
    `${gateway.baseUrl()}/messages`,
    totalKey.value,
    {
      body: {
        model: DEFAULT_MODEL_ID,
        max_tokens: 5,
        messages: [{ role: "user", content: "ping" }],
      },
    },
  );
  const body = await messages.json();
  assert.equal(messages.status, 429, JSON.stringify(body));
  assert.deepEqual([body.type, body.error.type], ["error", "billing_error"]);
  assert.match(body.error.message, /^The budget of your account for all time/);
  assert.match(body.error.message, /It is not reset/);
  assert.equal(retryOf(messages).shouldRetry, "false");
  assert.equal(messages.headers.get("retry-after"), null);
}

const SESSION_ID = "0f8fad5b-d9cb-469f-a165-70867728950e";
/** Two end users of each source, as clients name them. */
const END_USERS: readonly {
  from: string;
  path: string;
  who: readonly { headers?: Record<string, string>; body?: object }[];
}[] = [
  {
    from: "header:x-user-id",
    path: "chat/completions",
    who: [{ headers: { "X-User-Id": "ada" } }, {
      headers: { "x-user-id": "" },
    }],
  },
  {
    from: "user",
    path: "chat/completions",
    who: [{ body: { user: "ada" } }, { body: { user: "bob" } }],
  },
  {
    from: "session",
    path: "messages",
    who: [
      { headers: { "x-claude-code-session-id": "a" } },
      {
        body: {
          metadata: { user_id: `user_1_account__session_${SESSION_ID}` },
        },
      },
    ],
  },
  {
    from: "session",
    path: "chat/completions",
    who: [{ headers: { session_id: "a" } }, {
      body: { prompt_cache_key: "b" },
    }],
  },
];

/** Each of them has one request a minute, and one that is refused takes nothing. */
async function checkEndUsers(gateway: LimitedGateway): Promise<void> {
  for (const { from, path, who } of END_USERS) {
    const key = await gateway.addKey({ endUsers: `${from} 1 0 0` });
    for (const [n, { headers = {}, body = {} }] of who.entries()) {
      const messages = [{ role: "user", content: "ping" }];
      const request = { model: DEFAULT_MODEL_ID, max_tokens: 5, messages };
      const ask = (edge: number) =>
        callApi(`${gateway.baseUrl(edge)}/${path}`, key.value, {
          headers,
          body: { ...request, ...body },
        });
      const first = await ask(0);
      const text = await first.text();
      // The scripted server speaks no messages, but the request was admitted.
      assert.ok(first.status !== 429, `${from} ${n}: ${text}`);
      const second = await ask(1);
      const { error } = await second.json();
      assert.equal(second.status, 429, `${from} ${n}`);
      assert.match(
        error.message,
        /^Limit of requests per minute reached for this end user\./,
      );
    }
  }
}

async function checkHeldRefusal(
  gateway: LimitedGateway,
  waiting: ScriptedCall[],
): Promise<void> {
  const key = await gateway.addKey({ limits: { budgetMonth: 1 } });
  const running = gateway.ask(key);
  await until(() => waiting.length === 1);
  const held = await gateway.ask(key);
  const { error } = await held.json();
  assert.deepEqual([held.status, error.code], [429, "rate_limit_exceeded"]);
  assert.match(
    error.message,
    /this month .*: 0 of 0\.000000001 USD spent, 0\.000000001 held/,
  );
  assert.deepEqual(retryOf(held), { shouldRetry: null, seconds: 1 });
  for (const call of waiting) hello(call);
  assert.equal(await readStatus(running), 200);
  await gateway.settled(key);
}
