/**
 * Guarantee: however a request ends, it is charged by one rule, at the key and at
 * its owner alike, and a request that cost more than was reserved makes the next
 * ones wait. The rule itself: `services/edge-auth/limits/cost_test.ts`.
 */
import assert from "node:assert/strict";
import { limiterKey, ownerLimiterKey } from "@gateway/shared/keys/record";
import { readState } from "../support/admission_fixture.ts";
import { startGatedCluster } from "../support/gated_cluster.ts";
import { choiceChunk, usageChunk } from "../support/model_answers.ts";
import {
  type ScriptedCall,
  text,
  usageOf,
} from "../support/scripted_backend.ts";
import { waitFor } from "../support/wait_for.ts";

const PER_DAY = 1_000_000;
/** Of the message "ping". */
const PROMPT_TOKENS = 6;
const MAX_TOKENS = 16;
const RESERVED_TOKENS = PROMPT_TOKENS + MAX_TOKENS;

interface Case {
  name: string;
  onCall: (call: ScriptedCall) => void;
  /** The client leaves when the backend has begun; for a stream with `true` after its first byte. */
  leaves?: boolean;
  body?: object;
  tokens: number;
}

const CASES: Case[] = [
  {
    name: "complete, counted",
    onCall: (call) => {
      call.say(text("a"), text("b"));
      call.end(usageOf(3));
    },
    tokens: 1 + 3,
  },
  {
    name: "an error after two tokens",
    onCall: (call) => {
      call.say(text("a"), text("b"));
      call.fail();
    },
    tokens: PROMPT_TOKENS + 2,
  },
  {
    name: "an error before the first token",
    onCall: (call) => call.fail(),
    tokens: 0,
  },
  {
    name: "an error that says what was counted",
    onCall: (call) => {
      // One choice where two were asked for.
      call.say(text("a"), choiceChunk({}, "stop"), usageChunk(1, 7), "[DONE]");
    },
    body: { n: 2 },
    tokens: 1 + 7,
  },
  {
    name: "a client that leaves before the first token",
    onCall: () => {},
    leaves: true,
    tokens: PROMPT_TOKENS,
  },
];

Deno.test("a request is charged by how it ended", async (t) => {
  let current: Case | undefined;
  await using cluster = await startGatedCluster({
    onCall: (call) => current?.onCall(call),
  });
  for (const stream of [true, false]) {
    for (const each of CASES) {
      current = each;
      await t.step(`${each.name}, stream ${stream}`, async () => {
        const limits = { tokensPerDay: PER_DAY };
        const key = await cluster.addKey({ limits, ownerLimits: limits });
        const ran = cluster.backend.calls.length;
        const client = new AbortController();
        const body = { stream, max_tokens: MAX_TOKENS, ...each.body };
        const answer = cluster.ask(key, { body, signal: client.signal })
          .then((response) => response.text()).catch(() => null);
        if (each.leaves === true) {
          await waitFor(() => cluster.backend.calls.length > ran, {
            what: "the backend to begin",
          });
          client.abort();
        }
        await answer;
        await waitFor(async () => await cluster.leases(key) === 0, {
          what: "the settlement",
        });
        for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
          const state = await readState(cluster.world, name);
          assert.equal(state?.dayTokens, each.tokens, name);
        }
      });
    }
  }
});

Deno.test("a request that no worker takes costs nothing", async () => {
  await using cluster = await startGatedCluster({ onCall: () => {}, slots: 1 });
  const key = await cluster.addKey({ limits: { tokensPerDay: PER_DAY } });
  const holder = await cluster.addKey();
  const client = new AbortController();
  const held = cluster.ask(holder, { signal: client.signal }).catch(() => null);
  await waitFor(() => cluster.backend.calls.length === 1, {
    what: "the only slot to be taken",
  });
  const response = await cluster.ask(key);
  assert.equal(response.status, 503);
  assert.equal((await response.json()).error.code, "overloaded");
  await waitFor(async () => await cluster.leases(key) === 0, {
    what: "the settlement",
  });
  const state = await readState(cluster.world, limiterKey(key));
  assert.equal(state?.dayTokens, 0);
  client.abort();
  await held;
});

Deno.test("what a request used beyond its reservation is a debt that the next ones wait for", async () => {
  const perMinute = 600;
  const used = 1_000;
  await using cluster = await startGatedCluster({
    onCall: (call) => {
      call.say(text("a"));
      call.end(usageOf(used));
    },
  });
  const key = await cluster.addKey({ limits: { tokensPerMinute: perMinute } });
  const first = await cluster.ask(key);
  assert.equal(first.status, 200);
  await first.body?.cancel();
  await waitFor(async () => await cluster.leases(key) === 0, {
    what: "the settlement",
  });
  const second = await cluster.ask(key);
  assert.equal(second.status, 429);
  const told = Number(second.headers.get("retry-after-ms"));
  await second.body?.cancel();
  // Full again after the 1,001 used; the next needs 22 of 600.
  const missing = 1 + used - perMinute + RESERVED_TOKENS;
  const waitMs = missing * (60_000 / perMinute);
  assert.ok(
    told > waitMs * 0.9 && told <= waitMs * 1.1,
    `told to wait ${told} ms, not ${waitMs}`,
  );
});
