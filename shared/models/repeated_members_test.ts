/** Members that a list of models has twice. */
import assert from "node:assert/strict";
import { repeatedMembers } from "./repeated_members.ts";

const CASES: readonly { title: string; text: string; found: string[] }[] = [
  { title: "no object", text: "[1, [], null]", found: [] },
  {
    title: "the same name in different objects, and as a value",
    text: '{"a": {"a": "a"}, "b": [{"a": 1}, {"a": "b"}, "a", "a"]}',
    found: [],
  },
  {
    title: "a repetition at the top",
    text: '{\n"a": 1,\n"b": 2,\n"a": 3}',
    found: ['line 4: "a" is there twice'],
  },
  {
    title: "a repetition after an object of its own",
    text: '{"models": [{"id": "x",\n "backends": [{"id": 1}],\n "id" : "y"}]}',
    found: ['line 3: "id" is there twice'],
  },
  {
    title: "a name that is written differently",
    text: '{"weight": 1, "\\u0077eight": 2}',
    found: ['line 1: "weight" is there twice'],
  },
  {
    title: "texts with quotes, colons and braces",
    text: '{"a": "\\": {", "b\\"": "\\\\", "c": "}:", "b": ":"}',
    found: [],
  },
];

for (const { title, text, found } of CASES) {
  Deno.test(`repeatedMembers(): ${title}`, () => {
    assert.doesNotThrow(() => JSON.parse(text));
    assert.deepEqual(repeatedMembers(text), found);
  });
}

Deno.test("repeatedMembers() names at most twenty", () => {
  const text = `{${'"a": 1, '.repeat(30)}"b": 1}`;
  assert.equal(repeatedMembers(text).length, 20);
});
