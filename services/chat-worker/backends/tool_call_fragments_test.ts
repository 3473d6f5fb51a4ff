/** Tool calls in fragments, as model servers send them, and as a client gets them. */
import assert from "node:assert/strict";
import {
  choiceChunk,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import { contentOf } from "./answer/answer_fixture.ts";
import { calls, fragmentsOf, read } from "./chunk_reader_fixture.ts";

const toolCalls: { name: string; fragments: string; expected: string }[] = [
  {
    name: "OpenAI's fragments",
    fragments: `0 a f "" | 0 {"x": | 0 1} | 1 b g {}`,
    expected: `0 a f "" | 0 {"x": | 0 1} | 1 b g "" | 1 {}`,
  },
  {
    name: "a new id in every fragment",
    fragments: "0 a f { | 0 b null }",
    expected: "0 a f { | 0 }",
  },
  {
    name: "empty id and name in later fragments",
    fragments: `0 a f - | 0 "" "" {} | 0 null null null`,
    expected: `0 a f "" | 0 {}`,
  },
  {
    name: "no type and no index",
    fragments: "- a f { | - - - } | - b g { | - a - 1 | - b - }",
    expected: "0 a f { | 0 } | 1 b g { | 0 1 | 1 }",
  },
  {
    name: "whole calls that are all numbered 0",
    fragments: "0 a f {} | 0 b f {}",
    expected: `0 a f "" | 0 {} + 1 b f "" | 1 {}`,
  },
  {
    name: "whole calls of one function, all numbered 0, without id",
    fragments: `0 "" f {"x":1} + 0 "" f {"x":2} | 0 "" f {}`,
    expected:
      `0 call_req1_0_0 f {"x":1} + 1 call_req1_0_1 f {"x":2} | 2 call_req1_0_2 f "" | 2 {}`,
  },
  {
    name: "the name in every fragment, without id",
    fragments: `0 - f {"x": | 0 - f 1 | 0 - f }`,
    expected: `0 call_req1_0_0 f {"x": | 0 1 | 0 }`,
  },
  {
    name: "indexes that begin at 1 and have gaps",
    fragments: `1 a f "" | 4 b g "" | 1 {}`,
    expected: `0 a f "" | 1 b g "" | 0 {} + 1 {}`,
  },
  {
    name: "a name that comes after its arguments",
    fragments: "0 a - { | 0 - f }",
    expected: `0 a f "" | 0 {}`,
  },
];

function readCalls(chunks: readonly unknown[][]): unknown[] {
  const deltas = chunks.map(calls);
  const done = [choiceChunk({}, "tool_calls"), usageChunk(3, 2)];
  return contentOf(read([...deltas, ...done]));
}

for (const { name, fragments, expected } of toolCalls) {
  Deno.test(`tool calls with ${name}`, () => {
    const deltas = fragmentsOf(expected).map((chunk) => ({
      tool_calls: chunk.map((each) =>
        "id" in each && each.id ? { ...each, type: "function" } : each
      ),
    }));
    const output = JSON.stringify([...deltas, "[tool_calls]", "3+2"]);
    assert.deepEqual(readCalls(fragmentsOf(fragments)), JSON.parse(output));
  });
}

Deno.test("tool calls with arguments as an object", () => {
  const namedCall = { name: "f", arguments: { x: [1] } };
  const called = { name: "f", arguments: '{"x":[1]}' };
  const [delta] = readCalls([[{ index: 0, id: "a", function: namedCall }]]);
  const call = { index: 0, id: "a", type: "function", function: called };
  assert.deepEqual(delta, { tool_calls: [call] });
});
