import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import type { BackendEvent } from "../backend.ts";
import {
  ask,
  askOne,
  callOf,
  fakeTime,
  requestOf,
  simulatorOf,
} from "./test_support.ts";
import type { CompletionRecord } from "./simulator.ts";
import { timerSleep } from "./sleep.ts";

const LONG = "[simulator: 1000 tokens] go";

/** Reads until `enough` says so or the answer ends. */
async function readSome(
  answer: AsyncIterable<readonly BackendEvent[]>,
  enough: (events: BackendEvent[]) => boolean = () => false,
): Promise<{ events: BackendEvent[]; error: unknown }> {
  const events: BackendEvent[] = [];
  try {
    for await (const batch of answer) {
      events.push(...batch);
      if (enough(events)) break;
    }
    return { events, error: undefined };
  } catch (error) {
    return { events, error };
  }
}

Deno.test("the first token comes alone and the others in batches of at most 16", async () => {
  const { batches } = await ask({ messages: "[simulator: 100 tokens] go" });
  const sizes = batches.map((batch) => batch.length);
  // The last one also carries the finish and the usage.
  assert.deepEqual(sizes, [1, 16, 16, 16, 16, 16, 16, 5]);
  const many = await ask({ n: 5, messages: "[simulator: 10 tokens] go" });
  assert.equal(many.batches[0]?.length, 5);
  assert.ok(many.batches.slice(0, -1).every((batch) => batch.length <= 16));
});

Deno.test("the phrase for tokens gives exactly so many", async () => {
  for (const tokens of [0, 1, 16, 17, 200]) {
    const messages = `[simulator: ${tokens} tokens] go`;
    const { usage, finish } = await askOne({ messages });
    assert.equal(usage?.completion_tokens, tokens);
    assert.equal(finish, "stop");
  }
  const even = await askOne({
    messages: "[simulator: 20 tokens] go",
    max_tokens: 20,
  });
  assert.equal(even.finish, "stop");
  const cut = await askOne({
    messages: "[simulator: 20 tokens] go",
    max_tokens: 19,
  });
  assert.equal(cut.finish, "length");
});

Deno.test("knobs and phrases set the pace; phrases win", async () => {
  const knobs = { firstTokenMs: 100, tokensPerSecond: 10 };
  const tookMs = async (messages: string) => {
    const time = fakeTime();
    const startMs = time.now();
    await ask({ messages }, simulatorOf({ knobs, time }));
    return Math.round(time.now() - startMs);
  };
  assert.equal(await tookMs("[simulator: 11 tokens]"), 1100);
  assert.equal(
    await tookMs("[simulator: 11 tokens, 100 tokens per second]"),
    200,
  );
  assert.equal(
    await tookMs("[simulator: 11 tokens, first token 2000 ms]"),
    3000,
  );
  assert.equal(
    await tookMs("[simulator: 11 tokens, 0 tokens per second]"),
    100,
  );
});

Deno.test("errorRate fails before the first token, as an upstream error", async () => {
  const { events, error } = await readSome(
    simulatorOf({ knobs: { errorRate: 1 } }).complete(requestOf(), callOf()),
  );
  assert.deepEqual(events, []);
  assert.ok(error instanceof ApiError);
  assert.equal(error.code, "upstream_error");
});

Deno.test("midStreamErrorRate fails after some tokens and without an end", async () => {
  const simulator = simulatorOf({ knobs: { midStreamErrorRate: 1 } });
  for (let round = 0; round < 20; round++) {
    // Some of these answers are shorter than where the failure was to come.
    const request = requestOf({ seed: round, max_tokens: 1 + round });
    const { events, error } = await readSome(
      simulator.complete(request, callOf()),
    );
    assert.ok(events.length > 0);
    assert.ok(events.every((event) => event.type === "delta"));
    assert.ok(error instanceof ApiError);
    assert.equal(error.code, "upstream_error");
  }
});

Deno.test("the phrase for a failure says after how many tokens", async () => {
  for (const tokens of [1, 5, 16, 17, 40]) {
    const messages = `[simulator: fail after ${tokens} tokens, 50 tokens]`;
    const { events, error } = await readSome(
      simulatorOf().complete(requestOf({ messages }), callOf()),
    );
    assert.equal(events.length, tokens);
    assert.ok(error instanceof ApiError);
  }
});

Deno.test("the phrase for an error gives its status; the prompt is counted", async () => {
  const records: CompletionRecord[] = [];
  const simulator = simulatorOf({ onEnd: (record) => records.push(record) });
  await assert.rejects(
    ask({ messages: "[simulator: error 429]" }, simulator),
    { code: "upstream_rate_limited", status: 429 },
  );
  assert.equal(records.length, 1);
  assert.ok((records[0]?.promptTokens ?? 0) > 6);
  assert.equal(records[0]?.completionTokens, 0);
  assert.equal(records[0]?.aborted, false);
});

Deno.test("an error waits for its first token when both are asked for", async () => {
  const time = fakeTime();
  const startMs = time.now();
  const messages = "[simulator: first token 700 ms, error 500]";
  await assert.rejects(ask({ messages }, simulatorOf({ time })));
  assert.equal(time.now() - startMs, 700);
});

Deno.test("phrases do nothing where the knobs forbid them", async () => {
  const simulator = simulatorOf({ knobs: { controlPhrases: false } });
  const { finish, usage } = await askOne({ messages: LONG }, simulator);
  assert.equal(finish, "stop");
  assert.notEqual(usage?.completion_tokens, 1000);
});

Deno.test("the phrase for missing usage leaves it out", async () => {
  const { usage, choices } = await ask({
    messages: "[simulator: usage missing]",
  });
  assert.equal(usage, null);
  assert.equal(choices[0]?.finish, "stop");
});

Deno.test("an answer that stalls says nothing more until it is aborted", async () => {
  const controller = new AbortController();
  const time = fakeTime();
  let sleeps = 0;
  time.onSleep = () => {
    sleeps += 1;
    if (sleeps === 3) controller.abort(new Error("enough"));
  };
  const messages = "[simulator: stall after 5 tokens]";
  const { events, error } = await readSome(
    simulatorOf({ time }).complete(
      requestOf({ messages }),
      callOf(controller.signal),
    ),
  );
  assert.equal(events.length, 5);
  assert.match(String(error), /enough/);
});

Deno.test("an abort before the first token throws the signal's reason and says nothing", async () => {
  const controller = new AbortController();
  const time = fakeTime();
  time.onSleep = () => controller.abort(new Error("left"));
  const records: CompletionRecord[] = [];
  const simulator = simulatorOf({
    time,
    knobs: { firstTokenMs: 60_000 },
    onEnd: (record) => records.push(record),
  });
  const { events, error } = await readSome(
    simulator.complete(requestOf(), callOf(controller.signal)),
  );
  assert.deepEqual(events, []);
  assert.match(String(error), /left/);
  assert.equal(records[0]?.aborted, true);
  assert.equal(records[0]?.completionTokens, 0);
});

Deno.test("a real abort ends a real wait at once", async () => {
  const controller = new AbortController();
  const time = {
    ...fakeTime(),
    now: () => performance.now(),
    sleep: timerSleep,
  };
  const simulator = simulatorOf({ time, knobs: { tokensPerSecond: 0.001 } });
  const answer = simulator.complete(
    requestOf({ messages: LONG }),
    callOf(controller.signal),
  )[Symbol.asyncIterator]();
  assert.equal((await answer.next()).done, false);
  const waiting = answer.next();
  const startMs = performance.now();
  controller.abort(new Error("left"));
  await assert.rejects(Promise.resolve(waiting), /left/);
  // The next token was 1,000 s away; a second is for the slowest machine.
  assert.ok(performance.now() - startMs < 1000);
});

Deno.test("an abort in mid-answer ends it, and the ledger has what was handed out", async () => {
  const controller = new AbortController();
  const records: CompletionRecord[] = [];
  const simulator = simulatorOf({ onEnd: (record) => records.push(record) });
  const { events, error } = await readSome(
    simulator.complete(
      requestOf({ messages: LONG }),
      callOf(controller.signal),
    ),
    (events) => {
      if (events.length >= 100) controller.abort(new Error("left"));
      return false;
    },
  );
  assert.match(String(error), /left/);
  assert.equal(events.length, 113);
  assert.deepEqual(records, [{
    requestId: "req-1",
    promptTokens: records[0]?.promptTokens,
    completionTokens: 113,
    aborted: true,
  }]);
});

Deno.test("a reader who stops is an abort too, one who leaves after the end is not", async () => {
  const records: CompletionRecord[] = [];
  const simulator = simulatorOf({ onEnd: (record) => records.push(record) });
  const complete = () =>
    simulator.complete(
      requestOf({ messages: "[simulator: 40 tokens] go" }),
      callOf(),
    );
  await readSome(complete(), (events) => events.length >= 17);
  await readSome(complete(), (events) => events.at(-1)?.type === "usage");
  await readSome(complete());
  assert.deepEqual(
    records.map(({ completionTokens, aborted }) => [completionTokens, aborted]),
    [[17, true], [40, false], [40, false]],
  );
});

Deno.test("the ledger says what usage says, for every kind of answer", async () => {
  const records: CompletionRecord[] = [];
  const simulator = simulatorOf({ onEnd: (record) => records.push(record) });
  const kinds = [
    {},
    { n: 3 },
    { enable_thinking: true },
    { stop: ["the", "."] },
    { max_tokens: 7 },
    { response_format: { type: "json_object" as const } },
  ];
  for (const fields of kinds) {
    const { usage } = await ask(fields, simulator);
    const record = records.at(-1);
    assert.equal(record?.completionTokens, usage?.completion_tokens);
    assert.equal(record?.promptTokens, usage?.prompt_tokens);
  }
  assert.equal(records.length, kinds.length);
});

Deno.test("a long answer gives others their turns", async () => {
  // A clock that runs 0.1 ms with every look makes each batch look like work.
  let nowMs = 0;
  let turns = 0;
  const time = {
    ...fakeTime(),
    now: () => nowMs += 0.1,
    sleep: (ms: number) => {
      if (ms === 0) turns += 1;
      return Promise.resolve();
    },
  };
  await ask({ messages: LONG }, simulatorOf({ time }));
  assert.ok(turns >= 2, `${turns}`);
});

Deno.test("answers that run at the same time do not disturb each other", async () => {
  const fields = (seed: number) => ({
    seed,
    temperature: 1.2,
    presence_penalty: 1,
    messages: `[simulator: ${20 + seed} tokens] Why is the sky blue?`,
  });
  const simulator = simulatorOf();
  const seeds = Array.from({ length: 8 }, (_, seed) => seed);
  const together = await Promise.all(
    seeds.map((seed) => ask(fields(seed), simulator)),
  );
  for (const seed of seeds) {
    assert.deepEqual(together[seed], await ask(fields(seed)));
  }
});
