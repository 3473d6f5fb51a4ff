/** Chat completions of the simulator. */
import assert from "node:assert/strict";
import { type Body, startTestSimulator } from "../ask_fixture.ts";

const LONG = { prompt: "[simulator: 400 tokens]", seed: 1 };

Deno.test("each sampling field has an effect", async () => {
  await using simulator = startTestSimulator();
  const base = await simulator.text(LONG);
  const variety = (text: string) => {
    const words = text.split(/\s+/);
    return new Set(words).size / words.length;
  };
  const cases: [change: Body, isMoreVaried?: boolean][] = [
    [{ temperature: 0 }],
    [{ temperature: 2 }],
    [{ top_p: 0.1 }],
    [{ presence_penalty: 2 }, true],
    [{ frequency_penalty: -2 }, false],
    [{ repetition_penalty: 3 }, true],
    [{ seed: 2 }],
  ];
  for (const [change, isMoreVaried] of cases) {
    const text = await simulator.text({ ...LONG, ...change });
    assert.notEqual(text, base, JSON.stringify(change));
    if (isMoreVaried === undefined) continue;
    assert.equal(variety(text) > variety(base), isMoreVaried);
  }
  const likeliest = await Promise.all([
    simulator.text({ ...LONG, temperature: 0 }),
    simulator.text({ ...LONG, temperature: 0, seed: 2 }),
    simulator.text({ ...LONG, temperature: 0, seed: null }),
    simulator.text({ ...LONG, top_p: 0 }),
  ]);
  assert.equal(new Set(likeliest).size, 1);
});

Deno.test("an answer ends before a stop text, also one that spans tokens", async () => {
  await using simulator = startTestSimulator();
  const body = { temperature: 0 };
  const whole = await simulator.text(body);
  const stops = ["a", "model sim", "real model. You", whole.slice(50, 90)];
  for (const stop of stops) {
    for (const stops of [stop, ["never", stop]]) {
      const { choices } = await simulator.ask({ ...body, stop: stops });
      assert.equal(choices[0]?.finish_reason, "stop");
      const before = whole.slice(0, whole.indexOf(stop));
      assert.equal(choices[0]?.message.content, before);
    }
  }
  assert.equal(await simulator.text({ ...body, stop: "model simply" }), whole);
});

Deno.test("logprobs list each token of the text, and alternatives best first", async () => {
  await using simulator = startTestSimulator();
  const body = {
    ...LONG,
    logprobs: true,
    top_logprobs: 3,
    stop: "passage ins",
  };
  const { choices } = await simulator.ask({ ...body, stop: null });
  const content = choices[0]?.logprobs?.content;
  assert.ok(Array.isArray(content));
  assert.equal(content.length, 400);
  assert.equal(
    content.map(({ token }) => token).join(""),
    choices[0]?.message.content,
  );
  for (const { token, logprob, bytes, top_logprobs: top } of content) {
    assert.ok(logprob <= 0);
    assert.deepEqual(bytes, [...new TextEncoder().encode(token)]);
    assert.equal(top.length, 3);
    assert.ok(top[0].logprob >= top[1].logprob);
    assert.ok(top[0].logprob >= logprob);
  }
  const lines = await simulator.stream(body);
  const streamed = lines.slice(0, -1).flatMap((line) =>
    JSON.parse(line).choices.flatMap(
      (choice: { logprobs: { content: unknown[] } | null }) =>
        choice.logprobs?.content ?? [],
    )
  );
  assert.deepEqual(streamed, content.slice(0, streamed.length));
  assert.ok(streamed.length > 10);
  const plain = await simulator.ask({});
  assert.equal(plain.choices[0]?.logprobs, null);
});

Deno.test("thinking comes when asked for, bounded by its budget and the tokens of the answer", async () => {
  await using simulator = startTestSimulator();
  const reasoning = async (body: Body) => {
    const { choices, usage } = await simulator.ask(body);
    const tokens = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    const text = choices[0]?.message.reasoning_content ?? "";
    return { text, tokens, all: usage.completion_tokens };
  };
  const thought = await reasoning({ enable_thinking: true, prompt: "Why?" });
  assert.match(thought.text, /^The user says "Why\?"/);
  assert.ok(thought.tokens > 0 && thought.tokens < thought.all);
  const cases: [body: Body, isThinking: boolean][] = [
    [{ chat_template_kwargs: { enable_thinking: true } }, true],
    [{ reasoning_effort: "low" }, true],
    [{ reasoning_effort: "none" }, false],
    [{ enable_thinking: false, reasoning_effort: "low" }, false],
  ];
  for (const [body, isThinking] of cases) {
    assert.equal((await reasoning(body)).tokens > 0, isThinking);
  }
  const budget = { enable_thinking: true, thinking_budget: 5 };
  assert.equal((await reasoning(budget)).tokens, 5);
  const short = await reasoning({
    enable_thinking: true,
    max_completion_tokens: 3,
  });
  assert.deepEqual([short.tokens, short.all], [3, 3]);
});

const tool = (name: string, parameters: object = {}) => ({
  type: "function",
  function: { name, parameters },
});
const WEATHER = tool("get_weather", {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
});
const TIME = tool("currentTime");
const prompt = "What is the weather, and the time, in Rome?";

Deno.test("tool_choice and parallel_tool_calls say which tools are called", async () => {
  await using simulator = startTestSimulator();
  const both = ["get_weather", "currentTime"];
  const time = { type: "function", function: { name: "currentTime" } };
  const cases: [body: Body, called: string[]][] = [
    [{ prompt }, both],
    [{ prompt, tool_choice: "auto" }, both],
    [{ prompt, parallel_tool_calls: false }, ["get_weather"]],
    [{ prompt, tool_choice: "none" }, []],
    [{ prompt: "Hello" }, []],
    [{ prompt: "Hello", tool_choice: "required" }, ["get_weather"]],
    [{ prompt, tool_choice: time }, ["currentTime"]],
  ];
  for (const [body, called] of cases) {
    const tools = [WEATHER, TIME];
    const { choices: [choice] } = await simulator.ask({ tools, ...body });
    const calls = choice?.message.tool_calls ?? [];
    assert.deepEqual(calls.map((call) => call.function.name), called);
    const hasCalls = choice?.finish_reason === "tool_calls";
    assert.equal(hasCalls, called.length > 0);
  }
});

Deno.test("a call that does not fit into max_tokens is not begun", async () => {
  await using simulator = startTestSimulator();
  const kinds = new Set<string>();
  for (let max_tokens = 1; max_tokens <= 40; max_tokens++) {
    const { choices, usage } = await simulator.ask({
      prompt,
      tools: [WEATHER, TIME],
      tool_choice: "required",
      max_tokens,
    });
    const [choice] = choices;
    kinds.add(choice?.finish_reason ?? "");
    assert.ok(usage.completion_tokens <= max_tokens);
    for (const call of choice?.message.tool_calls ?? []) {
      JSON.parse(call.function.arguments);
    }
  }
  assert.deepEqual([...kinds].sort(), ["length", "tool_calls"]);
});
