/** By what requests of one conversation are known. */
import assert from "node:assert/strict";
import { conversationOf, type ConversationRequest } from "./affinity.ts";

const idOf = (
  body: unknown,
  headers: ConversationRequest["headers"] = {},
  account = "own_a",
) => conversationOf({ body, headers, account });

const said = (...texts: string[]) =>
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
const SAME: [title: string, one: unknown, other: unknown][] = [
  [
    "that grows",
    { messages: said("Hi") },
    { messages: said("Hi", "Hello.", "And then?") },
  ],
  [
    "with instructions and tools",
    { system: "Be brief", tools: TOOLS, messages: said("Hi") },
    { system: "Be brief", tools: TOOLS, messages: said("Hi", "Hello.", "?") },
  ],
  [
    "whose cached part moves",
    {
      messages: [{
        role: "user",
        content: [{
          type: "text",
          text: "Hi",
          cache_control: { type: "ephemeral" },
        }],
      }],
    },
    { messages: [{ role: "user", content: [{ type: "text", text: "Hi" }] }] },
  ],
  [
    "of responses",
    { instructions: "Be brief", input: said("Hi") },
    { instructions: "Be brief", input: said("Hi", "Hello.", "?") },
  ],
  [
    "that a key names",
    { prompt_cache_key: "k", messages: said("Hi") },
    { prompt_cache_key: "k", user: "u", messages: said("Other") },
  ],
  [
    "of one user",
    { user: "u", messages: said("Hi") },
    { user: "u", messages: said("Other") },
  ],
];

for (const [title, one, other] of SAME) {
  Deno.test(`conversationOf() is the same for a conversation ${title}`, () => {
    assert.equal(idOf(one), idOf(other));
  });
}

/** Requests of different conversations. */
const OTHER: [title: string, one: unknown, other: unknown][] = [
  ["first messages", { messages: said("Hi") }, { messages: said("Ho") }],
  [
    "instructions",
    { messages: [{ role: "system", content: "a" }, ...said("Hi")] },
    { messages: [{ role: "system", content: "b" }, ...said("Hi")] },
  ],
  ["system", { system: "a", messages: said("Hi") }, { messages: said("Hi") }],
  [
    "tools",
    { tools: TOOLS, messages: said("Hi") },
    { tools: [{ name: "write" }], messages: said("Hi") },
  ],
  ["inputs", { input: "a" }, { input: "b" }],
  ["prompts", { prompt: "a" }, { prompt: ["b"] }],
  ["keys", { prompt_cache_key: "a" }, { prompt_cache_key: "b" }],
  // No two lists of parts are the same text.
  [
    "places of a text",
    { system: "ab", messages: said("c") },
    { system: "a", messages: said("bc") },
  ],
  ["long beginnings", { input: `a${LONG}` }, { input: `b${LONG}` }],
];

for (const [title, one, other] of OTHER) {
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
  const order: [body: object, headers: typeof headers | object, id: string][] =
    [
      [{ prompt_cache_key: "k", user: "u" }, headers, "k"],
      [{ user: "u" }, headers, "a"],
      [{ user: "u" }, { "session-id": "b", "x-session-id": "c" }, "b"],
      [{ user: "u" }, { "x-session-id": "c" }, "c"],
      [{ prompt_cache_key: "", user: "u" }, {}, "u"],
    ];
  for (const [body, given, id] of order) {
    const expected = idOf({ prompt_cache_key: id });
    assert.equal(
      idOf({ ...body, messages: said("Hi") }, { ...given }),
      expected,
    );
  }
});

Deno.test("conversationOf() gives accounts different ids for the same session", () => {
  const body = { prompt_cache_key: "k" };
  assert.notEqual(idOf(body), idOf(body, {}, "own_b"));
  const begun = { messages: said("Hi") };
  assert.notEqual(idOf(begun), idOf(begun, {}, "own_b"));
});
