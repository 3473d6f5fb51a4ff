// The official SDKs read what the simulator sends as they read their makers' answers.
import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert/strict";
import OpenAI from "openai";
import { startTestSimulator, type TestSimulator } from "../ask_fixture.ts";

const MODEL = "neutral-3.7-plus";
const PROMPT = "What is the weather in San Francisco, CA?";
const WEATHER = {
  type: "object" as const,
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city"],
};

function clientsOf({ url }: TestSimulator) {
  const options = { apiKey: "none", maxRetries: 0 };
  return {
    openai: new OpenAI({ baseURL: url, ...options }),
    anthropic: new Anthropic({ baseURL: url.replace(/\/v1$/, ""), ...options }),
  };
}

Deno.test("Anthropic's SDK reads thinking and text, whole and as events", async () => {
  await using simulator = startTestSimulator();
  const { anthropic } = clientsOf(simulator);
  const request = {
    model: MODEL,
    max_tokens: 500,
    temperature: 0,
    system: [{ type: "text" as const, text: "Be brief." }],
    thinking: { type: "enabled" as const, budget_tokens: 10 },
    messages: [{ role: "user" as const, content: "Hello" }],
  };
  const whole = await anthropic.messages.create(request);
  const streamed = await anthropic.messages.stream(request).finalMessage();
  for (const message of [whole, streamed]) {
    assert.match(message.id, /^msg_/);
    assert.deepEqual(
      message.content.map(({ type }) => type),
      ["thinking", "text"],
    );
    assert.equal(message.stop_reason, "end_turn");
    assert.ok(message.usage.output_tokens > 10);
  }
  assert.deepEqual(streamed.content, whole.content);
  assert.deepEqual(streamed.usage, whole.usage);
  const { input_tokens } = await anthropic.messages.countTokens(request);
  assert.equal(input_tokens, whole.usage.input_tokens);
});

Deno.test("Anthropic's SDK gets a call, and an answer to its result", async () => {
  await using simulator = startTestSimulator();
  const { anthropic } = clientsOf(simulator);
  const request = {
    model: MODEL,
    max_tokens: 500,
    tools: [
      { name: "get_weather", input_schema: WEATHER },
      { type: "web_search_20250305" as const, name: "web_search" as const },
    ],
  };
  const message = { role: "user" as const, content: PROMPT };
  const first = { ...request, messages: [message] };
  const whole = await anthropic.messages.create(first);
  const streamed = await anthropic.messages.stream(first).finalMessage();
  for (const { stop_reason, content } of [whole, streamed]) {
    assert.equal(stop_reason, "tool_use");
    const [call] = content;
    assert.partialDeepStrictEqual(call, {
      type: "tool_use",
      name: "get_weather",
      input: { city: "San Francisco, CA" },
    });
  }
  const [call] = whole.content;
  assert.ok(call?.type === "tool_use");
  const result = {
    type: "tool_result" as const,
    tool_use_id: call.id,
    content: [{ type: "text" as const, text: "rain" }],
  };
  const { stop_reason, content } = await anthropic.messages.create({
    ...request,
    messages: [
      message,
      { role: "assistant", content: whole.content },
      { role: "user", content: [result] },
    ],
  });
  assert.equal(stop_reason, "end_turn");
  const [text] = content;
  assert.match(text?.type === "text" ? text.text : "", /answered: "rain"/);
});

Deno.test("a message ends at a stop sequence, or where its tokens end", async () => {
  await using simulator = startTestSimulator();
  const { anthropic } = clientsOf(simulator);
  const ask = (change: object) =>
    anthropic.messages.create({
      model: MODEL,
      max_tokens: 100,
      messages: [{ role: "user", content: "Hello" }],
      ...change,
    });
  const stopped = await ask({ stop_sequences: ["never", "simulator"] });
  assert.partialDeepStrictEqual(stopped, {
    stop_reason: "stop_sequence",
    stop_sequence: "simulator",
  });
  const cut = await ask({ max_tokens: 3 });
  assert.equal(cut.stop_reason, "max_tokens");
  assert.equal(cut.usage.output_tokens, 3);
});

Deno.test("a long prompt is read from the cache the second time", async () => {
  await using simulator = startTestSimulator();
  const { anthropic, openai } = clientsOf(simulator);
  const long = "A long instruction. ".repeat(500);
  const cache_control = { type: "ephemeral" as const };
  const ask = () =>
    anthropic.messages.create({
      model: MODEL,
      max_tokens: 20,
      system: [{ type: "text", text: long, cache_control }],
      messages: [{ role: "user", content: "Hello" }],
    });
  const [first, second] = [(await ask()).usage, (await ask()).usage];
  assert.equal(first.cache_read_input_tokens, 0);
  assert.ok((first.cache_creation_input_tokens ?? 0) > 2_000);
  assert.equal(second.cache_creation_input_tokens, 0);
  assert.equal(
    second.cache_read_input_tokens,
    first.cache_creation_input_tokens,
  );
  assert.equal(second.input_tokens, first.input_tokens);
  const respond = () => openai.responses.create({ model: MODEL, input: long });
  const cached = async () =>
    (await respond()).usage?.input_tokens_details.cached_tokens ?? 0;
  assert.equal(await cached(), 0);
  assert.ok(await cached() > 2_000);
});

Deno.test("OpenAI's SDK reads a response: reasoning, text, calls, whole and as events", async () => {
  await using simulator = startTestSimulator();
  const { openai } = clientsOf(simulator);
  const tool = {
    type: "function" as const,
    name: "get_weather",
    parameters: WEATHER,
    strict: false,
  };
  const cases = [
    { input: "Hello", reasoning: { effort: "low" as const } },
    { input: PROMPT, tools: [tool], tool_choice: "required" as const },
    { input: [{ role: "user" as const, content: PROMPT }], tools: [tool] },
  ];
  const types: string[][] = [];
  for (const change of cases) {
    const request = { model: MODEL, temperature: 0, ...change };
    const whole = await openai.responses.create(request);
    const streamed = await openai.responses.stream(request).finalResponse();
    assert.equal(whole.status, "completed");
    assert.equal(streamed.status, "completed");
    const itemsOf = ({ output }: Pick<typeof whole, "output">) =>
      output.map((item) => {
        if (item.type === "message") return item.content;
        return item.type === "function_call" ? item.arguments : item.type;
      });
    assert.deepEqual(
      JSON.parse(JSON.stringify(itemsOf(whole))),
      JSON.parse(JSON.stringify(itemsOf(streamed))).map((each: unknown) =>
        Array.isArray(each)
          ? each.map(({ parsed: _, ...part }: Record<string, unknown>) => part)
          : each
      ),
    );
    types.push(whole.output.map(({ type }) => type));
    assert.deepEqual(streamed.usage, whole.usage);
  }
  assert.deepEqual(types, [
    ["reasoning", "message"],
    ["function_call"],
    ["function_call"],
  ]);
});

Deno.test("the events of a response are numbered, and end with how it ended", async () => {
  await using simulator = startTestSimulator();
  const { openai } = clientsOf(simulator);
  const events = await openai.responses.create({
    model: MODEL,
    input: "Hello",
    max_output_tokens: 5,
    stream: true,
  });
  const all = [];
  for await (const event of events) all.push(event);
  assert.deepEqual(all.map(({ sequence_number }) => sequence_number), [
    ...all.keys(),
  ]);
  assert.equal(all[0]?.type, "response.created");
  const last = all.at(-1);
  assert.ok(last?.type === "response.incomplete");
  assert.equal(
    last.response.incomplete_details?.reason,
    "max_output_tokens",
  );
  assert.equal(last.response.usage?.output_tokens, 5);
});

Deno.test("a wrong request of an agent is refused in the form of its endpoint", async () => {
  await using simulator = startTestSimulator();
  const messages = [{ role: "user", content: "Hello" }];
  const cases = [
    {
      path: "/messages",
      body: { model: MODEL, messages },
      status: 400,
      message: /'max_tokens'/,
    },
    {
      path: "/messages",
      body: { model: "x", messages, max_tokens: 1 },
      status: 404,
      message: /not exist/,
    },
    {
      path: "/messages/count_tokens",
      body: { model: MODEL },
      status: 400,
      message: /'messages'/,
    },
    {
      path: "/responses",
      body: { model: MODEL },
      status: 400,
      message: /'input'/,
    },
    {
      path: "/responses",
      body: { model: MODEL, input: "a", previous_response_id: "resp_1" },
      status: 400,
      message: /stores none/,
    },
    {
      path: "/completions",
      body: { model: MODEL },
      status: 400,
      message: /'prompt'/,
    },
  ] as const;
  for (const { path, body, status, message } of cases) {
    const answer = await simulator.post(path, body);
    const refusal = await answer.json();
    assert.equal(answer.status, status, path);
    assert.match(refusal.error.message, message);
    const isAnthropic = path.startsWith("/messages");
    assert.equal(refusal.type === "error", isAnthropic);
    const type = status === 404 ? "not_found_error" : "invalid_request_error";
    assert.equal(
      refusal.error.type,
      isAnthropic ? type : "invalid_request_error",
    );
  }
});

Deno.test("OpenAI's SDK reads completions: several prompts, echo, a suffix, events", async () => {
  await using simulator = startTestSimulator();
  const { openai } = clientsOf(simulator);
  const ask = (change: object) =>
    openai.completions.create({
      model: MODEL,
      prompt: "Once",
      ...change,
      stream: false,
    });
  const { choices, usage } = await ask({
    prompt: ["Once", "Twice"],
    n: 2,
    echo: true,
    logprobs: 2,
  });
  assert.deepEqual(
    choices.map(({ text }) => text.split(" ")[0]),
    ["Once", "Once", "Twice", "Twice"],
  );
  assert.equal(usage?.completion_tokens, 4 * 16);
  assert.equal(choices[0]?.finish_reason, "length");
  assert.equal(choices[0]?.logprobs?.tokens?.length, 16);
  const filled = await ask({ suffix: "\n}" });
  assert.equal(filled.choices[0]?.text, "the model simulator fills this gap");
  assert.equal(filled.choices[0]?.finish_reason, "stop");
  const streamed = await openai.completions.create({
    model: MODEL,
    prompt: [1, 2, 3],
    temperature: 0,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  let tokens = 0;
  for await (const chunk of streamed) {
    text += chunk.choices[0]?.text ?? "";
    tokens = chunk.usage?.completion_tokens ?? tokens;
  }
  const again = await ask({ prompt: [1, 2, 3], temperature: 0 });
  assert.equal(text, again.choices[0]?.text);
  assert.equal(tokens, 16);
});
