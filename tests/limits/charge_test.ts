/**
 * Guarantee: however a request ends, it is charged by one rule, at the key and at
 * its owner alike. The rule itself: `services/edge-auth/limits/cost_test.ts`.
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
const PROMPT_TOKENS = 5;
const MAX_TOKENS = 16;

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
        await cluster.settled(key);
        for (const name of [limiterKey(key), ownerLimiterKey(key.ownerId)]) {
          const state = await readState(cluster.world, name);
          assert.equal(state?.dayTokens, each.tokens, name);
        }
      });
    }
  }
});
