import assert from "node:assert/strict";
import { WorkBudget } from "./budget.ts";
import { conforms } from "./conforms.ts";
import type { Json } from "./json.ts";

/** Verdicts written by hand from the standard, so that what relies on `conforms` relies on them. */
interface Case {
  schema: unknown;
  valid: Json[];
  invalid: Json[];
}

const TREE = {
  $ref: "#/$defs/node",
  $defs: {
    node: {
      type: "object",
      properties: {
        value: { type: "integer" },
        children: { type: "array", items: { $ref: "#/$defs/node" } },
      },
      required: ["value"],
      additionalProperties: false,
    },
  },
};

const CASES: Case[] = [
  { schema: true, valid: [null, 1, {}], invalid: [] },
  { schema: {}, valid: [null, 1, {}], invalid: [] },
  { schema: false, valid: [], invalid: [null, 1, {}] },
  { schema: { type: "string" }, valid: ["", "a"], invalid: [1, null, ["a"]] },
  { schema: { type: "integer" }, valid: [0, -3, 1.0], invalid: [1.5, "1"] },
  { schema: { type: "number" }, valid: [0, 1.5], invalid: ["1", true] },
  { schema: { type: "boolean" }, valid: [true, false], invalid: [0, "true"] },
  { schema: { type: "null" }, valid: [null], invalid: [0, false, ""] },
  { schema: { type: "array" }, valid: [[], [1]], invalid: [{}, "[]"] },
  { schema: { type: "object" }, valid: [{}, { a: 1 }], invalid: [[], null] },
  {
    schema: { type: ["string", "null"] },
    valid: ["a", null],
    invalid: [1, []],
  },
  { schema: { const: { a: [1] } }, valid: [{ a: [1] }], invalid: [{ a: [2] }] },
  {
    schema: { enum: ["a", 1, null] },
    valid: ["a", 1, null],
    invalid: ["b", 2],
  },
  {
    schema: { minimum: 1, maximum: 3 },
    valid: [1, 3, "x"],
    invalid: [0.9, 3.1],
  },
  {
    schema: { exclusiveMinimum: 1, exclusiveMaximum: 3 },
    valid: [1.1, 2.9],
    invalid: [1, 3],
  },
  { schema: { multipleOf: 0.1 }, valid: [0.3, 1, -0.7], invalid: [0.35] },
  { schema: { multipleOf: 7 }, valid: [0, 49], invalid: [50] },
  {
    schema: { minLength: 2, maxLength: 3 },
    valid: ["ab", "abc", "🙂🙂", 1],
    invalid: ["a", "abcd", "🙂"],
  },
  { schema: { pattern: "b+" }, valid: ["abc", 5], invalid: ["ac"] },
  { schema: { pattern: "^a(?=b)" }, valid: ["x"], invalid: [] },
  {
    schema: { format: "email" },
    valid: ["a@b.co", 1],
    invalid: ["a@", "a b@c.d"],
  },
  { schema: { format: "made-up" }, valid: ["x"], invalid: [] },
  {
    schema: { items: { type: "integer" }, minItems: 1, maxItems: 2 },
    valid: [[1], [1, 2]],
    invalid: [[], [1, 2, 3], ["a"]],
  },
  {
    schema: { uniqueItems: true },
    valid: [[1, "1", [1]], []],
    invalid: [[1, 1], [{ a: 1, b: 2 }, { b: 2, a: 1 }]],
  },
  {
    schema: { prefixItems: [{ type: "string" }], items: { type: "integer" } },
    valid: [[], ["a"], ["a", 1]],
    invalid: [[1], ["a", "b"]],
  },
  {
    schema: { items: [{ type: "string" }, { type: "integer" }] },
    valid: [["a", 1], ["a"], ["a", 1, null]],
    invalid: [[1], ["a", "b"]],
  },
  { schema: { items: false }, valid: [[]], invalid: [[1]] },
  { schema: { contains: { const: 1 } }, valid: [[0, 1]], invalid: [[], [0]] },
  {
    schema: { properties: { a: { type: "integer" } }, required: ["a", "b"] },
    valid: [{ a: 1, b: 2 }, "no object"],
    invalid: [{ a: 1 }, { a: "1", b: 2 }, {}],
  },
  {
    schema: { properties: { a: true }, additionalProperties: false },
    valid: [{}, { a: 1 }],
    invalid: [{ a: 1, b: 2 }],
  },
  {
    schema: {
      patternProperties: { "^x-": { type: "string" } },
      additionalProperties: { type: "integer" },
    },
    valid: [{ "x-a": "1", b: 2 }],
    invalid: [{ "x-a": 1 }, { b: "2" }],
  },
  {
    schema: {
      minProperties: 1,
      maxProperties: 2,
      propertyNames: { maxLength: 1 },
    },
    valid: [{ a: 1 }, { a: 1, b: 2 }],
    invalid: [{}, { a: 1, b: 2, c: 3 }, { ab: 1 }],
  },
  {
    schema: { allOf: [{ minimum: 1 }, { maximum: 3 }] },
    valid: [2],
    invalid: [0, 4],
  },
  {
    schema: { anyOf: [{ type: "string" }, { minimum: 5 }] },
    valid: ["a", 5],
    invalid: [4],
  },
  {
    schema: { oneOf: [{ type: "integer" }, { minimum: 5 }] },
    valid: [4, 5.5],
    invalid: [5, 4.5],
  },
  { schema: { not: { type: "string" } }, valid: [1], invalid: ["a"] },
  {
    schema: {
      if: { properties: { kind: { const: "a" } } },
      then: { required: ["x"] },
      else: { required: ["y"] },
    },
    valid: [{ kind: "a", x: 1 }, { kind: "b", y: 1 }],
    invalid: [{ kind: "a", y: 1 }, { kind: "b" }],
  },
  {
    schema: TREE,
    valid: [{ value: 1 }, { value: 1, children: [{ value: 2, children: [] }] }],
    invalid: [{}, { value: 1, children: [{ value: "2" }] }, { value: 1, x: 1 }],
  },
  { schema: { $ref: "#/$defs/none" }, valid: [1], invalid: [] },
  { schema: { $ref: "#" }, valid: [], invalid: [1] },
  {
    schema: JSON.parse('{"required":["__proto__","toString"]}'),
    valid: [JSON.parse('{"__proto__":1,"toString":2}')],
    invalid: [{}],
  },
  {
    schema: { type: 7, minimum: "x", enum: 3, properties: [], pattern: 1 },
    valid: [],
    invalid: [1],
  },
  {
    schema: { minimum: "x", enum: 3, properties: [], pattern: 1 },
    valid: [1, "a", {}],
    invalid: [],
  },
];

for (const { schema, valid, invalid } of CASES) {
  Deno.test(`conforms() judges ${JSON.stringify(schema).slice(0, 90)}`, () => {
    const isValid = (value: Json) =>
      conforms(value, schema, schema, new WorkBudget(100_000));
    for (const value of valid) assert.ok(isValid(value), JSON.stringify(value));
    for (const value of invalid) {
      assert.equal(isValid(value), false, JSON.stringify(value));
    }
  });
}

Deno.test("conforms() says no when the work is too much", () => {
  const doubling = Object.fromEntries(
    Array.from({ length: 60 }, (_, at) => {
      const next = { $ref: `#/$defs/a${at + 1}` };
      return [`a${at}`, { allOf: [next, next] }];
    }),
  );
  const schema = { $ref: "#/$defs/a0", $defs: doubling };
  const budget = new WorkBudget(10_000);
  assert.equal(conforms(1, schema, schema, budget), false);
  assert.ok(budget.isSpent);
});
