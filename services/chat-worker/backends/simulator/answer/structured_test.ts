import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { randomFrom } from "../sampling/random.ts";
import { createHints, readFacts } from "./hints.ts";
import { writeArguments, writeStructured } from "./structured.ts";

const PROSE = "The river is slow.";

function sourceOf(message: string) {
  return {
    random: randomFrom("7"),
    hints: createHints(readFacts(message)),
    writeProse: () => PROSE,
  };
}

const OBJECTS: { name: string; messages: string; keys: string[] }[] = [
  { name: "nothing said", messages: "hello", keys: ["answer"] },
  {
    name: "a list of keys",
    messages: "Answer in JSON with the keys name, age and home_city.",
    keys: ["name", "age", "home_city"],
  },
  {
    name: "quoted fields",
    messages: 'Use the fields: "title", "year"',
    keys: ["title", "year"],
  },
  {
    name: "a schema in the messages",
    messages:
      'JSON schema:\n{"type":"object","properties":{"x":{"type":"integer"},"note":{"const":"}"}},"required":["x","note"]}\nYou must answer with JSON.',
    keys: ["x", "note"],
  },
  {
    name: "braces that are no schema",
    messages: "the json schema {is missing}",
    keys: ["answer"],
  },
  {
    name: "a schema of something else than an object",
    messages: 'JSON schema: {"type":"array"}',
    keys: [],
  },
];

for (const { name, messages, keys } of OBJECTS) {
  Deno.test(`json_object is an object: ${name}`, () => {
    const format = { type: "json_object" } as const;
    const text = writeStructured(format, messages, sourceOf(messages));
    assert.deepEqual(Object.keys(JSON.parse(text)), keys);
  });
}

Deno.test("json_schema without a schema is an object", () => {
  const text = writeStructured(
    { type: "json_schema", json_schema: { name: "any" } },
    "hello",
    sourceOf("hello"),
  );
  assert.deepEqual(JSON.parse(text), {});
});

Deno.test("a schema that nothing fits is the caller's error", () => {
  const json_schema = { name: "none", schema: { type: "string", enum: [1] } };
  assert.throws(
    () =>
      writeStructured(
        { type: "json_schema", json_schema },
        "hello",
        sourceOf("hello"),
      ),
    (error) => {
      assert.ok(error instanceof ApiError);
      assert.equal(error.code, "invalid_value");
      assert.equal(error.param, "response_format.json_schema.schema");
      assert.match(error.message, /'none'/);
      return true;
    },
  );
});

Deno.test("arguments of parameters that nothing fits are an empty object", () => {
  for (const parameters of [undefined, { type: "integer", enum: ["a"] }]) {
    const call = {
      toolAt: 0,
      tool: {
        type: "function" as const,
        function: { name: "f", ...(parameters ? { parameters } : {}) },
      },
    };
    assert.equal(writeArguments(call, sourceOf("hello")), "{}");
  }
});
