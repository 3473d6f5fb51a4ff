import assert from "node:assert/strict";
import { type Body, startAsked } from "../ask_fixture.ts";

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
