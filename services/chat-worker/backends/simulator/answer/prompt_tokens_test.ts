import assert from "node:assert/strict";
import type { ModelConfig } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import {
  countTokens,
  fakeTime,
  language,
  type RequestFields,
  requestOf,
} from "../test_support.ts";
import { TurnKeeper } from "../turns.ts";
import { countPromptTokens } from "./prompt_tokens.ts";
import { tokenRoom } from "./token_room.ts";

const { signal } = new AbortController();

function count(fields: RequestFields): Promise<number> {
  return countPromptTokens(requestOf(fields), {
    tokenizer: language().tokenizer,
    turns: new TurnKeeper(fakeTime()),
    signal,
  });
}

const HELLO = countTokens("hello");
const TOOL = {
  type: "function" as const,
  function: { name: "f", parameters: { type: "object" } },
};
const SCHEMA = { name: "s", schema: { type: "object" } };
const image = (detail?: "low" | "high") => ({
  type: "image_url" as const,
  image_url: { url: "data:image/png;base64,AAAA", ...(detail && { detail }) },
});

const CASES: { name: string; fields: RequestFields; tokens: number }[] = [
  { name: "one message", fields: { messages: "hello" }, tokens: 6 + HELLO },
  { name: "an empty message", fields: { messages: "" }, tokens: 6 },
  {
    name: "several messages",
    fields: {
      messages: [
        { role: "system", content: "hello" },
        { role: "user", content: "hello", name: "hello" },
      ],
    },
    tokens: 9 + 3 * HELLO,
  },
  {
    name: "calls in the history",
    fields: {
      messages: [{
        role: "assistant",
        content: null,
        tool_calls: [{
          id: "not counted",
          type: "function",
          function: { name: "f", arguments: "{}" },
        }],
      }],
    },
    tokens: 6 + countTokens("f") + countTokens("{}"),
  },
  {
    name: "tools",
    fields: { messages: "hello", tools: [TOOL] },
    tokens: 6 + HELLO + countTokens(JSON.stringify([TOOL])),
  },
  {
    name: "a response schema",
    fields: {
      messages: "hello",
      response_format: { type: "json_schema", json_schema: SCHEMA },
    },
    tokens: 6 + HELLO + countTokens(JSON.stringify(SCHEMA)),
  },
  {
    name: "pictures, whatever their bytes",
    fields: {
      messages: [{
        role: "user",
        content: [
          { type: "text", text: "hello" },
          image(),
          image("low"),
          image("high"),
        ],
      }],
    },
    tokens: 6 + HELLO + 765 + 85 + 765,
  },
];

for (const { name, fields, tokens } of CASES) {
  Deno.test(`countPromptTokens() counts ${name}`, async () => {
    assert.equal(await count(fields), tokens);
  });
}

Deno.test("countPromptTokens() lets others work while it counts a long prompt, and stops when aborted", async () => {
  let nowMs = 0;
  let turns = 0;
  const controller = new AbortController();
  const keeper = new TurnKeeper({
    // Every look at the clock finds 1 ms gone.
    now: () => nowMs++,
    sleep: () => {
      turns += 1;
      if (turns === 5) controller.abort(new Error("left"));
      return Promise.resolve();
    },
  });
  await assert.rejects(
    countPromptTokens(requestOf({ messages: "word ".repeat(200_000) }), {
      tokenizer: language().tokenizer,
      turns: keeper,
      signal: controller.signal,
    }),
    /left/,
  );
  assert.equal(turns, 5);
});

const MODEL: ModelConfig = {
  id: "m",
  kind: "chat",
  ownedBy: "o",
  created: 1,
  vision: false,
  passFields: [],
  backends: [],
};

const ROOMS: {
  name: string;
  bounds: Partial<ModelConfig>;
  prompt: number;
  wanted?: number;
  room: number | "refused";
}[] = [
  { name: "no bounds", bounds: {}, prompt: 10, room: Infinity },
  { name: "only the request's", bounds: {}, prompt: 10, wanted: 5, room: 5 },
  { name: "the model's", bounds: { outputTokensMax: 7 }, prompt: 10, room: 7 },
  {
    name: "the smaller of both",
    bounds: { outputTokensMax: 7 },
    prompt: 10,
    wanted: 9,
    room: 7,
  },
  {
    name: "what the context leaves",
    bounds: { contextTokensMax: 30 },
    prompt: 10,
    room: 20,
  },
  {
    name: "all that the context leaves",
    bounds: { contextTokensMax: 30 },
    prompt: 10,
    wanted: 20,
    room: 20,
  },
  {
    name: "one more than the context leaves",
    bounds: { contextTokensMax: 30 },
    prompt: 10,
    wanted: 21,
    room: "refused",
  },
  {
    name: "a context with room for one",
    bounds: { contextTokensMax: 30 },
    prompt: 29,
    room: 1,
  },
  {
    name: "a full context",
    bounds: { contextTokensMax: 30 },
    prompt: 30,
    room: "refused",
  },
];

for (const { name, bounds, prompt, wanted, room } of ROOMS) {
  Deno.test(`tokenRoom() is ${room} with ${name}`, () => {
    const find = () => tokenRoom({ ...MODEL, ...bounds }, prompt, wanted);
    if (room !== "refused") return assert.equal(find(), room);
    assert.throws(find, (error) => {
      assert.ok(error instanceof ApiError);
      assert.equal(error.code, "context_length_exceeded");
      assert.equal(error.param, "messages");
      assert.match(
        error.message,
        /^This model's maximum context length is 30 tokens\. However, your messages resulted in \d+ tokens/,
      );
      return true;
    });
  });
}
