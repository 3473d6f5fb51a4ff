/** Cases D: tools. */
import assert from "node:assert/strict";
import { assertError, type Cases } from "./context.ts";

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
const ASKED = { role: "assistant", content: null, tool_calls: [CALL] };
const ANSWERED = { role: "tool", tool_call_id: "call_1", content: "sunny" };
const REQUIRED = {
  messages: [QUESTION],
  tools: [WEATHER],
  tool_choice: "required",
};

export const toolCases: Cases = async (t, { answer, chat, stream }) => {
  await t.step("D39 tool_choice required calls a declared tool", async () => {
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
  });
  await t.step("D40 a named tool is called, none calls none", async () => {
    const tools = [WEATHER, tool("f")];
    const chosen = { type: "function", function: { name: "f" } };
    const { choices: [named] } = await answer({ tools, tool_choice: chosen });
    assert.equal(named?.message.tool_calls?.[0]?.function.name, "f");
    const change = { messages: [QUESTION], tools, tool_choice: "none" };
    const { choices: [none] } = await answer(change);
    assert.ok(none && !("tool_calls" in none.message));
    assert.ok(none.message.content);
  });
  await t.step("D41 streamed fragments: id, type and name once", async () => {
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
  });
  await t.step("D42 a tool's result is answered with text", async () => {
    const messages = [QUESTION, ASKED, ANSWERED];
    const { choices: [choice] } = await answer({ messages, tools: [WEATHER] });
    assert.ok(choice?.message.content);
  });
  await t.step("D43 inconsistent histories: 400", async () => {
    for (const rest of [[ANSWERED], [ASKED, QUESTION]]) {
      const messages = [QUESTION, ...rest];
      await assertError(await chat({ messages }), { status: 400 });
    }
  });
  await t.step("D44 bad tools: 400", async () => {
    const many = Array.from({ length: 129 }, (_, i) => tool(`f${i}`));
    const undeclared = { type: "function", function: { name: "g" } };
    const bad = { tools: [tool("bad name!")] };
    const rows: [change: object, code?: string, param?: string][] = [
      [bad, "invalid_value", "tools[0].function.name"],
      [{ tools: many }, "array_above_max_length", "tools"],
      [{ tools: [WEATHER], tool_choice: undeclared }],
      [{ tool_choice: "required" }],
    ];
    for (const [change, code, param] of rows) {
      await assertError(await chat(change), { status: 400, code, param });
    }
  });
};
