/** What `complete()` undoes or skips, and counts. */
import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import type { Oddity } from "@gateway/shared/upstream/oddities";
import {
  choiceChunk,
  event,
  head,
  jsonResponse,
  streamResponse,
  usageChunk,
} from "../../../tests/support/model_servers/model_answers.ts";
import type { Step } from "../../../tests/support/model_servers/scripted_server.ts";
import { newAnswer } from "./answer/answer_fixture.ts";
import { body, chat, payloads, rig } from "./openai_fixture.ts";

interface Case {
  name: string;
  reply: Iterable<Step>;
  stream?: boolean;
  oddities: Partial<Record<Oddity, number>>;
}

const whole = {
  choices: [{ index: 0, message: { content: "Hi" }, finish_reason: "stop" }],
};
const calls = (text: string) =>
  choiceChunk({
    tool_calls: [{
      index: 0,
      id: "c",
      function: { name: "f", arguments: text },
    }],
  });
const done = [choiceChunk({}, "stop"), usageChunk(3, 5)];
const compressed = gzipSync(body);

const CASES: Case[] = [
  { name: "the usual answer", reply: streamResponse(payloads), oddities: {} },
  {
    name: "keep-alives in data lines",
    reply: streamResponse([": keepalive", { type: "ping" }, ...payloads]),
    oddities: { event_skipped: 2 },
  },
  {
    name: "arguments after an empty object",
    reply: streamResponse([calls("{}"), calls('{"q":1}'), ...done]),
    oddities: { arguments_repaired: 1 },
  },
  {
    name: "a finish reason for calls without calls",
    reply: streamResponse([
      choiceChunk({ content: "a" }),
      choiceChunk({}, "tool_calls"),
    ]),
    oddities: { finish_replaced: 1 },
  },
  {
    name: "counts that cannot be true",
    reply: streamResponse([
      choiceChunk({ content: "a" }),
      choiceChunk({}, "stop"),
      usageChunk(4_000_000_000, 1),
    ]),
    oddities: { usage_refused: 1 },
  },
  {
    name: "counts that do not add up",
    reply: streamResponse([
      choiceChunk({ content: "a" }),
      choiceChunk({}, "stop"),
      {
        ...usageChunk(3, 1),
        usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 9 },
      },
    ]),
    oddities: { usage_repaired: 1 },
  },
  {
    name: "one body instead of a stream",
    reply: jsonResponse(whole),
    oddities: {},
  },
  {
    name: "events under the label of JSON",
    reply: [
      head(
        `200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`,
        body,
      ),
    ],
    stream: false,
    oddities: { label_ignored: 1 },
  },
  {
    name: "compressed events",
    reply: [
      head(
        "200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip" +
          `\r\ncontent-length: ${compressed.length}`,
        compressed,
      ),
    ],
    oddities: { coding_unasked: 1 },
  },
];

for (const { name, reply, stream = true, oddities } of CASES) {
  Deno.test(`complete() counts what is odd about ${name}`, async () => {
    await using r = rig(() => reply);
    const { answer } = newAnswer(chat({ stream }));
    const counted: Partial<Record<Oddity, number>> = {};
    answer.progress.onOddity = (oddity, count) => {
      counted[oddity] = count;
    };
    await r.backend.complete(answer);
    assert.deepEqual(counted, oddities);
  });
}

Deno.test("complete() counts what it skipped of an answer that fails, too", async () => {
  await using r = rig(() => [
    head(
      "200 OK\r\ncontent-type: text/event-stream\r\nconnection: close",
      event("garbage"),
    ),
    { close: true },
  ]);
  const { answer } = newAnswer(chat({ stream: true }));
  let skipped = 0;
  answer.progress.onOddity = (_, count) => {
    skipped += count;
  };
  await assert.rejects(r.backend.complete(answer));
  assert.equal(skipped, 1);
});
