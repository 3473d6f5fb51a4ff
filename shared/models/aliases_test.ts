/** Which model a name means, and aliases that mean two. */
import assert from "node:assert/strict";
import { ConfigError } from "../process/env.ts";
import { parseCatalog } from "./catalog.ts";

const backends = [{ type: "openai", base_url: "http://a/v1", model: "m" }];
const catalogOf = (models: { [id: string]: string[] }) =>
  parseCatalog({
    models: Object.entries(models)
      .map(([id, aliases]) => ({ id, aliases, backends })),
  });

const CATALOG = catalogOf({
  small: ["claude-haiku-*", "gpt-4o-mini", "gpt-*"],
  large: ["claude-*", "gpt-4o", "gpt-4o-*"],
  other: [],
});

const FOUND: [name: string, id: string | undefined][] = [
  ["small", "small"],
  ["gpt-4o", "large"],
  // A name counts before beginnings, also before a longer one.
  ["gpt-4o-mini", "small"],
  ["gpt-4o-mini-2024", "large"],
  ["gpt-4", "small"],
  ["gpt-", "small"],
  ["gpt", undefined],
  ["claude-haiku-4-5", "small"],
  ["claude-opus-4", "large"],
  // An alias is no name of its own.
  ["claude-*", "large"],
  ["other-1", undefined],
  ["", undefined],
];

for (const [name, id] of FOUND) {
  Deno.test(`find() finds ${id ?? "no model"} for '${name}'`, () => {
    assert.equal(CATALOG.find(name)?.id, id);
  });
}

Deno.test("find() takes every name where one model has the alias *", () => {
  const catalog = catalogOf({ a: ["*"], b: ["b-*"] });
  assert.equal(catalog.find("anything at all")?.id, "a");
  assert.equal(catalog.find("b-1")?.id, "b");
  assert.equal(catalog.find("")?.id, undefined);
  assert.equal(catalog.find("b")?.id, "b");
});

const NO_ALIASES = ["", "a*b", "**", "-x", "a b", "*x"];
const WRONG: [models: { [id: string]: string[] }, mistake: string][] = [
  [
    { a: ["x"], b: ["y", "x"] },
    "models[1].aliases[1]: the model 'b' cannot be called 'x': that is an " +
    "alias of the model 'a'",
  ],
  [
    { a: ["x-*"], b: ["x-*"] },
    "models[1].aliases[0]: the model 'b' cannot be called 'x-*': that is an " +
    "alias of the model 'a'",
  ],
  [
    { a: ["b"], b: [] },
    "models[0].aliases[0]: the model 'a' cannot be called 'b': that is the " +
    "id of the model 'b'",
  ],
  [
    { a: ["a"] },
    "models[0].aliases[0]: the model 'a' cannot be called 'a': that is the " +
    "id of the model 'a'",
  ],
  ...NO_ALIASES.map((
    alias,
  ): [{ [id: string]: string[] }, string] => [
    { a: [alias] },
    "models[0].aliases[0]: expected letters, digits, '.', '_', ':', '/', " +
    "'@', '+' or '-', and at most one '*', at the end",
  ]),
  [
    { a: ["x".repeat(201)] },
    "models[0].aliases[0]: expected at most 200 characters",
  ],
];

for (const [models, mistake] of WRONG) {
  const title = JSON.stringify(models).slice(0, 40);
  Deno.test(`parseCatalog() refuses the aliases ${title}`, () => {
    assert.throws(() => catalogOf(models), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.deepEqual(error.mistakes, [mistake]);
      return true;
    });
  });
}
