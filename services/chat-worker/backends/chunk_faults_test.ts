/** Answers that are none, and how each fails. */
import assert from "node:assert/strict";
import type { UpstreamFault } from "@gateway/shared/upstream/http/errors";
import {
  choiceChunk,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import { requestWith } from "../requests/request_fixture.ts";
import { promptTokens } from "@gateway/shared/openai/tokens";
import {
  calls,
  counted,
  end,
  fragmentOf,
  newReader,
  read,
  say,
  stop,
  usage,
} from "./chunk_reader_fixture.ts";

const PROMPT = promptTokens(requestWith());
const calling = (fragment: string) => calls([fragmentOf(fragment)]);

const broken: {
  [fault in UpstreamFault]?: { name: string; chunks: unknown[]; n?: number }[];
} = {
  truncated: [
    { name: "nothing at all", chunks: [] },
    {
      name: "one of two choices finished, the other begun",
      chunks: [
        choiceChunk({ role: "assistant" }, null, 1),
        ...end,
      ],
      n: 2,
    },
    { name: "an empty finish reason", chunks: [choiceChunk({}, "")] },
    {
      name: "DeepSeek's reason for no room",
      chunks: [
        say("a", "insufficient_system_resource"),
      ],
    },
    {
      name: "Gemini's reason for a broken call",
      chunks: [say("", "MALFORMED_FUNCTION_CALL")],
    },
  ],
  request: [{
    name: "vLLM's error",
    chunks: [{ object: "error", message: "Bad", code: 400 }],
  }],
  server_error: [
    {
      name: "OpenRouter's error beside a last choice",
      chunks: [say("a"), {
        ...say("", "error"),
        error: { code: 502, message: "Provider disconnected" },
      }],
    },
    { name: "a flat error", chunks: [{ message: "Bad", code: "x" }] },
  ],
  invalid: [
    { name: "no JSON", chunks: ["<html>"] },
    { name: "a depth bomb", chunks: ["[".repeat(500_000)] },
  ],
  unsupported: [
    { name: "none of two choices begun", chunks: [usageChunk(3, 0)], n: 2 },
    {
      name: "Ollama's own form",
      chunks: [{ message: { content: "Hi" }, done: true }],
    },
    { name: "choices that are no array", chunks: [{ choices: {} }] },
    { name: "a choice that is no object", chunks: [{ choices: [null] }] },
    { name: "an index beyond n", chunks: [choiceChunk({}, null, 1)] },
    {
      name: "an index that is no integer",
      chunks: [choiceChunk({}, null, 0.5)],
    },
    { name: "tool calls that are no array", chunks: [calls({})] },
    { name: "a tool call that is no object", chunks: [calls(["f"])] },
    {
      name: "a tool call that never gets its name",
      chunks: [calling("0 a - {}"), stop],
    },
    {
      name: "endless arguments before a name",
      chunks: [calling(`0 ${"x".repeat(65_537)}`)],
    },
    {
      name: "129 tool calls",
      chunks: [
        calls(
          Array.from({ length: 129 }, (_, i) => fragmentOf(`${i} ${i} f -`)),
        ),
      ],
    },
  ],
};

for (const [fault, cases] of Object.entries(broken)) {
  for (const { name, chunks, n } of cases) {
    Deno.test(`an answer fails with ${fault} for ${name}`, () => {
      assert.throws(() => read(chunks, n), { fault });
    });
  }
}

Deno.test("fewer choices in a complete response are a fault of 'n', with their usage", () => {
  const message = (choices: string, n: number) =>
    `The server of this model returns ${choices} per request, but 'n' is ${n}.`;
  const failure = { code: "unsupported_value", param: "n" };
  assert.throws(
    () => read([say("a"), ...end], 2),
    { ...failure, message: message("one choice", 2), usage: counted },
  );
  const two = [say("a", "stop"), say("b", "stop", 2)];
  const estimate = usage(PROMPT, 2);
  assert.throws(
    () => read(two, 3),
    { ...failure, message: message("2 choices", 3), usage: estimate },
  );
  assert.throws(() => read([stop], 2, { isWhole: false }), {
    code: "upstream_truncated",
  });
});

Deno.test("an error event throws, whatever its data, and is redacted", () => {
  const events = [
    ['{"message":"secret","code":"x"}', "[redacted]"],
    ["Internal Server Error", "The model server failed"],
  ] as const;
  for (const [data, message] of events) {
    assert.throws(() => newReader().reader.take(data, "error"), { message });
  }
});
