import assert from "node:assert/strict";
import type { ChatMessage, Tool } from "@gateway/shared/openai/chat";
import { ask, askOne, countTokens } from "./test_support.ts";

const WEATHER: Tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the current weather in a location",
    parameters: {
      type: "object",
      properties: {
        location: { type: "string" },
        unit: { type: "string", enum: ["celsius", "fahrenheit"] },
        days: { type: "integer", minimum: 1, maximum: 10 },
      },
      required: ["location", "days"],
      additionalProperties: false,
    },
  },
};
const QUESTION = "What's the weather in Rome in celsius?";

Deno.test("a call has an id, a name and arguments from the question, and nothing else is said", async () => {
  for (let seed = 0; seed < 10; seed++) {
    const { choices, usage } = await ask({
      seed,
      messages: QUESTION,
      tools: [WEATHER],
    });
    const [choice] = choices;
    assert.equal(choice?.content, "");
    assert.equal(choice.finish, "tool_calls");
    const [call] = choice.calls;
    assert.match(call?.id ?? "", /^call_[0-9a-f]{24}$/);
    assert.equal(call?.name, "get_weather");
    const given = JSON.parse(call.text);
    assert.equal(given.location, "Rome");
    assert.equal(given.unit, "celsius");
    assert.ok(Number.isInteger(given.days));
    assert.ok(given.days >= 1 && given.days <= 10);
    // The call mark is one token.
    assert.equal(usage?.completion_tokens, 1 + countTokens(call.text));
  }
});

Deno.test("a streamed call has its id, type and name in the first fragment only", async () => {
  const { batches } = await ask({
    messages: "The weather in Paris and Rome?",
    tools: [WEATHER],
  });
  const fragments = batches.flat().flatMap((event) =>
    event.type === "delta" ? event.toolCalls ?? [] : []
  );
  const heads = fragments.filter((fragment) => fragment.id !== undefined);
  assert.deepEqual(heads.map(({ index }) => index), [0, 1]);
  for (const { type, function: { name, arguments: text } } of heads) {
    assert.deepEqual([type, name, text], ["function", "get_weather", ""]);
  }
  for (const fragment of fragments) {
    if (heads.includes(fragment)) continue;
    assert.deepEqual(Object.keys(fragment), ["index", "function"]);
    assert.deepEqual(Object.keys(fragment.function), ["arguments"]);
  }
  assert.ok(fragments.length > 10);
  const order = fragments.map(({ index }) => index);
  assert.deepEqual(order, [...order].sort());
});

Deno.test("calls of one request have different ids, and so have those of later turns with the same seed", async () => {
  const ids = new Set<string>();
  const messages: ChatMessage[] = [{ role: "user", content: QUESTION }];
  for (let turn = 0; turn < 4; turn++) {
    const { choices } = await ask({
      seed: 1,
      n: 2,
      messages,
      tools: [WEATHER],
      tool_choice: "required",
    });
    for (const { calls } of choices) {
      for (const { id } of calls) ids.add(id);
    }
    messages.push(
      { role: "assistant", content: "Sunny." },
      { role: "user", content: QUESTION },
    );
  }
  assert.equal(ids.size, 8);
});

Deno.test("after a tool's result the answer is text with the result in it", async () => {
  const { content, calls, finish } = await askOne({
    messages: [
      { role: "user", content: QUESTION },
      {
        role: "assistant",
        content: null,
        tool_calls: [{
          id: "call_1",
          type: "function",
          function: { name: "get_weather", arguments: '{"location":"Rome"}' },
        }],
      },
      { role: "tool", tool_call_id: "call_1", content: '{"temp":23}' },
    ],
    tools: [WEATHER],
  });
  assert.deepEqual(calls, []);
  assert.equal(finish, "stop");
  assert.match(content, /get_weather.*23/);
});

Deno.test("tool_choice none answers in text", async () => {
  const { content, calls, finish } = await askOne({
    messages: QUESTION,
    tools: [WEATHER],
    tool_choice: "none",
  });
  assert.deepEqual(calls, []);
  assert.ok(content.length > 20);
  assert.equal(finish, "stop");
});

Deno.test("max_tokens cuts a call short, and says so", async () => {
  const fields = { seed: 1, messages: QUESTION, tools: [WEATHER] };
  const { calls, usage } = await askOne(fields);
  const tokens = usage?.completion_tokens ?? 0;
  for (const max_tokens of [1, 2, tokens - 1]) {
    const cut = await askOne({ ...fields, max_tokens });
    assert.equal(cut.finish, "length");
    assert.equal(cut.usage?.completion_tokens, max_tokens);
    assert.equal(cut.calls[0]?.name, "get_weather");
    assert.ok(calls[0]?.text.startsWith(cut.calls[0].text));
  }
  const whole = await askOne({ ...fields, max_tokens: tokens });
  assert.equal(whole.finish, "tool_calls");
});

Deno.test("a model may think before it calls, and a stop text does not reach into a call", async () => {
  const { reasoning, calls, finish } = await askOne({
    messages: QUESTION,
    tools: [WEATHER],
    enable_thinking: true,
    stop: ["location", "{"],
  });
  assert.ok(reasoning.length > 20);
  assert.equal(JSON.parse(calls[0]?.text ?? "").location, "Rome");
  assert.equal(finish, "tool_calls");
});

Deno.test("a thought that is cut inside a character leaves the call whole", async () => {
  for (const thinking_budget of [4, 5, 6, 7, 8, 9, 10]) {
    const { reasoning, calls } = await askOne({
      messages: "🚀🚀🚀 weather in Rome",
      tools: [WEATHER],
      enable_thinking: true,
      thinking_budget,
    });
    assert.doesNotMatch(reasoning, /\ufffd/);
    assert.equal(JSON.parse(calls[0]?.text ?? "").location, "Rome");
  }
});

Deno.test("a call wins over a response format, which holds when there is none", async () => {
  const response_format = { type: "json_object" } as const;
  const call = await askOne({
    messages: QUESTION,
    tools: [WEATHER],
    response_format,
  });
  assert.equal(call.finish, "tool_calls");
  const text = await askOne({
    messages: "hello",
    tools: [WEATHER],
    response_format,
  });
  assert.ok(JSON.parse(text.content));
});

Deno.test("a function without parameters is called with an empty object", async () => {
  const { calls } = await askOne({
    messages: "hello",
    tools: [{ type: "function", function: { name: "ping" } }],
    tool_choice: "required",
  });
  assert.equal(calls[0]?.text, "{}");
});
