import assert from "node:assert/strict";
import { randomFrom } from "../sampling/random.ts";
import { WorkBudget } from "./budget.ts";
import { conforms } from "./conforms.ts";
import type { ValueHints } from "./context.ts";
import { generateValue } from "./generate.ts";
import type { Json } from "./json.ts";

const NO_HINTS: ValueHints = {
  texts: () => [],
  numbers: () => [],
  mentions: () => false,
  take: () => {},
};
const SEEDS = 25;

function generate(
  schema: unknown,
  seed: string,
  options: { hints?: ValueHints; optional?: "all" | "hinted" } = {},
): Json | undefined {
  return generateValue(schema, { name: "", depth: 0 }, {
    root: schema,
    random: randomFrom(seed),
    hints: options.hints ?? NO_HINTS,
    writeProse: () => "The river is slow and wide.",
    optionalProperties: options.optional ?? "all",
    budget: new WorkBudget(250_000),
  });
}

const NODE = {
  type: "object",
  properties: {
    value: { type: "string" },
    children: { type: "array", items: { $ref: "#/$defs/node" } },
    next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] },
  },
  required: ["value", "children", "next"],
  additionalProperties: false,
};

const SCHEMAS: { name: string; schema: unknown }[] = [
  { name: "a text", schema: { type: "string" } },
  {
    name: "a text of exact length",
    schema: { type: "string", minLength: 33, maxLength: 33 },
  },
  { name: "an empty text", schema: { type: "string", maxLength: 0 } },
  { name: "a long text", schema: { type: "string", minLength: 5000 } },
  {
    name: "a text with a pattern",
    schema: { type: "string", pattern: "^[A-Z]{3}-\\d{2,}$" },
  },
  {
    name: "a text with a pattern and a length",
    schema: {
      type: "string",
      pattern: "^[a-z]+$",
      minLength: 40,
      maxLength: 45,
    },
  },
  {
    name: "a text with an open pattern and a length",
    schema: { type: "string", pattern: "^x", minLength: 10 },
  },
  ...["date", "date-time", "time", "email", "uri", "uuid", "ipv4", "hostname"]
    .map((format) => ({
      name: `a text as ${format}`,
      schema: { type: "string", format },
    })),
  { name: "an integer", schema: { type: "integer" } },
  {
    name: "an integer in a range",
    schema: { type: "integer", minimum: 18, maximum: 19 },
  },
  { name: "one integer", schema: { type: "integer", minimum: 7, maximum: 7 } },
  {
    name: "an integer between excluded ends",
    schema: { type: "integer", exclusiveMinimum: 4, exclusiveMaximum: 6 },
  },
  {
    name: "an integer between broken ends",
    schema: { type: "integer", minimum: 1.5, maximum: 2.5 },
  },
  {
    name: "a multiple",
    schema: { type: "integer", multipleOf: 25, minimum: 30, maximum: 60 },
  },
  { name: "a negative integer", schema: { type: "integer", maximum: -5 } },
  { name: "a number", schema: { type: "number" } },
  {
    name: "a number in a small range",
    schema: { type: "number", minimum: 0.001, maximum: 0.002 },
  },
  {
    name: "a number between excluded ends",
    schema: { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 0.001 },
  },
  {
    name: "a multiple of a tenth",
    schema: { type: "number", multipleOf: 0.1 },
  },
  { name: "a boolean", schema: { type: "boolean" } },
  { name: "null", schema: { type: "null" } },
  { name: "a text or null", schema: { type: ["null", "string"] } },
  { name: "one of some", schema: { enum: ["red", "green", 3, null] } },
  {
    name: "one of some of a type",
    schema: { type: "integer", enum: ["red", 3] },
  },
  { name: "a constant", schema: { const: { deep: [1, "a"] } } },
  { name: "an array", schema: { type: "array", items: { type: "integer" } } },
  {
    name: "an array of exact length",
    schema: {
      type: "array",
      items: { type: "boolean" },
      minItems: 4,
      maxItems: 4,
    },
  },
  { name: "an empty array", schema: { type: "array", maxItems: 0 } },
  {
    name: "an array without equals",
    schema: {
      type: "array",
      items: { enum: [1, 2, 3, 4] },
      minItems: 4,
      uniqueItems: true,
    },
  },
  {
    name: "an array with places",
    schema: {
      type: "array",
      prefixItems: [{ type: "string" }, { type: "integer" }],
      items: false,
      minItems: 2,
    },
  },
  {
    name: "an array that contains",
    schema: {
      type: "array",
      items: { type: "integer" },
      contains: { const: 9 },
    },
  },
  {
    name: "an array of arrays",
    schema: {
      type: "array",
      items: { type: "array", items: { type: "null" }, minItems: 1 },
    },
  },
  {
    name: "an object",
    schema: {
      type: "object",
      properties: {
        a: { type: "string" },
        b: { type: "integer" },
        c: { type: "boolean" },
      },
      required: ["a"],
      additionalProperties: false,
    },
  },
  {
    name: "an object with required names only",
    schema: { type: "object", required: ["x", "y"] },
  },
  {
    name: "an object that is a map",
    schema: { type: "object", additionalProperties: { type: "integer" } },
  },
  {
    name: "an object with many properties",
    schema: {
      type: "object",
      properties: { a: {} },
      minProperties: 5,
      maxProperties: 6,
    },
  },
  {
    name: "an object with named patterns",
    schema: {
      type: "object",
      patternProperties: { "^x-[a-z]+$": { type: "integer" } },
      additionalProperties: false,
      minProperties: 2,
    },
  },
  {
    name: "an object with rules for names",
    schema: {
      type: "object",
      propertyNames: { pattern: "^[a-z]{3}" },
      minProperties: 3,
    },
  },
  {
    name: "an object without type",
    schema: { properties: { a: { type: "null" } }, required: ["a"] },
  },
  {
    name: "all of some",
    schema: {
      allOf: [
        {
          type: "object",
          properties: { a: { type: "number", minimum: 3 } },
          required: ["a"],
        },
        {
          properties: { a: { type: "integer", maximum: 4 }, b: { const: 1 } },
          required: ["b"],
        },
      ],
    },
  },
  {
    name: "any of some",
    schema: { anyOf: [{ type: "string" }, { type: "integer" }] },
  },
  {
    name: "any of some beside others",
    schema: {
      type: "object",
      properties: { kind: { type: "string" }, x: { type: "integer" } },
      required: ["kind"],
      anyOf: [{ properties: { kind: { const: "a" } } }, { required: ["x"] }],
    },
  },
  {
    name: "just one of some",
    schema: {
      oneOf: [{ type: "number", multipleOf: 3 }, {
        type: "number",
        multipleOf: 5,
      }],
    },
  },
  {
    name: "variants told apart by a constant",
    schema: {
      oneOf: ["circle", "square"].map((kind) => ({
        type: "object",
        properties: {
          kind: { const: kind },
          size: { type: "number", exclusiveMinimum: 0 },
        },
        required: ["kind", "size"],
        additionalProperties: false,
      })),
    },
  },
  { name: "not a text", schema: { not: { type: "string" } } },
  {
    name: "if, then and else",
    schema: {
      type: "object",
      properties: {
        k: { enum: ["x", "w"] },
        y: { type: "integer" },
        z: { type: "integer" },
      },
      required: ["k"],
      if: { properties: { k: { const: "x" } } },
      then: { required: ["y"] },
      else: { required: ["z"] },
    },
  },
  {
    name: "a reference",
    schema: {
      $ref: "#/definitions/id",
      definitions: { id: { type: "string", pattern: "^id_\\d+$" } },
    },
  },
  { name: "a tree", schema: { $ref: "#/$defs/node", $defs: { node: NODE } } },
  {
    name: "a tree from its root",
    schema: {
      type: "object",
      properties: { sub: { $ref: "#" }, n: { type: "integer" } },
      required: ["n"],
    },
  },
  {
    name: "escaped references",
    schema: {
      $ref: "#/$defs/a~1b%20c",
      $defs: { "a/b c": { type: "boolean" } },
    },
  },
  { name: "anything", schema: true },
  {
    name: "names like those of prototypes",
    schema: JSON.parse(
      '{"type":"object","properties":{"__proto__":{"type":"integer"},"constructor":{"type":"string"}},"required":["__proto__","constructor"]}',
    ),
  },
];

for (const { name, schema } of SCHEMAS) {
  Deno.test(`generateValue() makes ${name} that is valid, and survives JSON`, () => {
    for (let seed = 0; seed < SEEDS; seed++) {
      const optional = seed % 2 === 0 ? "all" : "hinted";
      const value = generate(schema, `${seed}`, { optional });
      assert.ok(value !== undefined);
      const decoded: Json = JSON.parse(JSON.stringify(value));
      const isValid = conforms(decoded, schema, schema, new WorkBudget(1e6));
      assert.ok(isValid, JSON.stringify(value));
      assert.deepEqual(generate(schema, `${seed}`, { optional }), value);
    }
  });
}

const IMPOSSIBLE: { name: string; schema: unknown }[] = [
  { name: "nothing is allowed", schema: false },
  {
    name: "the range is empty",
    schema: { type: "integer", minimum: 5, maximum: 4 },
  },
  {
    name: "no integer is in the range",
    schema: { type: "integer", minimum: 1.2, maximum: 1.8 },
  },
  {
    name: "types exclude each other",
    schema: { allOf: [{ type: "string" }, { type: "integer" }] },
  },
  { name: "the enum is empty", schema: { enum: [] } },
  { name: "a reference leads to itself", schema: { $ref: "#" } },
  { name: "a reference leads nowhere", schema: { $ref: "#/$defs/none" } },
  {
    name: "a reference leads out",
    schema: { $ref: "https://example.com/schema.json" },
  },
  {
    name: "a value never ends",
    schema: {
      type: "object",
      properties: { a: { $ref: "#" } },
      required: ["a"],
    },
  },
  {
    name: "there are too many items",
    schema: { type: "array", minItems: 1e9 },
  },
  { name: "a text is too long", schema: { type: "string", minLength: 1e9 } },
  {
    name: "items must differ and cannot",
    schema: {
      type: "array",
      items: { type: "boolean" },
      minItems: 3,
      uniqueItems: true,
    },
  },
  {
    name: "work doubles at every level",
    schema: {
      $ref: "#/$defs/a0",
      $defs: Object.fromEntries(Array.from({ length: 60 }, (_, at) => {
        const next = { $ref: `#/$defs/a${at + 1}` };
        return [`a${at}`, { allOf: [next, next] }];
      })),
    },
  },
];

for (const { name, schema } of IMPOSSIBLE) {
  Deno.test(`generateValue() gives up within a second when ${name}`, () => {
    const startMs = performance.now();
    assert.equal(generate(schema, "1"), undefined);
    assert.ok(performance.now() - startMs < 1000);
  });
}

Deno.test("generateValue() prefers saying something to null", () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    assert.equal(
      typeof generate({ type: ["null", "string"] }, `${seed}`),
      "string",
    );
    const schema = { anyOf: [{ type: "null" }, { type: "integer" }] };
    assert.equal(typeof generate(schema, `${seed}`), "number");
  }
});

Deno.test("generateValue() takes values of the request where they are valid, each once", () => {
  const taken: unknown[] = [];
  const hints: ValueHints = {
    texts: () => ["Paris", "Rome"].filter((one) => !taken.includes(one)),
    numbers: () => [7, 40].filter((one) => !taken.includes(one)),
    mentions: (text) => text === "celsius",
    take: (value) => void taken.push(value),
  };
  const schema = {
    type: "object",
    properties: {
      from: { type: "string" },
      to: { type: "string" },
      days: { type: "integer", minimum: 10 },
      unit: { enum: ["kelvin", "celsius"] },
    },
    required: ["from", "to", "days", "unit"],
  };
  assert.deepEqual(generate(schema, "1", { hints }), {
    from: "Paris",
    to: "Rome",
    days: 40,
    unit: "celsius",
  });
});

Deno.test("generateValue() leaves out optional properties the request says nothing about", () => {
  const schema = {
    type: "object",
    properties: {
      city: { type: "string" },
      unit: { enum: ["c", "f"] },
      days: { type: "integer" },
    },
    required: ["city"],
  };
  const plain = generate(schema, "1", { optional: "hinted" });
  assert.deepEqual(Object.keys(plain ?? {}), ["city"]);
  const hints = { ...NO_HINTS, mentions: (text: string) => text === "f" };
  const hinted = generate(schema, "1", { optional: "hinted", hints });
  assert.deepEqual(hinted, { city: "Lisbon", unit: "f" });
  const all = generate(schema, "1", { optional: "all" });
  assert.deepEqual(Object.keys(all ?? {}), ["city", "unit", "days"]);
});

Deno.test("generateValue() ends recursive schemas after a few levels", () => {
  for (let seed = 0; seed < SEEDS; seed++) {
    const schema = { $ref: "#/$defs/node", $defs: { node: NODE } };
    const text = JSON.stringify(generate(schema, `${seed}`));
    assert.ok(text.length < 100_000);
  }
});
