/** Members of JSON as they stand in a text. */
import assert from "node:assert/strict";
import { seededRandom, seedsOr } from "../../tests/support/seeded_random.ts";
import { elementsOf, membersOf, replaced, withoutMembers } from "./members.ts";

const whole: readonly {
  text: string;
  members: [name: string, value: string][];
}[] = [
  { text: "{}", members: [] },
  { text: " {\n\t} ", members: [] },
  { text: '{"a":1}', members: [["a", "1"]] },
  { text: '{ "a" : 1.0 ,"b":-2e9 }', members: [["a", "1.0"], ["b", "-2e9"]] },
  { text: '{"mod\\u0065l":"x"}', members: [["model", '"x"']] },
  {
    text: '{"a":"}\\"]","b":null}',
    members: [["a", '"}\\"]"'], ["b", "null"]],
  },
  {
    text: '{"a":[1,2,[3]],"a":{"b":[]}}',
    members: [["a", "[1,2,[3]]"], ["a", '{"b":[]}']],
  },
  {
    text: '{"a":[1,"]",2],"b":[1,{"c":"}"}]}',
    members: [["a", '[1,"]",2]'], ["b", '[1,{"c":"}"}]']],
  },
  {
    text: '{"a":[ -1.5, 2 ],"b":[[1,2],[3]]}',
    members: [["a", "[ -1.5, 2 ]"], ["b", "[[1,2],[3]]"]],
  },
  { text: '{"\\\\":"\\\\"}', members: [["\\", '"\\\\"']] },
];

Deno.test("membersOf() finds the members of an object as they stand", () => {
  for (const { text, members } of whole) {
    const found = membersOf(text)?.map(({ name, from, to }) => [
      name,
      text.slice(from, to),
    ]);
    assert.deepEqual(found, members, text);
  }
});

Deno.test("membersOf() of a text that breaks off or is no object is null", () => {
  for (const { text } of whole) {
    const end = text.trimEnd().length;
    for (let length = 0; length < end; length++) {
      assert.equal(membersOf(text.slice(0, length)), null, text);
    }
  }
  for (
    const text of ["", "[]", "1", '"a"', "null", "{a:1}", '{"a"1}', '{"a":}']
  ) {
    assert.equal(membersOf(text), null, text);
  }
});

Deno.test("elementsOf() finds the elements of an array", () => {
  const cases = [
    { text: "[]", elements: [] },
    { text: "[ ]", elements: [] },
    { text: '[1, "," ,[2,3]]', elements: ["1", '","', "[2,3]"] },
    { text: "[[0.1,0.2],[0.3]]", elements: ["[0.1,0.2]", "[0.3]"] },
    {
      text: '[{"embedding":[1,2]},{}]',
      elements: ['{"embedding":[1,2]}', "{}"],
    },
    { text: '{"a":1}', elements: null },
    { text: "[1", elements: null },
    { text: "[1,]", elements: null },
  ];
  for (const { text, elements } of cases) {
    const found = elementsOf(text, 0)?.map(({ from, to }) =>
      text.slice(from, to)
    );
    assert.deepEqual(found ?? null, elements, text);
  }
});

Deno.test("replaced() changes the values that it is told, and not a byte besides", () => {
  const text = '{ "model" : "a", "n":1.0,"model_x":12345678901234567890 }';
  const edits =
    membersOf(text)?.flatMap(({ name, from, to }) =>
      name === "model"
        ? [{ from, to, text: '"other"' }]
        : name === "n"
        ? [{ from, to, text: "2" }]
        : []
    ) ?? [];
  const expected =
    '{ "model" : "other", "n":2,"model_x":12345678901234567890 }';
  assert.equal(replaced(text, edits.toReversed()), expected);
});

/** Random JSON as no encoder writes it: spaces, escapes, exact numbers. */
class RandomJson {
  constructor(readonly random: () => number) {}

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.random() * list.length)] ?? assert.fail();
  }

  space(): string {
    return this.pick(["", "", "", " ", "\n", "\t \r\n"]);
  }

  text(): string {
    const parts = [
      "a",
      "model",
      "\\u0065",
      '\\"',
      "\\\\",
      "]",
      "}",
      "{",
      ",",
      ":",
      "é",
      "😀",
      "\\ud83d",
    ];
    const length = Math.floor(this.random() * 5);
    return `"${Array.from({ length }, () => this.pick(parts)).join("")}"`;
  }

  value(depth: number): string {
    const scalars = [
      "1.0",
      "-0",
      "1e400",
      "12345678901234567890",
      "true",
      "null",
    ];
    if (depth === 0 || this.random() < 0.3) {
      return this.random() < 0.5 ? this.pick(scalars) : this.text();
    }
    const length = Math.floor(this.random() * 4);
    const isNumbers = this.random() < 0.2;
    const parts = Array.from(
      { length },
      () => isNumbers ? "-1.5" : this.value(depth - 1),
    );
    return this.random() < 0.5 ? this.list("[", parts, "]") : this.list(
      "{",
      parts.map((part) => this.member(this.text(), part)),
      "}",
    );
  }

  member(name: string, value: string): string {
    return `${this.space()}${name}${this.space()}:${this.space()}${value}`;
  }

  list(open: string, parts: readonly string[], close: string): string {
    const inner = parts.map((part) => this.space() + part + this.space());
    return open + (inner.join(",") || this.space()) + close;
  }
}

Deno.test("any JSON keeps every byte but those of the replaced value", () => {
  for (const seed of seedsOr([1, 2, 3, 4])) {
    const json = new RandomJson(seededRandom(seed));
    for (let round = 0; round < 1_000; round++) {
      const before = Array.from(
        { length: Math.floor(json.random() * 4) },
        () => json.member(json.text(), json.value(4)),
      );
      const after = before.splice(Math.floor(json.random() * 4));
      const own = json.member('"governed"', "@");
      const template = json.list("{", [...before, own, ...after], "}");
      const text = template.replace("@", () => json.value(3));
      const member = membersOf(text)?.findLast(({ name }) =>
        name === "governed"
      );
      assert.ok(member, text);
      const [head = "", tail = ""] = template.split("@");
      const result = replaced(text, [{ ...member, text: '"new"' }]);
      assert.equal(result, `${head}"new"${tail}`);
      assert.deepEqual(JSON.parse(result), {
        ...JSON.parse(text),
        governed: "new",
      });
    }
  }
});

Deno.test("withoutMembers() takes members out with one comma each", () => {
  const cases = [
    { text: '{"a":1}', left: "{}" },
    { text: '{"a":1,"b":2}', left: '{"b":2}' },
    { text: '{"b":2 , "a":1 }', left: '{"b":2 }' },
    { text: '{"a":1,"c":[3],"b":{"a":2},"a":4}', left: '{"b":{"a":2}}' },
    { text: '{"b":"a"}', left: '{"b":"a"}' },
    { text: '["a"]', left: '["a"]' },
  ];
  for (const { text, left } of cases) {
    assert.equal(withoutMembers(text, ["a", "c"]), left, text);
  }
});
