/** What identifies the requests of one conversation. */
import assert from "node:assert/strict";
import { conversationOf, type ConversationRequest } from "./affinity.ts";

const idOf = (
  body: unknown,
  headers: ConversationRequest["headers"] = {},
  account = "own_a",
) => conversationOf({ body, headers, account });

const turns = (...texts: string[]) =>
  texts.map((content, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content,
  }));
const TOOLS = [{ type: "function", function: { name: "read" } }];

Deno.test("conversationOf() returns 16 hexadecimal digits, whatever the body is", () => {
  const bodies = [null, [], "text", 1, {}, { messages: "a" }, { tools: 1 }];
  for (const body of [...bodies, { messages: [null] }, { input: [[1]] }]) {
    assert.match(idOf(body), /^[0-9a-f]{16}$/);
  }
});

const LONG = "x".repeat(100_000);

/** Requests of one conversation. */
const SAME: { title: string; one: unknown; other: unknown }[] = [
  {
    title: "that grows",
    one: { messages: turns("Hi") },
    other: { messages: turns("Hi", "Hello.", "And then?") },
  },
  {
    title: "with instructions and tools",
    one: { system: "Be brief", tools: TOOLS, messages: turns("Hi") },
    other: {
      system: "Be brief",
      tools: TOOLS,
      messages: turns("Hi", "Hello.", "?"),
    },
  },
  {
    title: "whose cached part moves",
    one: {
      messages: [{
        role: "user",
        content: [{
          type: "text",
          text: "Hi",
          cache_control: { type: "ephemeral" },
        }],
      }],
    },
    other: {
      messages: [{ role: "user", content: [{ type: "text", text: "Hi" }] }],
    },
  },
  {
    title: "of responses",
    one: { instructions: "Be brief", input: turns("Hi") },
    other: { instructions: "Be brief", input: turns("Hi", "Hello.", "?") },
  },
  {
    title: "that a key names",
    one: { prompt_cache_key: "k", messages: turns("Hi") },
    other: { prompt_cache_key: "k", user: "u", messages: turns("Other") },
  },
  {
    title: "of one user",
    one: { user: "u", messages: turns("Hi") },
    other: { user: "u", messages: turns("Other") },
  },
];

for (const { title, one, other } of SAME) {
  Deno.test(`conversationOf() is the same for a conversation ${title}`, () => {
    assert.equal(idOf(one), idOf(other));
  });
}

/** Requests of different conversations. */
const OTHER: { title: string; one: unknown; other: unknown }[] = [
  {
    title: "first messages",
    one: { messages: turns("Hi") },
    other: { messages: turns("Ho") },
  },
  {
    title: "instructions",
    one: { messages: [{ role: "system", content: "a" }, ...turns("Hi")] },
    other: { messages: [{ role: "system", content: "b" }, ...turns("Hi")] },
  },
  {
    title: "system",
    one: { system: "a", messages: turns("Hi") },
    other: { messages: turns("Hi") },
  },
  {
    title: "tools",
    one: { tools: TOOLS, messages: turns("Hi") },
    other: { tools: [{ name: "write" }], messages: turns("Hi") },
  },
  { title: "inputs", one: { input: "a" }, other: { input: "b" } },
  { title: "prompts", one: { prompt: "a" }, other: { prompt: ["b"] } },
  {
    title: "keys",
    one: { prompt_cache_key: "a" },
    other: { prompt_cache_key: "b" },
  },
  // No two lists of parts are the same text.
  {
    title: "places of a text",
    one: { system: "ab", messages: turns("c") },
    other: { system: "a", messages: turns("bc") },
  },
  {
    title: "long beginnings",
    one: { input: `a${LONG}` },
    other: { input: `b${LONG}` },
  },
];

for (const { title, one, other } of OTHER) {
  Deno.test(`conversationOf() tells conversations with other ${title} apart`, () => {
    assert.notEqual(idOf(one), idOf(other));
  });
}

Deno.test("conversationOf() takes the id that comes first: a key, a header, the user", () => {
  const headers = {
    "x-claude-code-session-id": "a",
    "session-id": "b",
    "x-session-id": "c",
  };
  const order: {
    body: object;
    requestHeaders: typeof headers | object;
    id: string;
  }[] = [
    {
      body: { prompt_cache_key: "k", user: "u" },
      requestHeaders: headers,
      id: "k",
    },
    { body: { user: "u" }, requestHeaders: headers, id: "a" },
    {
      body: { user: "u" },
      requestHeaders: { "session-id": "b", "x-session-id": "c" },
      id: "b",
    },
    { body: { user: "u" }, requestHeaders: { "x-session-id": "c" }, id: "c" },
    { body: { prompt_cache_key: "", user: "u" }, requestHeaders: {}, id: "u" },
  ];
  for (const { body, requestHeaders, id } of order) {
    const expected = idOf({ prompt_cache_key: id });
    assert.equal(
      idOf({ ...body, messages: turns("Hi") }, { ...requestHeaders }),
      expected,
    );
  }
});

Deno.test("conversationOf() gives accounts different ids for the same session", () => {
  const body = { prompt_cache_key: "k" };
  assert.notEqual(idOf(body), idOf(body, {}, "own_b"));
  const start = { messages: turns("Hi") };
  assert.notEqual(idOf(start), idOf(start, {}, "own_b"));
});
