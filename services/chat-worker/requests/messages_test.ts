/** Messages with images of tools, as each server takes them. */
import assert from "node:assert/strict";
import { type Dialect, DIALECTS } from "@gateway/shared/models/dialects";
import type { ChatMessage } from "@gateway/shared/openai/chat_message";
import { messagesFor } from "./messages.ts";

interface Case {
  name: string;
  dialect: Dialect;
  messages: ChatMessage[];
  result: ChatMessage[];
}

const { dashscope, vllm, ollama, openai } = DIALECTS;
const image = (name: string) => (
  { type: "image_url", image_url: { url: `data:image/png;base64,${name}` } }
);
const text = (text: string) => ({ type: "text", text });
const question: ChatMessage = { role: "user", content: "What is it?" };
const result = (id: string, content: ChatMessage["content"]): ChatMessage => (
  { role: "tool", tool_call_id: id, content }
);
const thought = (members: Partial<ChatMessage>): ChatMessage => (
  { role: "assistant", content: "b", ...members }
);
const details = [
  { type: "reasoning.text", text: "wh", signature: "s" },
  { type: "reasoning.encrypted", data: "x" },
  { type: "reasoning.text", text: "y" },
];

const CASES: Case[] = [
  {
    name: "images of tools as they are",
    dialect: dashscope,
    messages: [result("c1", [text("see"), image("A")])],
    result: [result("c1", [text("see"), image("A")])],
  },
  {
    name: "images of two results in a message of the user after both",
    dialect: openai,
    messages: [
      result("c1", [text("see"), image("A"), text("this")]),
      result("c2", [image("B")]),
      question,
    ],
    result: [
      result("c1", "see\nthis"),
      result("c2", "The result is in the next user message."),
      {
        role: "user",
        content: [
          text("Result of tool call c1:"),
          image("A"),
          text("Result of tool call c2:"),
          image("B"),
        ],
      },
      question,
    ],
  },
  {
    name: "images of the last result at the end",
    dialect: openai,
    messages: [question, result("c1", "text"), result("c2", [image("B")])],
    result: [
      question,
      result("c1", "text"),
      result("c2", "The result is in the next user message."),
      {
        role: "user",
        content: [text("Result of tool call c2:"), image("B")],
      },
    ],
  },
  {
    name: "images of users where they are",
    dialect: openai,
    messages: [{ role: "user", content: [image("A")] }],
    result: [{ role: "user", content: [image("A")] }],
  },
  {
    name: "reasoning as reasoning_content",
    dialect: dashscope,
    messages: [thought({ reasoning: "why" })],
    result: [thought({ reasoning_content: "why" })],
  },
  {
    name: "reasoning_content as reasoning",
    dialect: vllm,
    messages: [thought({ reasoning_content: "why", x: 1 })],
    result: [thought({ reasoning: "why", x: 1 })],
  },
  {
    name: "one of two names",
    dialect: ollama,
    messages: [thought({ reasoning_content: "why", reasoning: "why" })],
    result: [thought({ reasoning: "why" })],
  },
  {
    name: "the texts of reasoning_details, which stay",
    dialect: vllm,
    messages: [thought({ reasoning_details: details })],
    result: [thought({ reasoning: "why", reasoning_details: details })],
  },
  {
    name: "reasoning as the client sent it",
    dialect: openai,
    messages: [thought({ reasoning: "why", reasoning_details: details })],
    result: [thought({ reasoning: "why", reasoning_details: details })],
  },
  {
    name: "no reasoning where there is none",
    dialect: vllm,
    messages: [thought({ reasoning_content: "" }), thought({})],
    result: [thought({ reasoning_content: "" }), thought({})],
  },
];

for (const { name, dialect, messages, result } of CASES) {
  Deno.test(`messagesFor() sends ${name}`, () => {
    assert.deepEqual(messagesFor(messages, dialect), result);
  });
}
