import assert from "node:assert/strict";
import { type Body, startAsked } from "./ask_fixture.ts";

const tool = (name: string, parameters: object = {}) => ({
  type: "function",
  function: { name, parameters },
});
const WEATHER = tool("get_weather", {
  type: "object",
  properties: {
    city: { type: "string" },
    days: { type: "integer", minimum: 1, maximum: 9 },
    unit: { enum: ["C", "F"] },
  },
  required: ["city", "days", "unit"],
});
const TIME = tool("currentTime");
const prompt = "What is the weather, and the time, in Rome?";

Deno.test("tool_choice and parallel_tool_calls say which tools are called", async () => {
  await using simulator = startAsked();
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

Deno.test("arguments fit the schema of the tool, whole and streamed", async () => {
  await using simulator = startAsked();
  for (let seed = 1; seed <= 20; seed++) {
    const { choices } = await simulator.ask({ prompt, tools: [WEATHER], seed });
    const text = choices[0]?.message.tool_calls?.[0]?.function.arguments ?? "";
    const { city, days, unit, ...rest } = JSON.parse(text);
    assert.equal(typeof city, "string");
    assert.ok(Number.isInteger(days) && days >= 1 && days <= 9);
    assert.ok(["C", "F"].includes(unit));
    assert.deepEqual(rest, {});
    const lines = await simulator.stream({ prompt, tools: [WEATHER], seed });
    const calls = lines.slice(0, -1).flatMap((line) =>
      JSON.parse(line).choices[0].delta.tool_calls ?? []
    );
    const streamed = calls.map((call) => call.function.arguments).join("");
    assert.equal(streamed, text);
    assert.equal(calls.filter((call) => "id" in call).length, 1);
  }
});

Deno.test("a call that does not fit into max_tokens is not begun", async () => {
  await using simulator = startAsked();
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

Deno.test("a tool's result is answered with text that quotes it", async () => {
  await using simulator = startAsked();
  const call = {
    id: "c",
    type: "function",
    function: { name: "get_weather", arguments: "{}" },
  };
  const text = await simulator.text({
    tools: [WEATHER],
    messages: [
      { role: "user", content: prompt },
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "c", content: "sunny" },
    ],
  });
  assert.match(text, /The tool answered: "sunny"\./);
});
