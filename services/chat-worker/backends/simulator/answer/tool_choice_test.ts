import assert from "node:assert/strict";
import type { ChatMessage, Tool } from "@gateway/shared/openai/chat";
import { type RequestFields, requestOf } from "../test_support.ts";
import { readConversation } from "./conversation.ts";
import { readFacts } from "./hints.ts";
import { planCalls } from "./tool_choice.ts";

const WEATHER = tool("get_weather", "Get the current weather in a location", {
  location: { type: "string" },
  unit: { type: "string", enum: ["celsius", "fahrenheit"] },
});
const CLOCK = tool("getLocalTime", "Tells what time it is in a city", {
  city: { type: "string" },
});
const MAIL = tool("send_mail", "Sends an email message to a person", {
  to: { type: "string" },
  body: { type: "string" },
});
const TOOLS = [WEATHER, CLOCK, MAIL];

const AFTER_RESULT: ChatMessage[] = [
  { role: "user", content: "What is the weather in Rome?" },
  {
    role: "assistant",
    content: null,
    tool_calls: [{
      id: "c1",
      type: "function",
      function: { name: "get_weather", arguments: "{}" },
    }],
  },
  { role: "tool", tool_call_id: "c1", content: "sunny" },
];

interface Case {
  name: string;
  fields: RequestFields;
  /** Names of the functions called, in order. */
  called: string[];
}

const CASES: Case[] = [
  { name: "no tools", fields: { messages: "weather" }, called: [] },
  {
    name: "empty tools",
    fields: { messages: "weather", tools: [], tool_choice: "required" },
    called: [],
  },
  {
    name: "auto, on the subject",
    fields: { messages: "What's the weather in Rome?", tools: TOOLS },
    called: ["get_weather"],
  },
  {
    name: "auto, another word form",
    fields: { messages: "please mail Ada", tools: TOOLS },
    called: ["send_mail"],
  },
  {
    name: "auto, off the subject",
    fields: { messages: "Tell me a joke about the current king", tools: TOOLS },
    called: [],
  },
  {
    name: "auto, common words only",
    fields: { messages: "Can you get me what is in a set?", tools: TOOLS },
    called: [],
  },
  {
    name: "auto, after a result",
    fields: { messages: AFTER_RESULT, tools: TOOLS },
    called: [],
  },
  {
    name: "auto, two subjects",
    fields: { messages: "weather and local time in Rome", tools: TOOLS },
    called: ["getLocalTime", "get_weather"],
  },
  {
    name: "auto, two subjects, one at a time",
    fields: {
      messages: "weather and local time in Rome",
      tools: TOOLS,
      parallel_tool_calls: false,
    },
    called: ["getLocalTime"],
  },
  {
    name: "auto, two places",
    fields: { messages: "The weather in Paris and Rome?", tools: TOOLS },
    called: ["get_weather", "get_weather"],
  },
  {
    name: "auto, two places, one at a time",
    fields: {
      messages: "The weather in Paris and Rome?",
      tools: TOOLS,
      parallel_tool_calls: false,
    },
    called: ["get_weather"],
  },
  {
    name: "none, on the subject",
    fields: { messages: "weather", tools: TOOLS, tool_choice: "none" },
    called: [],
  },
  {
    name: "required, off the subject",
    fields: { messages: "hello", tools: TOOLS, tool_choice: "required" },
    called: ["get_weather"],
  },
  {
    name: "required, on the subject of another",
    fields: { messages: "mail Ada", tools: TOOLS, tool_choice: "required" },
    called: ["send_mail"],
  },
  {
    name: "required, after a result",
    fields: {
      messages: AFTER_RESULT,
      tools: TOOLS,
      tool_choice: "required",
    },
    called: ["get_weather"],
  },
  {
    name: "named, off the subject",
    fields: {
      messages: "hello",
      tools: TOOLS,
      tool_choice: { type: "function", function: { name: "getLocalTime" } },
    },
    called: ["getLocalTime"],
  },
  {
    name: "named, after a result",
    fields: {
      messages: AFTER_RESULT,
      tools: TOOLS,
      tool_choice: { type: "function", function: { name: "send_mail" } },
    },
    called: ["send_mail"],
  },
];

for (const { name, fields, called } of CASES) {
  Deno.test(`planCalls() calls [${called}] for ${name}`, () => {
    const request = requestOf(fields);
    const conversation = readConversation(request);
    const facts = readFacts(conversation.userTexts[0] ?? "");
    const calls = planCalls(request, conversation, facts);
    assert.deepEqual(calls.map((call) => call.tool.function.name), called);
    for (const { tool, toolAt } of calls) assert.equal(TOOLS[toolAt], tool);
  });
}

Deno.test("planCalls() gives each of several places its call", () => {
  const request = requestOf({
    messages: "The weather in Paris and Rome?",
    tools: TOOLS,
  });
  const facts = readFacts("The weather in Paris and Rome?");
  const calls = planCalls(request, readConversation(request), facts);
  assert.deepEqual(calls.map((call) => call.name), ["Paris", "Rome"]);
});

function tool(
  name: string,
  description: string,
  properties: { [name: string]: unknown },
): Tool {
  const parameters = { type: "object", properties };
  return { type: "function", function: { name, description, parameters } };
}
