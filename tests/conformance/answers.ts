// Cases B, C and D: whole answers, streams, and tools.
import assert from "node:assert/strict";
import { errorBodySchema } from "@gateway/shared/openai/completion";
import { readStatus } from "../support/gateway/chat_status.ts";
import { simulates } from "../support/gateway/simulator.ts";
import { until } from "../support/wait_for.ts";
import { assertError, type Cases, M1, MODEL } from "./context.ts";

const NULLABLE = [
  "stream",
  "stream_options",
  "temperature",
  "top_p",
  "max_tokens",
  "max_completion_tokens",
  "presence_penalty",
  "frequency_penalty",
  "repetition_penalty",
  "n",
  "seed",
  "stop",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "enable_thinking",
];

async function assertOk(response: Response, what: string): Promise<void> {
  assert.equal(response.status, 200, `${what}: ${await response.text()}`);
}

/** Whole answers: their members, finish reasons and usage. */
export const answerCases: Cases = {
  async "B11-B13 what the schema does not say"({ answer }) {
    const { created, model, choices, usage } = await answer();
    const [choice, ...more] = choices;
    assert.ok(Math.abs(Date.now() / 1000 - created) < 300);
    assert.equal(model, MODEL);
    assert.deepEqual(more, []);
    assert.ok(choice?.message.content);
    assert.match(choice.finish_reason, /^(stop|length)$/);
    assert.equal(choice.logprobs, null);
    assert.ok(usage.prompt_tokens >= 1);
  },
  async "B14 every answer has an id of its own"({ answer }) {
    assert.notEqual((await answer()).id, (await answer()).id);
  },
  async "B15 max_tokens bounds the answer"({ answer }) {
    const completion = await answer({ max_tokens: 1 });
    assert.equal(completion.choices[0]?.finish_reason, "length");
    assert.equal(completion.usage.completion_tokens, 1);
  },
  async "B16 n gives choices in order"({ answer }) {
    const completion = await answer({ n: 3, max_tokens: 5 });
    assert.deepEqual(completion.choices.map(({ index }) => index), [0, 1, 2]);
    assert.ok(completion.usage.completion_tokens > 5);
    const short = await answer({ n: 3, max_tokens: 1 });
    assert.equal(short.usage.completion_tokens, 3);
  },
  async "B17 stop, a string or an array, ends the text"({ answer }) {
    for (const stop of ["e", ["e"], ["e", "a"]]) {
      const { choices: [choice] } = await answer({ stop });
      assert.ok(!choice?.message.content?.includes("e"));
      assert.equal(choice?.finish_reason, "stop");
    }
  },
  async "B18-B22 what SDKs send is accepted"({ answer }) {
    const parts = [{ type: "text", text: "ping" }];
    const developer = { role: "developer", content: "Be brief." };
    const accepted = [
      { temperature: 0.7, top_p: 0.9 },
      { messages: [{ role: "user", content: parts }] },
      { messages: [developer, ...M1.messages] },
      // Unknown members.
      { store: false, metadata: { a: "b" }, user: "u", zzz: 1 },
      { logit_bias: null, frequency_penalty: 0 },
      Object.fromEntries(NULLABLE.map((name) => [name, null])),
      { max_completion_tokens: 3 },
    ];
    for (const change of accepted) await answer({ max_tokens: 5, ...change });
  },
  async "B23 headers do not matter"({ call, post }) {
    const body = JSON.stringify({ ...M1, max_tokens: 3 });
    const bytes = new TextEncoder().encode(body);
    await assertOk(await post(bytes, {}), "no content type");
    const headers = { "content-type": "Application/JSON; charset=utf-8" };
    await assertOk(await post(body, headers), "content type with charset");
    const accept = { ...headers, accept: "text/html" };
    await assertOk(await post(body, accept), "accept");
    const slash = { method: "POST", headers, body };
    await assertOk(await call("/chat/completions/", slash), "trailing slash");
  },
  async "B24 thinking only when asked for"({ answer }) {
    const { choices, usage } = await answer({ enable_thinking: true });
    assert.ok(choices[0]?.message.reasoning_content);
    assert.ok(choices[0]?.message.content);
    const { reasoning_tokens = 0 } = usage.completion_tokens_details ?? {};
    assert.ok(reasoning_tokens > 0);
    const plain = await answer({ enable_thinking: false });
    assert.ok(!("reasoning_content" in (plain.choices[0]?.message ?? {})));
  },
};

const WITH_USAGE = { stream_options: { include_usage: true } };

/** Streams: events, usage, and what ends them. */
export const streamingCases: Cases = {
  async "C25 data lines and comments, then [DONE]"({ stream }) {
    const { lines, isDone } = await stream();
    assert.ok(isDone);
    for (const line of lines) assert.match(line, /^($|data: |:)/);
    assert.deepEqual(lines.slice(-3), ["data: [DONE]", "", ""]);
  },
  async "C26-C28 chunks of one answer"({ stream }) {
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
  },
  async "C29 a stream says what the whole answer says"({ answer, stream }) {
    const change = { seed: 42, max_tokens: 50 };
    const { content, chunks } = await stream({ ...change, ...WITH_USAGE });
    const { choices: [choice], usage } = await answer(change);
    assert.equal(content, choice?.message.content);
    assert.deepEqual(chunks.at(-1)?.usage, usage);
  },
  async "C30-C31 usage when asked for, in its own chunk"({ stream }) {
    const plain = await stream();
    assert.ok(plain.chunks.every((chunk) => !("usage" in chunk)));
    const { chunks } = await stream(WITH_USAGE);
    assert.ok(chunks.at(-1)?.usage, "alone, as the schema says");
    assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
  },
  async "C32 stream_options without stream: 400"({ chat }) {
    const expected = { status: 400, param: "stream_options" };
    await assertError(await chat(WITH_USAGE), expected);
  },
  async "C33 n streams advance together"({ stream }) {
    const { chunks } = await stream({ n: 2 });
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const begins = choices.filter(({ delta }) => "role" in delta);
    const ends = choices.filter((choice) => choice.finish_reason !== null);
    assert.deepEqual(begins.map(({ index }) => index), [0, 1]);
    assert.deepEqual(ends.map(({ index }) => index).toSorted(), [0, 1]);
    const [lastBegin, firstEnd] = [begins[1], ends[0]];
    assert.ok(lastBegin && firstEnd);
    assert.ok(choices.indexOf(lastBegin) < choices.indexOf(firstEnd));
  },
  async "C34 chunks come as they are made"({ chat }) {
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
  },
  async "C35 a bad request is JSON, also with stream"({ chat }) {
    const response = await chat({ stream: true, temperature: 3 });
    await assertError(response, { status: 400, param: "temperature" });
  },
  async "C36 a late failure is one error frame, no [DONE]"({ stream }) {
    const messages = simulates("fail after 5 tokens");
    const { chunks, isDone } = await stream({ messages });
    assert.ok(!isDone);
    const { error } = errorBodySchema.parse(chunks.at(-1));
    assert.ok("param" in error);
  },
  async "C37 a client that leaves frees its slot"({ gateway, chat }) {
    const created = await gateway.createKey("--concurrency=1");
    const headers = { authorization: `Bearer ${created.key}` };
    const client = new AbortController();
    const messages = simulates("500 tokens, 20 tokens per second");
    const init = { headers, signal: client.signal };
    const response = await chat({ stream: true, messages }, init);
    assert.equal(response.status, 200);
    client.abort();
    await assert.rejects(response.text());
    const next = () => chat({ max_tokens: 1 }, { headers });
    await until(async () => await readStatus(next()) === 200, 2_000);
  },
  async "C38 thinking comes first and is never null"({ stream }) {
    const { chunks } = await stream({ enable_thinking: true });
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const deltas = choices.map(({ delta }) => delta);
    const firstText = deltas.findIndex((delta) => Boolean(delta.content));
    const isThought = (delta: object) => "reasoning_content" in delta;
    const lastThought = deltas.findLastIndex(isThought);
    assert.ok(lastThought >= 0 && lastThought < firstText);
  },
};

const tool = (name: string, more: object = {}) => ({
  type: "function",
  function: { name, description: `Calls ${name}`, ...more },
});
const WEATHER = tool("get_weather", {
  parameters: {
    type: "object",
    properties: {
      city: { type: "string" },
      days: { type: "integer", minimum: 1, maximum: 9 },
    },
    required: ["city", "days"],
  },
});
const CALLED = { name: "get_weather", arguments: '{"city":"Rome","days":1}' };
const CALL = { id: "call_1", type: "function", function: CALLED };
const QUESTION = { role: "user", content: "What is the weather in Rome?" };
const TOOL_CALL = { role: "assistant", content: null, tool_calls: [CALL] };
const TOOL_RESULT = { role: "tool", tool_call_id: "call_1", content: "sunny" };
const REQUIRED = {
  messages: [QUESTION],
  tools: [WEATHER],
  tool_choice: "required",
};

/** Calls of functions, whole and streamed. */
export const toolCases: Cases = {
  async "D39 tool_choice required calls a declared tool"({ answer }) {
    const { choices: [choice] } = await answer(REQUIRED);
    assert.equal(choice?.finish_reason, "tool_calls");
    assert.equal(choice.message.content, null);
    const [call] = choice.message.tool_calls ?? [];
    assert.ok(call?.id);
    assert.equal(call.type, "function");
    assert.equal(call.function.name, "get_weather");
    const { city, days } = JSON.parse(call.function.arguments);
    assert.equal(typeof city, "string");
    assert.ok(Number.isInteger(days) && days >= 1 && days <= 9);
  },
  async "D40 a named tool is called, none calls none"({ answer }) {
    const tools = [WEATHER, tool("f")];
    const chosen = { type: "function", function: { name: "f" } };
    const { choices: [choice] } = await answer({ tools, tool_choice: chosen });
    assert.equal(choice?.message.tool_calls?.[0]?.function.name, "f");
    const change = { messages: [QUESTION], tools, tool_choice: "none" };
    const { choices: [none] } = await answer(change);
    assert.ok(none && !("tool_calls" in none.message));
    assert.ok(none.message.content);
  },
  async "D41 streamed fragments: id, type and name once"({ stream }) {
    const { chunks } = await stream(REQUIRED);
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const fragments = choices.flatMap(({ delta }) => delta.tool_calls ?? []);
    const firsts = fragments.filter((fragment) => "id" in fragment);
    assert.equal(firsts.length, 1);
    assert.equal(firsts[0], fragments[0]);
    assert.equal(firsts[0]?.type, "function");
    assert.equal(firsts[0]?.function.name, "get_weather");
    const pieces = fragments.map((each) => each.function.arguments ?? "");
    assert.equal(typeof JSON.parse(pieces.join("")).city, "string");
    assert.equal(choices.at(-1)?.finish_reason, "tool_calls");
  },
  async "D42 a tool's result is answered with text"({ answer }) {
    const messages = [QUESTION, TOOL_CALL, TOOL_RESULT];
    const { choices: [choice] } = await answer({ messages, tools: [WEATHER] });
    assert.ok(choice?.message.content);
  },
  async "D43 inconsistent histories: 400"({ chat }) {
    for (const rest of [[TOOL_RESULT], [TOOL_CALL, QUESTION]]) {
      const messages = [QUESTION, ...rest];
      await assertError(await chat({ messages }), { status: 400 });
    }
  },
  async "D44 bad tools: 400"({ chat }) {
    const many = Array.from({ length: 129 }, (_, i) => tool(`f${i}`));
    const undeclared = { type: "function", function: { name: "g" } };
    const mistakes: { change: object; code?: string; param?: string }[] = [
      {
        change: { tools: [tool("")] },
        code: "empty_string",
        param: "tools[0].function.name",
      },
      {
        change: { tools: many },
        code: "array_above_max_length",
        param: "tools",
      },
      { change: { tools: [WEATHER], tool_choice: undeclared } },
      { change: { tool_choice: "required" } },
    ];
    for (const { change, ...expected } of mistakes) {
      await assertError(await chat(change), { status: 400, ...expected });
    }
  },
};
