/** Cases D: tools. */
import assert from "node:assert/strict";
import { assertError, type Context } from "./context.ts";

const tool = (name: string, parameters?: object) => ({
  type: "function",
  function: {
    name,
    description: `Calls ${name}`,
    ...(parameters && { parameters }),
  },
});
const WEATHER = tool("get_weather", {
  type: "object",
  properties: {
    city: { type: "string" },
    days: { type: "integer", minimum: 1, maximum: 9 },
  },
  required: ["city", "days"],
});
const CALL = {
  id: "call_1",
  type: "function",
  function: { name: "get_weather", arguments: '{"city":"Rome","days":1}' },
};
const QUESTION = { role: "user", content: "What is the weather in Rome?" };
const ASKED = { role: "assistant", content: null, tool_calls: [CALL] };
const ANSWERED = { role: "tool", tool_call_id: "call_1", content: "sunny" };

export async function toolCases(
  t: Deno.TestContext,
  { chat, stream }: Context,
): Promise<void> {
  const choiceOf = async (change: object) => {
    const response = await chat(change);
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return JSON.parse(text).choices[0];
  };

  await t.step("D39 tool_choice required calls a declared tool", async () => {
    const choice = await choiceOf({
      messages: [QUESTION],
      tools: [WEATHER],
      tool_choice: "required",
    });
    assert.equal(choice.finish_reason, "tool_calls");
    assert.equal(choice.message.content, null);
    const [call] = choice.message.tool_calls;
    assert.ok(call.id);
    assert.equal(call.type, "function");
    assert.equal(call.function.name, "get_weather");
    const { city, days } = JSON.parse(call.function.arguments);
    assert.equal(typeof city, "string");
    assert.ok(Number.isInteger(days) && days >= 1 && days <= 9);
  });
  await t.step("D40 a named tool is called, none calls none", async () => {
    const tools = [WEATHER, tool("f")];
    const named = await choiceOf({
      tools,
      tool_choice: { type: "function", function: { name: "f" } },
    });
    assert.equal(named.message.tool_calls[0].function.name, "f");
    const none = await choiceOf({
      messages: [QUESTION],
      tools,
      tool_choice: "none",
    });
    assert.ok(!("tool_calls" in none.message));
    assert.ok(none.message.content);
  });
  await t.step("D41 streamed fragments: id, type and name once", async () => {
    const { chunks } = await stream({
      messages: [QUESTION],
      tools: [WEATHER],
      tool_choice: "required",
    });
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const fragments = choices.flatMap((choice) => {
      const calls = choice.delta.tool_calls;
      return Array.isArray(calls) ? calls : [];
    });
    assert.ok(
      fragments.every((fragment) => Number.isInteger(fragment.index)),
    );
    const firsts = fragments.filter((fragment) => "id" in fragment);
    assert.equal(firsts.length, 1);
    assert.equal(firsts[0], fragments[0]);
    assert.equal(firsts[0]?.type, "function");
    assert.equal(firsts[0]?.function.name, "get_weather");
    const text = fragments.map((fragment) => fragment.function.arguments ?? "")
      .join("");
    assert.equal(typeof JSON.parse(text).city, "string");
    assert.equal(choices.at(-1)?.finish_reason, "tool_calls");
  });
  await t.step("D42 a tool's result is answered with text", async () => {
    const choice = await choiceOf({
      messages: [QUESTION, ASKED, ANSWERED],
      tools: [WEATHER],
    });
    assert.ok(choice.message.content);
  });
  await t.step("D43 inconsistent histories: 400", async () => {
    await assertError(
      await chat({ messages: [QUESTION, ANSWERED] }),
      { status: 400 },
      "a result nobody asked for",
    );
    await assertError(
      await chat({ messages: [QUESTION, ASKED, QUESTION] }),
      { status: 400 },
      "a call nobody answered",
    );
  });
  await t.step("D44 bad tools: 400", async () => {
    await assertError(
      await chat({ tools: [tool("bad name!")] }),
      { status: 400, code: "invalid_value", param: "tools[0].function.name" },
      "bad name",
    );
    await assertError(
      await chat({
        tools: Array.from({ length: 129 }, (_, i) => tool(`f${i}`)),
      }),
      { status: 400, code: "array_above_max_length", param: "tools" },
      "129 tools",
    );
    await assertError(
      await chat({
        tools: [WEATHER],
        tool_choice: { type: "function", function: { name: "g" } },
      }),
      { status: 400 },
      "undeclared function",
    );
    await assertError(
      await chat({ tool_choice: "required" }),
      { status: 400 },
      "required without tools",
    );
  });
}
