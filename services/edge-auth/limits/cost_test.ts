// Promise: an unknown cost is never free. A backend that reports no usage, or a client
// that always leaves early, does not escape the limits.
import assert from "node:assert/strict";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { chatRequest } from "../../../tests/support/chat_request.ts";
import { RunOutcome } from "../dispatch/outcome.ts";
import {
  accountOf,
  costOf,
  estimateTokens,
  type Reservation,
  type Settlement,
} from "./cost.ts";

const ESTIMATE = { promptTokens: 40, totalTokens: 140, units: null };
const USAGE = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const PROMPT_ONLY = { ...USAGE, completion_tokens: 0 };
const NO_USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

const complete: RunOutcome = {
  ...new RunOutcome(),
  dispatchMs: 1,
  isFinal: true,
};
const failed: RunOutcome = { ...complete, kind: "failed" };
const lost: RunOutcome = { ...failed, isFinal: false };
const left: RunOutcome = {
  ...complete,
  kind: "cancelled",
  cancelReason: "client_gone",
};
const unheard: RunOutcome = { ...left, isFinal: false };
const late: RunOutcome = { ...failed, cancelReason: "deadline" };
/** What was reserved stays. */
const RESERVED = [null, null] as const;

type Tokens = readonly [prompt: number | null, completion: number | null];
const ENDS: [name: string, end: RunOutcome, tokens: Tokens][] = [
  ["complete, counted", { ...complete, usage: USAGE }, [7, 5]],
  ["complete, tokens seen", { ...complete, completionTokens: 9 }, [40, 9]],
  ["complete, no token seen", complete, RESERVED],
  ["complete, counted as none", { ...complete, usage: NO_USAGE }, RESERVED],
  ["complete, only a prompt", { ...complete, usage: PROMPT_ONLY }, [7, 0]],
  ["failed before the first token", failed, [0, 0]],
  ["failed, counted as none", { ...failed, usage: NO_USAGE }, [0, 0]],
  ["failed in mid-stream", { ...failed, completionTokens: 3 }, [40, 3]],
  ["failed, and counted", { ...failed, usage: USAGE }, [7, 5]],
  ["worker lost before the first token", lost, [0, 0]],
  ["worker lost in mid-stream", { ...lost, completionTokens: 3 }, [40, 3]],
  ["client left before the first token", left, [40, 0]],
  ["client left, counted as none", { ...left, usage: NO_USAGE }, [40, 0]],
  ["client left, the worker is silent", unheard, RESERVED],
  ["client left in mid-stream", { ...left, completionTokens: 3 }, [40, 3]],
  ["left in mid-stream, silent", { ...unheard, completionTokens: 3 }, [40, 3]],
  ["time up before the first token", late, [40, 0]],
  ["time up, the worker is silent", { ...late, isFinal: false }, RESERVED],
  ["no worker took it", { ...lost, dispatchMs: null }, [0, 0]],
  ["client left in the queue", { ...unheard, dispatchMs: null }, [0, 0]],
];

Deno.test("costOf() by how a request ended", () => {
  for (const [name, end, [promptTokens, completionTokens]] of ENDS) {
    const { kind } = end;
    const expected = { promptTokens, completionTokens, kind };
    assert.deepEqual(costOf(end, ESTIMATE), expected, name);
  }
});

/** The same ends of a request that had reserved 140 characters. */
Deno.test("costOf() of what is made instead of tokens: unknown where the tokens are, else what was seen", () => {
  const units = { unit: "characters", count: 140 } as const;
  for (const [name, end, [, completion]] of ENDS) {
    const { kind, completionTokens } = end;
    if (end.usage !== null) continue;
    const unitsMade = completion === null ? null : completionTokens;
    const expected = { promptTokens: 0, completionTokens: 0, kind };
    const cost = costOf(end, { promptTokens: 0, totalTokens: 0, units });
    assert.deepEqual(cost, { ...expected, unitsMade }, name);
  }
});

Deno.test("costOf() of a request to begin a video: one that a client leaves may have begun it", () => {
  const units = { unit: "videoSeconds", count: 8 } as const;
  const rows = [
    ...[[complete, null], [failed, 0], [lost, 0], [late, 0]] as const,
    ...[[left, null], [unheard, null]] as const,
    [{ ...left, dispatchMs: null }, 0],
  ] as const;
  for (const [end, unitsMade] of rows) {
    const cost = costOf(end, { promptTokens: 0, totalTokens: 0, units });
    assert.equal(cost.unitsMade, unitsMade, JSON.stringify(end));
  }
});

Deno.test("estimateTokens() of answers: a default without max_tokens, thinking on top, the model's bound, for each choice", () => {
  const { max_tokens: _, ...open } = chatRequest({});
  const table: [part: Partial<ChatRequest>, max: number, tokens: number][] = [
    [{ max_tokens: 10 }, Infinity, 10],
    [{ max_tokens: 10, n: 3 }, Infinity, 30],
    [{ max_tokens: 10_000, n: 2 }, 4_096, 8_192],
    [{}, Infinity, 1_024],
    [{}, 100, 100],
    [{ enable_thinking: true }, Infinity, 2_048],
    [{ enable_thinking: true, thinking_budget: 500 }, Infinity, 1_524],
  ];
  for (const [part, outputTokensMax, tokens] of table) {
    const estimate = estimateTokens({ ...open, ...part }, outputTokensMax);
    const reserved = estimate.promptTokens + tokens;
    assert.equal(estimate.totalTokens, reserved, JSON.stringify(part));
  }
});

Deno.test("settlements share an account only if one call can make them", () => {
  const reservation: Reservation = {
    id: "a",
    principal: { keyId: "key_a", ownerId: "own" },
    model: "m",
    atMs: 3_600_000,
    reservedTokens: 1,
    reservedUnits: null,
  };
  const cost = costOf(complete, ESTIMATE);
  const of = (more: Partial<Reservation>): Settlement => (
    { reservation: { ...reservation, ...more }, cost }
  );
  const video = of({ reservedUnits: { unit: "videoSeconds", count: 8 } });
  const others: Settlement[] = [
    of({ principal: { keyId: "key_b", ownerId: "own" } }),
    of({ model: "n" }),
    of({ atMs: 3_599_999 }),
    { reservation, cost: null },
    of({ reservedUnits: { unit: "images", count: 1 } }),
    video,
    { ...video, cost: { ...cost, kind: "failed" as const } },
    { ...video, isVideo: true },
  ];
  const same = of({ id: "b", atMs: 7_199_999, reservedTokens: 9 });
  assert.equal(accountOf(same), accountOf(of({})));
  const accounts = new Set([...others, same].map(accountOf));
  assert.equal(accounts.size, others.length + 1);
});
