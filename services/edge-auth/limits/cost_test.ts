// Promise: an unknown cost is never free. A backend that reports no usage, or a client
// that always leaves early, does not escape the limits.
import assert from "node:assert/strict";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { chatRequest } from "../../../tests/support/chat_request.ts";
import { RunOutcome } from "../dispatch/outcome.ts";
import { costOf, estimateTokens } from "./cost.ts";
import { accountOf, type Reservation, type Settlement } from "./settlement.ts";

const BOUNDS = { promptTokensMax: 1_000, completionTokensMax: 100 };
const ESTIMATE = {
  promptTokens: 40,
  totalTokens: 140,
  bounds: BOUNDS,
  units: null,
};
const USAGE = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const PROMPT_ONLY = { ...USAGE, completion_tokens: 0 };
const NO_USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
/** The largest number that a frame can carry. */
const U32_MAX = 4_294_967_295;
const IMPOSSIBLE = {
  prompt_tokens: U32_MAX,
  completion_tokens: U32_MAX,
  total_tokens: 2 * U32_MAX,
};

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
const silent: RunOutcome = { ...left, isFinal: false };
const late: RunOutcome = { ...failed, cancelReason: "deadline" };

interface End {
  name: string;
  run: RunOutcome;
  /** The tokens charged. */
  prompt: number;
  completion: number;
}

const ends: End[] = [
  {
    name: "complete, counted",
    run: { ...complete, usage: USAGE },
    prompt: 7,
    completion: 5,
  },
  {
    name: "complete, tokens seen",
    run: { ...complete, completionTokens: 9 },
    prompt: 40,
    completion: 9,
  },
  {
    name: "complete, no token seen",
    run: complete,
    prompt: 40,
    completion: 100,
  },
  {
    name: "complete, counted as none",
    run: { ...complete, usage: NO_USAGE },
    prompt: 40,
    completion: 100,
  },
  {
    name: "complete, only a prompt",
    run: { ...complete, usage: PROMPT_ONLY },
    prompt: 7,
    completion: 0,
  },
  {
    name: "failed before the first token",
    run: failed,
    prompt: 0,
    completion: 0,
  },
  {
    name: "failed, counted as none",
    run: { ...failed, usage: NO_USAGE },
    prompt: 0,
    completion: 0,
  },
  {
    name: "failed in mid-stream",
    run: { ...failed, completionTokens: 3 },
    prompt: 40,
    completion: 3,
  },
  {
    name: "failed, and counted",
    run: { ...failed, usage: USAGE },
    prompt: 7,
    completion: 5,
  },
  {
    name: "worker lost before the first token",
    run: lost,
    prompt: 0,
    completion: 0,
  },
  {
    name: "worker lost in mid-stream",
    run: { ...lost, completionTokens: 3 },
    prompt: 40,
    completion: 3,
  },
  {
    name: "client left before the first token",
    run: left,
    prompt: 40,
    completion: 0,
  },
  {
    name: "client left, counted as none",
    run: { ...left, usage: NO_USAGE },
    prompt: 40,
    completion: 0,
  },
  {
    name: "client left, the worker is silent",
    run: silent,
    prompt: 40,
    completion: 100,
  },
  {
    name: "client left in mid-stream",
    run: { ...left, completionTokens: 3 },
    prompt: 40,
    completion: 3,
  },
  {
    name: "left in mid-stream, the worker is silent",
    run: { ...silent, completionTokens: 3 },
    prompt: 40,
    completion: 3,
  },
  {
    name: "time up before the first token",
    run: late,
    prompt: 40,
    completion: 0,
  },
  {
    name: "time up, the worker is silent",
    run: { ...late, isFinal: false },
    prompt: 40,
    completion: 100,
  },
  {
    name: "no worker took it",
    run: { ...lost, dispatchMs: null },
    prompt: 0,
    completion: 0,
  },
  {
    name: "client left in the queue",
    run: { ...silent, dispatchMs: null },
    prompt: 0,
    completion: 0,
  },
];

Deno.test("costOf() by how a request ended", () => {
  for (const { name, run, prompt, completion } of ends) {
    const { kind } = run;
    const expected = {
      promptTokens: prompt,
      completionTokens: completion,
      kind,
    };
    assert.deepEqual(costOf(run, ESTIMATE), expected, name);
  }
});

Deno.test("costOf() charges all units that were asked for where it is not known how many were made", () => {
  const units = { unit: "characters", count: 100 } as const;
  for (const { name, run, completion } of ends) {
    if (run.usage !== null) continue;
    const { kind } = run;
    const none = { promptTokens: 0, completionTokens: 0, kind };
    const cost = costOf(run, { ...NOTHING, units });
    assert.deepEqual(cost, { ...none, unitsMade: completion }, name);
  }
});

const NOTHING = { ...ESTIMATE, promptTokens: 0, totalTokens: 0 };

Deno.test("costOf() believes no count beyond what was asked for or sent", () => {
  const table = [
    {
      name: "stated",
      run: { ...complete, usage: IMPOSSIBLE },
      prompt: 1_000,
      completion: 100,
    },
    {
      name: "stated, and the answer was longer than what was asked for",
      run: { ...complete, usage: IMPOSSIBLE, answerBytes: 700 },
      prompt: 1_000,
      completion: 700,
    },
    {
      name: "in the frames of a stream that the client left",
      run: { ...left, completionTokens: U32_MAX, answerBytes: 9 },
      prompt: 40,
      completion: 100,
    },
  ];
  for (const { name, run, prompt, completion } of table) {
    const { promptTokens, completionTokens } = costOf(run, ESTIMATE);
    assert.deepEqual(
      [promptTokens, completionTokens],
      [prompt, completion],
      name,
    );
  }
});

Deno.test("costOf() of a request to begin a video that its client left: all of it", () => {
  const units = { unit: "videoSeconds", count: 8 } as const;
  const table = [
    { name: "it has begun", run: complete, unitsMade: null },
    { name: "failed", run: failed, unitsMade: 0 },
    { name: "worker lost", run: lost, unitsMade: 0 },
    { name: "time up", run: late, unitsMade: 0 },
    { name: "left", run: left, unitsMade: 8 },
    { name: "left, the worker is silent", run: silent, unitsMade: 8 },
    {
      name: "left in the queue",
      run: { ...left, dispatchMs: null },
      unitsMade: 0,
    },
  ];
  for (const { name, run, unitsMade } of table) {
    assert.equal(costOf(run, { ...NOTHING, units }).unitsMade, unitsMade, name);
  }
});

Deno.test("estimateTokens() believes what was asked for, within the context of the model", () => {
  const { max_tokens: _, ...open } = chatRequest({});
  const table: {
    request: Partial<ChatRequest>;
    context?: number;
    max: number;
  }[] = [
    { request: { max_tokens: 50 }, max: 50 },
    { request: { max_tokens: 50, n: 2 }, max: 100 },
    { request: { max_tokens: 50 }, context: 40, max: 40 },
    { request: {}, context: 8_192, max: 8_192 },
    { request: {}, max: 2_097_152 },
  ];
  for (const { request, context, max } of table) {
    const lengths = context === undefined ? {} : { context_tokens: context };
    const { bounds } = estimateTokens({ ...open, ...request }, lengths);
    assert.equal(bounds.completionTokensMax, max, JSON.stringify(request));
  }
});

Deno.test("estimateTokens() reserves for each choice what was asked for or a default, and thinking on top", () => {
  const { max_tokens: _, ...open } = chatRequest({});
  const table: {
    part: Partial<ChatRequest>;
    outputTokensMax: number;
    tokens: number;
  }[] = [
    { part: { max_tokens: 10 }, outputTokensMax: Infinity, tokens: 10 },
    { part: { max_tokens: 10, n: 3 }, outputTokensMax: Infinity, tokens: 30 },
    {
      part: { max_tokens: 10_000, n: 2 },
      outputTokensMax: 4_096,
      tokens: 8_192,
    },
    { part: {}, outputTokensMax: Infinity, tokens: 1_024 },
    { part: {}, outputTokensMax: 100, tokens: 100 },
    {
      part: { enable_thinking: true },
      outputTokensMax: Infinity,
      tokens: 2_048,
    },
    {
      part: { enable_thinking: true, thinking_budget: 500 },
      outputTokensMax: Infinity,
      tokens: 1_524,
    },
  ];
  for (const { part, outputTokensMax, tokens } of table) {
    const estimate = estimateTokens(
      { ...open, ...part },
      { output_tokens: outputTokensMax },
    );
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
  const settlementOf = (more: Partial<Reservation>): Settlement => (
    { reservation: { ...reservation, ...more }, cost }
  );
  const video = settlementOf({
    reservedUnits: { unit: "videoSeconds", count: 8 },
  });
  const others: Settlement[] = [
    settlementOf({ principal: { keyId: "key_b", ownerId: "own" } }),
    settlementOf({ model: "n" }),
    settlementOf({ atMs: 3_599_999 }),
    { reservation, cost: null },
    settlementOf({ reservedUnits: { unit: "images", count: 1 } }),
    video,
    { ...video, cost: { ...cost, kind: "failed" as const } },
    { ...video, isVideo: true },
  ];
  const same = settlementOf({ id: "b", atMs: 7_199_999, reservedTokens: 9 });
  assert.equal(accountOf(same), accountOf(settlementOf({})));
  const accounts = new Set([...others, same].map(accountOf));
  assert.equal(accounts.size, others.length + 1);
});

Deno.test("of the prompt's tokens, no more are cached than it has", () => {
  const cases = [
    {
      prompt_tokens_details: { cached_tokens: 3 },
      cachedTokens: 3,
      cacheWriteTokens: 0,
    },
    {
      prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 2 },
      cachedTokens: 3,
      cacheWriteTokens: 2,
    },
    {
      prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 9 },
      cachedTokens: 3,
      cacheWriteTokens: 4,
    },
    {
      prompt_tokens_details: { cached_tokens: 9, cache_write_tokens: 9 },
      cachedTokens: 7,
      cacheWriteTokens: 0,
    },
  ] as const;
  for (
    const { prompt_tokens_details, cachedTokens, cacheWriteTokens } of cases
  ) {
    const usage = { ...USAGE, prompt_tokens_details };
    assert.deepEqual(costOf({ ...complete, usage }, ESTIMATE), {
      promptTokens: 7,
      completionTokens: 5,
      cachedTokens,
      cacheWriteTokens,
      kind: "complete",
    });
  }
});
