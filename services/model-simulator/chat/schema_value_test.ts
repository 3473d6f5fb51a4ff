/** Values that the simulator makes for a schema. */
import assert from "node:assert/strict";
import { checkSchema } from "./json_schema.ts";
import { seededRandom } from "./language.ts";
import { valueFor } from "./schema_value.ts";

type Schema = Record<string, unknown>;
const namedSchema = (schema: Schema, { isStrict = false } = {}) => ({
  param: "response_format",
  name: "x",
  isStrict,
  schema,
});
const value = (schema: Schema, seed = 1) =>
  valueFor(namedSchema(schema), seededRandom(seed));
const closed = (properties: Schema) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

const isInteger = Number.isInteger;

/** A recursion that ends, and whose members are all required. */
const TREE = closed({
  name: { type: "string" },
  next: { anyOf: [{ $ref: "#" }, { type: "null" }] },
  children: { type: "array", items: { $ref: "#" } },
});

/** A schema of one value, and what that value must be. */
const VALUES: [schema: Schema, isGood: (v: unknown) => boolean][] = [
  [{ type: "string" }, (v) => typeof v === "string" && v !== ""],
  [{ type: "string", minLength: 50, maxLength: 50 }, hasLength(50)],
  [{ type: "string", maxLength: 1 }, hasLength(1)],
  [{ type: "string", format: "date-time" }, (v) => Date.parse(String(v)) > 0],
  [{ type: "boolean" }, (v) => typeof v === "boolean"],
  [{ type: "null" }, (v) => v === null],
  [{ type: ["null", "integer"] }, isInteger],
  [{ type: "integer", minimum: 3, maximum: 3 }, (v) => v === 3],
  [{ type: "integer", exclusiveMinimum: 3, maximum: 4 }, (v) => v === 4],
  [{ type: "integer", maximum: -5 }, (v) => isInteger(v) && Number(v) <= -5],
  [
    { type: "number", multipleOf: 0.25, minimum: 0.3, maximum: 0.6 },
    (v) => v === 0.5,
  ],
  [
    { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 0.001 },
    (v) => Number(v) > 0 && Number(v) < 0.001,
  ],
  [{ enum: ["a", 7, null] }, (v) => v === "a" || v === 7 || v === null],
  [{ const: { a: [1] } }, (v) => JSON.stringify(v) === '{"a":[1]}'],
  [
    { type: "array", items: { type: "integer" }, minItems: 2, maxItems: 3 },
    (v) => /^\[-?\d+(,-?\d+){1,2}\]$/.test(JSON.stringify(v)),
  ],
  [
    { anyOf: [{ type: "integer", minimum: 2, maximum: 1 }, { const: 1 }] },
    (v) => v === 1,
  ],
  [{ $ref: "#/$defs/a~1b", $defs: { "a/b": { const: 5 } } }, (v) => v === 5],
  [TREE, (v) => Object.keys(Object(v)).join() === "name,next,children"],
];

function hasLength(length: number) {
  return (value: unknown) => String(value).length === length;
}

Deno.test("valueFor() makes values that the schema allows, with all required properties", () => {
  for (const [schema, isGood] of VALUES) {
    for (let seed = 0; seed < 50; seed++) {
      const result = value(schema, seed);
      const what = `${JSON.stringify(schema)}: ${JSON.stringify(result)}`;
      assert.ok(isGood(result), what);
    }
  }
});

Deno.test("checkSchema() refuses what is outside of the strict subset", () => {
  const cases: [schema: Schema, reason: RegExp][] = [
    [closed({ a: { type: "string", pattern: "a+" } }), /'pattern' is not perm/],
    [closed({ a: { anyOf: [{ allOf: [] }] } }), /'allOf' is not permitted/],
    [closed({ a: { items: { type: "int" } } }), /'type' is unknown/],
    [closed({ a: { $ref: "#/$defs/none" } }), /'\$ref' leads nowhere/],
    [closed({ a: { $ref: "other.json" } }), /'\$ref' leads nowhere/],
    [closed({ a: 7 }), /must be an object/],
  ];
  const strictOnly: typeof cases = [
    [{ type: "array" }, /the root must be of type 'object'/],
    [{ type: "object" }, /'additionalProperties' is required/],
    [closed({ a: { type: ["object", "null"] } }), /'additionalProperties' is/],
    [{ ...closed({ a: {}, b: {} }), required: ["a"] }, /Missing 'b'/],
  ];
  for (const [schema, message] of [...cases, ...strictOnly]) {
    const refusal = { status: 400, message };
    assert.throws(
      () => checkSchema(namedSchema(schema, { isStrict: true })),
      refusal,
    );
  }
  for (const [schema, message] of cases) {
    assert.throws(() => checkSchema(namedSchema(schema)), {
      status: 400,
      message,
    });
  }
  for (const [schema] of strictOnly) checkSchema(namedSchema(schema));
});

Deno.test("valueFor() refuses what has no value", () => {
  const cases: [schema: Schema, reason: RegExp][] = [
    [closed({ a: { $ref: "#" } }), /never ends/],
    [{ $ref: "#" }, /never ends/],
    [{ type: "integer", minimum: 1.2, maximum: 1.8 }, /no number is in bounds/],
    [{ type: "array", minItems: 3, maxItems: 2 }, /in bounds/],
    [{ anyOf: [{ type: "array", minItems: 1e9 }] }, /too large/],
  ];
  for (const [schema, message] of cases) {
    assert.throws(() => value(schema), { status: 400, message });
  }
});
