/** The forms of "Try it" as requests, and mistakes in them. */
import assert from "node:assert/strict";
import type { TryRequest } from "./chat_forms.ts";
import type { TryKind, TryValues } from "./kinds.ts";
import { tryRequest } from "./request.ts";

const MESSAGES = [{ role: "user", content: "Hello" }];
const SCHEMA = { type: "object", additionalProperties: false };
const TOOLS = '[{"type":"function","function":{"name":"look_up"}}]';
const KITE = { prompt: "A kite" };
const SPEECH = { input: "Hi", voice: "echo", response_format: "wav" };

/** Forms, and the requests that they describe. */
const GOOD: readonly { kind: TryKind; form: TryValues; request: TryRequest }[] =
  [
    {
      kind: "chat",
      form: { system: "Be kind" },
      request: {
        messages: [{ role: "system", content: "Be kind" }, ...MESSAGES],
      },
    },
    {
      kind: "chat",
      form: { history: JSON.stringify(MESSAGES), message: " " },
      request: { messages: MESSAGES },
    },
    {
      kind: "chat",
      form: { temperature: "0.5", top_p: "1", max_tokens: "7", seed: "-3" },
      request: {
        messages: MESSAGES,
        temperature: 0.5,
        top_p: 1,
        max_tokens: 7,
        seed: -3,
      },
    },
    {
      kind: "chat",
      form: { thinking: "off", more: '{"stop":["x"],"top_k":3}' },
      request: {
        messages: MESSAGES,
        enable_thinking: false,
        stop: ["x"],
        top_k: 3,
      },
    },
    {
      kind: "chat",
      form: { schema: JSON.stringify(SCHEMA) },
      request: {
        messages: MESSAGES,
        response_format: {
          type: "json_schema",
          json_schema: { name: "answer", schema: SCHEMA, strict: true },
        },
      },
    },
    {
      kind: "chat",
      form: {
        endpoint: "responses",
        system: "Be kind",
        max_tokens: "7",
        thinking: "on",
        tools: TOOLS,
        schema: JSON.stringify(SCHEMA),
      },
      request: {
        input: [{ role: "system", content: "Be kind" }, ...MESSAGES],
        max_output_tokens: 7,
        reasoning: { effort: "medium" },
        tools: [{ type: "function", name: "look_up" }],
        text: {
          format: {
            type: "json_schema",
            name: "answer",
            schema: SCHEMA,
            strict: true,
          },
        },
      },
    },
    {
      kind: "chat",
      form: {
        endpoint: "messages",
        system: "Be kind",
        thinking: "on",
        tools: TOOLS,
        schema: JSON.stringify(SCHEMA),
        more: '{"stop_sequences":["x"]}',
      },
      request: {
        max_tokens: 4_096,
        system: "Be kind",
        messages: MESSAGES,
        thinking: { type: "enabled", budget_tokens: 1_024 },
        tools: [{ name: "look_up", input_schema: { type: "object" } }],
        output_config: { format: { type: "json_schema", schema: SCHEMA } },
        stop_sequences: ["x"],
      },
    },
    { kind: "embedding", form: { input: "a" }, request: { input: "a" } },
    {
      kind: "embedding",
      form: { input: "a", other: "b", dimensions: "8" },
      request: { input: ["a", "b"], dimensions: 8 },
    },
    { kind: "image", form: KITE, request: KITE },
    {
      kind: "image",
      form: { ...KITE, size: "64x64", n: "2" },
      request: { ...KITE, size: "64x64", n: 2 },
    },
    {
      kind: "speech",
      form: { ...SPEECH, speed: "1.5" },
      request: { ...SPEECH, speed: 1.5 },
    },
    {
      kind: "transcription",
      form: { file: "a.wav", language: "en" },
      request: { file: "a.wav", language: "en" },
    },
    {
      kind: "video",
      form: { ...KITE, seconds: "8" },
      request: { ...KITE, seconds: "8" },
    },
  ];

/** A mistake in a form, and the message at its field. */
interface Mistake {
  kind: TryKind;
  form: TryValues;
  field: string;
  says: RegExp;
}

const MISTAKES: readonly Mistake[] = [
  {
    kind: "chat",
    form: { message: " " },
    field: "message",
    says: /Write a message/,
  },
  {
    kind: "chat",
    form: { tools: "[}" },
    field: "tools",
    says: /not valid JSON. Unexpected .*"\[}"$/,
  },
  {
    kind: "chat",
    form: { tools: "{}" },
    field: "tools",
    says: /must be a JSON array/,
  },
  {
    kind: "chat",
    form: { history: "1" },
    field: "history",
    says: /must be a JSON array/,
  },
  {
    kind: "chat",
    form: { schema: "[]" },
    field: "schema",
    says: /must be a JSON object/,
  },
  {
    kind: "chat",
    form: { history: "[".repeat(65) },
    field: "history",
    says: /too complex/,
  },
  {
    kind: "chat",
    form: { more: '{"stream":false}' },
    field: "more",
    says: /sets 'stream' itself/,
  },
  {
    kind: "chat",
    form: { more: '{"n":2}' },
    field: "more",
    says: /sets 'n' itself/,
  },
  {
    kind: "chat",
    form: { temperature: "warm" },
    field: "temperature",
    says: /not a number/,
  },
  {
    kind: "image",
    form: { prompt: " " },
    field: "prompt",
    says: /Say what to draw/,
  },
  {
    kind: "speech",
    form: { voice: "echo" },
    field: "input",
    says: /Write what to say/,
  },
  {
    kind: "speech",
    form: { input: "Hi" },
    field: "voice",
    says: /Name a voice/,
  },
  {
    kind: "transcription",
    form: {},
    field: "file",
    says: /Choose a recording/,
  },
  { kind: "video", form: {}, field: "prompt", says: /Say what to show/ },
];

/** Reads the form, whose chat says "Hello" by default. */
function read(kind: TryKind, form: TryValues) {
  const message = kind === "chat" && { message: "Hello" };
  return tryRequest(kind, { model: "a", ...message, ...form });
}

Deno.test("tryRequest() makes of a form the request that it describes", () => {
  for (const { kind, form, request } of GOOD) {
    const result = read(kind, form);
    assert.deepEqual(result.request, { model: "a", ...request });
    assert.equal(result.errors.size, 0);
  }
});

Deno.test("tryRequest() says at each field what is wrong with it", () => {
  for (const { kind, form, field, says } of MISTAKES) {
    const { errors } = read(kind, form);
    assert.deepEqual([...errors.keys()], [field]);
    assert.match(errors.get(field) ?? "", says);
  }
});
