// Promise: every answer to which limits apply states their values and, if it is a
// refusal, how long to wait. That the waits are right:
// `services/edge-auth/limits/limiter_test.ts`.
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import type { Limits } from "@gateway/shared/keys/record";
import { rawExchange } from "../conformance/context.ts";
import { RefusedBodies } from "../../services/edge-auth/http/read_body.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway } from "../support/gateway/limited.ts";
import { hello } from "../support/model_servers/scripted_model_server.ts";

const GO_DURATION = /^(\d+ms|(\d+h)?(\d+m)?\d+(\.\d+)?s)$/;
const MS_PER_DAY = 86_400_000;

function assertLimitHeaders({ headers }: Response): void {
  for (const what of ["limit", "remaining", "reset"]) {
    for (const unit of ["requests", "tokens"]) {
      const value = headers.get(`x-ratelimit-${what}-${unit}`) ?? "";
      assert.match(value, what === "reset" ? GO_DURATION : /^\d+$/, what);
    }
  }
}

/** What a 429 tells of the wait, in ms, after checking that its parts agree. */
function toldWaitMs({ headers }: Response): number {
  const exactMs = Number(headers.get("retry-after-ms"));
  const seconds = Number(headers.get("retry-after"));
  assert.ok(Number.isSafeInteger(exactMs) && exactMs >= 1, String(exactMs));
  assert.equal(seconds, Math.max(1, Math.ceil(exactMs / 1_000)));
  return exactMs;
}

const WIDE = { requestsPerMinute: 1_000, tokensPerMinute: 1_000_000 };
const say = (content: string) => ({ messages: [{ role: "user", content }] });
const HOLD = { ...say("hold"), stream: true };

/** What uses a limit up, how many requests pass, and what the next one then hears. */
const CASES: readonly {
  limit: Partial<Limits>;
  body: object;
  passes: number;
  type: string;
  waitMsMax: number;
  shouldRetry: string | null;
}[] = [
  {
    limit: { requestsPerMinute: 60 },
    body: {},
    passes: 60,
    type: "requests",
    waitMsMax: 1_000,
    shouldRetry: null,
  },
  {
    // So few that a slow machine, too, asks faster than they refill.
    limit: { tokensPerMinute: 600 },
    body: { ...say("500"), max_tokens: 500 },
    passes: 1,
    type: "tokens",
    waitMsMax: 3_000,
    shouldRetry: null,
  },
  {
    limit: { tokensPerDay: 100 },
    body: { ...say("150"), max_tokens: 150 },
    passes: 1,
    type: "tokens",
    waitMsMax: MS_PER_DAY,
    shouldRetry: "false",
  },
  {
    limit: { concurrency: 1 },
    body: HOLD,
    passes: 1,
    type: "requests",
    waitMsMax: 1_000,
    shouldRetry: null,
  },
];

/** Uses a limit up, and checks what the next request hears. */
async function assertRefusal(
  gateway: LimitedGateway,
  { limit, body, passes, type, waitMsMax, shouldRetry }: typeof CASES[number],
): Promise<void> {
  const key = await gateway.addKey({ limits: { ...WIDE, ...limit } });
  const streams: Response[] = [];
  for (let count = 0; count < passes; count += 1) {
    const response = await gateway.ask(key, { body });
    assert.equal(response.status, 200, `request ${count}`);
    if ("stream" in body) streams.push(response);
    else await response.text();
  }
  if (streams.length === 0) await gateway.settled(key);
  let refused = await gateway.ask(key);
  // A slow machine may have won a request or two by now.
  while (refused.status === 200) {
    await refused.body?.cancel();
    refused = await gateway.ask(key);
  }
  assert.equal(refused.status, 429);
  assertLimitHeaders(refused);
  const { error } = await refused.json();
  assert.equal(error.code, "rate_limit_exceeded");
  assert.equal(error.type, type);
  assert.equal(refused.headers.get("x-should-retry"), shouldRetry);
  const waitMs = toldWaitMs(refused);
  assert.ok(waitMs <= waitMsMax, `${waitMs} ms`);
  for (const response of streams) await response.body?.cancel();
}

Deno.test("limits over HTTP", async (t) => {
  await using gateway = await startGateway("limited", {
    onCall(call) {
      const content = call.request.messages[0]?.content;
      if (content === "hold") return call.say("held");
      const expected = Number(content);
      if (!(expected > 0)) return hello(call);
      call.say("much");
      call.end(expected);
    },
  });
  const ask = gateway.ask.bind(gateway);

  await t.step("a 200 has all headers of limits that are on", async () => {
    const limits = { requestsPerMinute: 600, tokensPerMinute: 100_000 };
    const key = await gateway.addKey({ limits });
    for (const stream of [false, true]) {
      const response = await ask(key, { body: { stream } });
      const { status, headers } = response;
      assert.equal(status, 200);
      assertLimitHeaders(response);
      assert.equal(headers.get("x-ratelimit-limit-requests"), "600");
      assert.equal(headers.get("x-ratelimit-limit-tokens"), "100000");
      await response.body?.cancel();
    }
    const free = await ask(await gateway.addKey());
    assert.equal(free.status, 200);
    for (const [name] of free.headers) assert.ok(!/ratelimit/.test(name));
    await free.body?.cancel();
  });

  for (const row of CASES) {
    await t.step(
      `a 429 for ${JSON.stringify(row.limit)}`,
      () => assertRefusal(gateway, row),
    );
  }

  await t.step("refusals, models and errors use up nothing", async () => {
    const limits = { requestsPerMinute: 5 };
    const key = await gateway.addKey({ limits, models: "another-model" });
    for (let count = 0; count < 10; count += 1) {
      assert.equal(await gateway.status(key), 403);
      // What a key may not use tells nothing, not even of the request's faults.
      assert.equal(await gateway.status(key, { body: { n: 0 } }), 403);
      assert.equal(await gateway.status(key, { body: { model: "x" } }), 404);
      assert.equal(await readStatus(gateway.get(key, "models")), 200);
      assert.equal(await readStatus(gateway.get(key, "x")), 404);
    }
    assert.equal(await gateway.leases(key), 0);
    await gateway.world.setKey(key, { models: "" });
    for (let count = 0; count < 5; count += 1) {
      assert.equal(await gateway.status(key, { body: { n: 0 } }), 400);
      assert.equal(await gateway.status(key), 200);
    }
    assert.equal(await gateway.status(key), 429);
  });
});

Deno.test("a key whose bodies were refused too often waits, others do not, and a disabled one gets 403 first", async () => {
  const owing = new Set<string>();
  /** Takes every refused body for one that took 125 ms. */
  class DearBodies extends RefusedBodies {
    override charge(keyId: string): void {
      owing.add(keyId);
      super.charge(keyId, 125);
    }
  }
  const refusedBodies = new DearBodies(monotonicNow);
  await using gateway = await startGateway("limited", {
    door: { refusedBodies },
  });
  const key = await gateway.addKey();
  const other = await gateway.addKey();
  const disabled = await gateway.addKey({ state: "disabled" });
  const bad = { body: { n: 0 } };
  assert.equal(await gateway.status(key, bad), 400);
  const response = await gateway.ask(key, bad);
  assert.equal(response.status, 429);
  toldWaitMs(response);
  await response.body?.cancel();
  assert.equal(await gateway.status(other), 200);
  for (let count = 0; count < 2; count += 1) {
    assert.equal(await gateway.status(disabled), 403);
  }
  assert.ok(owing.has(disabled.keyId), "its good bodies count as refused ones");
});

Deno.test("a key that was refused for a limit is refused before its next body is read, while the limit holds", async () => {
  await using gateway = await startGateway("limited");
  const key = await gateway.addKey({ limits: { requestsPerMinute: 1 } });
  const { baseUrl } = gateway.edge;
  assert.equal(await gateway.status(key), 200);
  assert.equal(await gateway.status(key), 429);
  const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
    `Authorization: Bearer ${key.value}\r\nContent-Length: 5000000\r\n\r\n`;
  const answer = await rawExchange(baseUrl, [head]);
  assert.match(answer, /^HTTP\/1\.1 429 /);
  assert.match(answer, /requests per minute/);
  assert.match(answer, /^x-ratelimit-remaining-requests: 0\r$/im);
  assert.equal(await gateway.leases(key), 0);
  // A limit that was raised applies to the next request.
  await gateway.world.setKey(key, { rpm: "600" });
  assert.equal(await gateway.status(key), 200);
});
