/** Cases C: streams. */
import assert from "node:assert/strict";
import { assertError, type Cases } from "./context.ts";
import { errorBodySchema } from "@gateway/shared/openai/completion";
import { simulates } from "../support/cluster.ts";
import { statusOf } from "../support/gated_cluster.ts";
import { until } from "../support/wait_for.ts";

const WITH_USAGE = { stream_options: { include_usage: true } };

export const streamingCases: Cases = async (
  t,
  { cluster, answer, chat, stream },
) => {
  await t.step("C25 data lines and comments, then [DONE]", async () => {
    const { lines, isDone } = await stream();
    assert.ok(isDone);
    for (const line of lines) assert.match(line, /^($|data: |:)/);
    assert.deepEqual(lines.slice(-3), ["data: [DONE]", "", ""]);
  });
  await t.step("C26-C28 chunks of one answer", async () => {
    const { chunks } = await stream();
    const [first] = chunks;
    assert.ok(first);
    for (const chunk of chunks) {
      assert.equal(chunk.id, first.id);
      assert.equal(chunk.created, first.created);
      assert.ok(!("error" in chunk));
    }
    const choices = chunks.flatMap((chunk) => chunk.choices);
    assert.equal(choices[0]?.delta.role, "assistant");
    assert.ok(choices.slice(1).every((choice) => !("role" in choice.delta)));
    const finishes = choices.filter((choice) => choice.finish_reason !== null);
    assert.equal(finishes.length, 1);
    assert.equal(choices.at(-1), finishes[0]);
    assert.deepEqual(finishes[0]?.delta, {});
  });
  await t.step("C29 a stream says what the whole answer says", async () => {
    const change = { seed: 42, max_tokens: 50 };
    const { content, chunks } = await stream({ ...change, ...WITH_USAGE });
    const { choices: [choice], usage } = await answer(change);
    assert.equal(content, choice?.message.content);
    assert.deepEqual(chunks.at(-1)?.usage, usage);
  });
  await t.step("C30-C31 usage when asked for, in its own chunk", async () => {
    const plain = await stream();
    assert.ok(plain.chunks.every((chunk) => !("usage" in chunk)));
    const { chunks } = await stream(WITH_USAGE);
    assert.ok(chunks.at(-1)?.usage, "alone, as the schema says");
    assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
  });
  await t.step("C32 stream_options without stream: 400", async () => {
    const expected = { status: 400, param: "stream_options" };
    await assertError(await chat(WITH_USAGE), expected);
  });
  await t.step("C33 n streams advance together", async () => {
    const { chunks } = await stream({ n: 2 });
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const begins = choices.filter(({ delta }) => "role" in delta);
    const ends = choices.filter((choice) => choice.finish_reason !== null);
    assert.deepEqual(begins.map(({ index }) => index), [0, 1]);
    assert.deepEqual(ends.map(({ index }) => index).toSorted(), [0, 1]);
    const [lastBegin, firstEnd] = [begins[1], ends[0]];
    assert.ok(lastBegin && firstEnd);
    assert.ok(choices.indexOf(lastBegin) < choices.indexOf(firstEnd));
  });
  await t.step("C34 chunks come as they are made", async () => {
    const startedAtMs = performance.now();
    const messages = simulates("20 tokens, 40 tokens per second");
    const response = await chat({ stream: true, messages });
    const arrivals: number[] = [];
    for await (const _bytes of response.body ?? []) {
      arrivals.push(performance.now() - startedAtMs);
    }
    const [first = 0] = arrivals;
    const last = arrivals.at(-1) ?? 0;
    assert.ok(arrivals.length > 10, `${arrivals.length} pieces`);
    assert.ok(last - first > 300, `all within ${last - first} ms`);
  });
  await t.step("C35 a bad request is JSON, also with stream", async () => {
    const response = await chat({ stream: true, temperature: 3 });
    await assertError(response, { status: 400, param: "temperature" });
  });
  await t.step("C36 a late failure is one error frame, no [DONE]", async () => {
    const messages = simulates("fail after 5 tokens");
    const { chunks, isDone } = await stream({ messages });
    assert.ok(!isDone);
    const { error } = errorBodySchema.parse(chunks.at(-1));
    assert.ok("param" in error);
  });
  await t.step("C37 a client that leaves frees its slot", async () => {
    const created = await cluster.createKey("--concurrency=1");
    const headers = { authorization: `Bearer ${created.key}` };
    const client = new AbortController();
    const messages = simulates("500 tokens, 20 tokens per second");
    const init = { headers, signal: client.signal };
    const response = await chat({ stream: true, messages }, init);
    assert.equal(response.status, 200);
    client.abort();
    await assert.rejects(response.text());
    const next = () => chat({ max_tokens: 1 }, { headers });
    await until(async () => await statusOf(next()) === 200, 2_000);
  });
  await t.step("C38 thinking comes first and is never null", async () => {
    const { chunks } = await stream({ enable_thinking: true });
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const deltas = choices.map(({ delta }) => delta);
    const firstText = deltas.findIndex((delta) => Boolean(delta.content));
    const isThought = (delta: object) => "reasoning_content" in delta;
    const lastThought = deltas.findLastIndex(isThought);
    assert.ok(lastThought >= 0 && lastThought < firstText);
  });
};
