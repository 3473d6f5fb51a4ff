/**
 * Guarantee: every answer that a limit had a say in tells where the limits stand,
 * and a client that waits as long as it is told is let in.
 */
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { RefusedBodies } from "../../services/edge-auth/chat/read_request.ts";
import {
  type GatedCluster,
  pong,
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { text, usageOf } from "../support/scripted_backend.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const GO_DURATION = /^(\d+ms|(\d+h)?(\d+m)?\d+(\.\d+)?s)$/;
const MS_PER_DAY = 86_400_000;

const SIX = ["limit", "remaining", "reset"].flatMap((what) =>
  ["requests", "tokens"].map((unit) => `x-ratelimit-${what}-${unit}`)
);

function assertLimitHeaders(response: Response): void {
  const { headers } = response;
  for (const name of SIX) {
    const value = headers.get(name) ?? "";
    const form = name.includes("reset") ? GO_DURATION : /^\d+$/;
    assert.match(value, form, `${name}: ${value}`);
  }
}

/** What a 429 tells of the wait, in ms, after checking that its parts agree. */
function toldWaitMs(response: Response): number {
  const exactMs = Number(response.headers.get("retry-after-ms"));
  const seconds = Number(response.headers.get("retry-after"));
  assert.ok(Number.isSafeInteger(exactMs) && exactMs >= 1, String(exactMs));
  assert.equal(seconds, Math.max(1, Math.ceil(exactMs / 1_000)));
  return exactMs;
}

async function exhaust(cluster: GatedCluster, key: TestKey, count: number) {
  for (let asked = 0; asked < count; asked += 1) {
    assert.equal(await statusOf(cluster.ask(key)), 200, `request ${asked}`);
  }
}

/** All settlements of the key have reached Redis. */
async function settled(cluster: GatedCluster, key: TestKey): Promise<void> {
  await waitFor(async () => await cluster.leases(key) === 0, {
    what: "leases to be given back",
  });
}

Deno.test("limits over HTTP", async (t) => {
  await using cluster = await startGatedCluster({
    onCall(call) {
      const content = call.request.messages[0]?.content;
      if (content === "hold") return call.say(text("held"));
      const wanted = Number(content);
      if (!(wanted > 0)) return pong(call);
      call.say(text("much"));
      call.end(usageOf(wanted));
    },
  });
  const { ask, addKey } = cluster;

  await t.step("a 200 has all headers, streamed or not", async () => {
    const key = await addKey({
      limits: { requestsPerMinute: 600, tokensPerMinute: 100_000 },
    });
    for (const stream of [false, true]) {
      const response = await ask(key, { body: { stream } });
      assert.equal(response.status, 200);
      assertLimitHeaders(response);
      assert.equal(response.headers.get("x-ratelimit-limit-requests"), "600");
      assert.equal(response.headers.get("x-ratelimit-limit-tokens"), "100000");
      await response.body?.cancel();
    }
  });

  await t.step("a limit that is off has no header", async () => {
    const response = await ask(await addKey());
    assert.equal(response.status, 200);
    for (const [name] of response.headers) assert.ok(!/ratelimit/.test(name));
    await response.body?.cancel();
  });

  await t.step(
    "requests per minute: 429, and after the wait it is let in",
    async () => {
      const key = await addKey({
        limits: { requestsPerMinute: 120, tokensPerMinute: 1_000_000 },
      });
      await exhaust(cluster, key, 120);
      let refused = await ask(key);
      // A slow machine may have won a request or two by now.
      while (refused.status === 200) {
        await refused.body?.cancel();
        refused = await ask(key);
      }
      assert.equal(refused.status, 429);
      assertLimitHeaders(refused);
      const { error } = await refused.json();
      assert.equal(error.code, "rate_limit_exceeded");
      assert.equal(error.type, "requests");
      assert.equal(
        refused.headers.get("x-ratelimit-remaining-requests"),
        "0",
      );
      assert.equal(refused.headers.get("x-should-retry"), null);
      const waitMs = toldWaitMs(refused);
      assert.ok(waitMs <= 600, `${waitMs} ms, with an interval of 500`);
      await sleep(waitMs);
      assert.equal(await statusOf(ask(key)), 200);
    },
  );

  await t.step(
    "tokens per minute: a debt is waited off as told",
    async () => {
      const key = await addKey({
        limits: { tokensPerMinute: 60_000, requestsPerMinute: 1_000 },
      });
      const body = { messages: [{ role: "user", content: "60500" }] };
      assert.equal(await statusOf(ask(key, { body })), 200);
      await settled(cluster, key);
      const refused = await ask(key);
      assert.equal(refused.status, 429);
      assertLimitHeaders(refused);
      const { error } = await refused.json();
      assert.equal(error.code, "rate_limit_exceeded");
      assert.equal(error.type, "tokens");
      const waitMs = toldWaitMs(refused);
      assert.ok(waitMs < 1_500, `${waitMs} ms for a debt of 500 tokens`);
      await sleep(waitMs);
      assert.equal(await statusOf(ask(key)), 200);
    },
  );

  await t.step("tokens per day: wait until midnight, do not try", async () => {
    const key = await addKey({
      limits: {
        tokensPerDay: 100,
        requestsPerMinute: 600,
        tokensPerMinute: 100_000,
      },
    });
    const body = { messages: [{ role: "user", content: "150" }] };
    assert.equal(await statusOf(ask(key, { body })), 200);
    await settled(cluster, key);
    const refused = await ask(key);
    assert.equal(refused.status, 429);
    assertLimitHeaders(refused);
    await refused.body?.cancel();
    assert.equal(refused.headers.get("x-should-retry"), "false");
    const toMidnightMs = MS_PER_DAY - await cluster.world.time() % MS_PER_DAY;
    const waitMs = toldWaitMs(refused);
    assert.ok(waitMs >= toMidnightMs - 1, `${waitMs} of ${toMidnightMs}`);
    assert.ok(waitMs <= toMidnightMs * 1.1 + 1_000);
  });

  await t.step("requests at the same time", async () => {
    const key = await addKey({ limits: { concurrency: 1 } });
    const held = cluster.backend.calls.length;
    const body = {
      messages: [{ role: "user", content: "hold" }],
      stream: true,
    };
    const first = await ask(key, { body });
    await waitFor(() => cluster.backend.calls.length > held, {
      what: "the first request to run",
    });
    assert.equal(first.status, 200);
    const refused = await ask(key);
    assert.equal(refused.status, 429);
    const { error } = await refused.json();
    assert.equal(error.code, "rate_limit_exceeded");
    toldWaitMs(refused);
    await first.body?.cancel();
    await settled(cluster, key);
    assert.equal(await statusOf(ask(key)), 200);
  });

  await t.step("refused requests consume nothing", async () => {
    const key = await addKey({
      limits: { requestsPerMinute: 5 },
      models: "another-model",
    });
    for (let count = 0; count < 20; count += 1) {
      assert.equal(await statusOf(ask(key)), 403);
      assert.equal(await statusOf(ask(key, { body: { n: 0 } })), 400);
      assert.equal(await statusOf(ask(key, { body: { model: "x" } })), 404);
    }
    await cluster.world.setKey(key, { models: "" });
    await exhaust(cluster, key, 5);
    assert.equal(await statusOf(ask(key)), 429);
  });

  await t.step("models and errors cost no quota and take no slot", async () => {
    const key = await addKey({ limits: { requestsPerMinute: 2 } });
    const { baseUrl } = cluster.edges[0]?.edge ?? {};
    const headers = { authorization: `Bearer ${key.value}` };
    for (let count = 0; count < 10; count += 1) {
      assert.equal(
        await statusOf(fetch(`${baseUrl}/models`, { headers })),
        200,
      );
      assert.equal(await statusOf(fetch(`${baseUrl}/x`, { headers })), 404);
    }
    assert.equal(await cluster.leases(key), 0);
    await exhaust(cluster, key, 2);
    assert.equal(await statusOf(ask(key)), 429);
  });
});

Deno.test("a key whose bodies were refused too often waits, others do not, and a disabled one hears that first", async () => {
  const owing = new Set<string>();
  /** Takes every refused body for one that took 125 ms. */
  class DearBodies extends RefusedBodies {
    override charge(keyId: string): void {
      owing.add(keyId);
      super.charge(keyId, 125);
    }
  }
  const refusedBodies = new DearBodies(monotonicNow);
  await using cluster = await startGatedCluster({ door: { refusedBodies } });
  const key = await cluster.addKey();
  const other = await cluster.addKey();
  const disabled = await cluster.addKey({ state: "disabled" });
  const bad = { body: { n: 0 } };
  assert.equal(await statusOf(cluster.ask(key, bad)), 400);
  const response = await cluster.ask(key, bad);
  assert.equal(response.status, 429);
  toldWaitMs(response);
  await response.body?.cancel();
  assert.equal(await statusOf(cluster.ask(other)), 200);
  for (let count = 0; count < 2; count += 1) {
    assert.equal(await statusOf(cluster.ask(disabled)), 403);
  }
  assert.ok(owing.has(disabled.keyId), "its good bodies count as refused ones");
});
