/** Chunks that repeat an earlier one with another text. */
import assert from "node:assert/strict";
import { amountOf } from "../../../../tests/support/amount.ts";
import { choiceChunk } from "../../../../tests/support/model_servers/model_answers.ts";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { newAnswer } from "./answer_fixture.ts";
import { ChunkReader } from "../chunk_reader.ts";
import { ChunkTemplate } from "./chunk_template.ts";

const surroundings = { head: '<"', tail: '">' };
const say = (content: string, reason: string | null = null) =>
  JSON.stringify(choiceChunk({ content }, reason));

function learned(text: string, payload = say(text)): ChunkTemplate {
  const template = new ChunkTemplate();
  template.learn({ payload, text, member: "content", surroundings });
  return template;
}

const matches = [
  { name: "another text", payload: say(" world"), text: " world" },
  { name: "the same text", payload: say("hello"), text: "hello" },
  {
    name: "text beyond ASCII",
    payload: say("é \u{1f600}"),
    text: "é \u{1f600}",
  },
  { name: "an escaped quote", payload: say('"'), text: null },
  { name: "an escaped newline", payload: say("\n"), text: null },
  { name: "no text", payload: say(""), text: null },
  { name: "a finish reason", payload: say("x", "stop"), text: null },
  { name: "something after it", payload: say("x") + " ", text: null },
  { name: "something before it", payload: " " + say("x"), text: null },
  { name: "half of it", payload: say("x").slice(0, 60), text: null },
  { name: "a string that ends the text", text: null, payload: say('","b":"') },
  {
    name: "a second member",
    payload: say("x").replace('"x"', '"x","refusal":"y"'),
    text: null,
  },
];

for (const { name, payload, text } of matches) {
  Deno.test(`a chunk with ${name} is ${text === null ? "not " : ""}like the last`, () => {
    assert.equal(learned("hello").textIn(payload), text);
  });
}

for (const text of ["assistant", "content", "stop", "chat.completion.chunk"]) {
  Deno.test(`the text "${text}" is not taken for another string of its chunk`, () => {
    const payload = JSON.stringify({
      ...choiceChunk({ role: "assistant", content: text }),
      note: "stop",
    });
    const next = payload.replace(`"content":"${text}"`, '"content":"next"');
    assert.equal(learned(text, payload).textIn(next), "next");
  });
}

Deno.test("a text is put between what was written around the first", () => {
  assert.equal(learned("hello").lineOf(" world"), '<" world">');
});

Deno.test("chunks that all differ are learned three times", () => {
  const template = new ChunkTemplate();
  let learnings = 0;
  while (template.isLearning) {
    learnings += 1;
    const payload = say("a") + " ".repeat(learnings);
    template.learn({ payload, text: "a", member: "content", surroundings });
  }
  assert.equal(learnings, 3);
});

Deno.test("chunks that change now and then are learned each time", () => {
  const template = new ChunkTemplate();
  for (let second = 0; second < 10; second++) {
    const at = (content: string) =>
      JSON.stringify({ ...choiceChunk({ content }), created: second });
    template.learn({
      payload: at("a"),
      text: "a",
      member: "content",
      surroundings,
    });
    assert.equal(template.textIn(at("b")), "b");
  }
  assert.equal(template.isLearning, true);
});

const SEEDS = amountOf({ usual: 100, full: 1_000 });
const CHUNKS = 30;

Deno.test("streams are the same whether or not chunks are recognized", () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const payloads = randomChunks(seed);
    // Spaces at the end make every chunk unlike the one before.
    const unlike = payloads.map((text, at) => text + " ".repeat(at + 1));
    assert.equal(read(unlike), read(payloads), `seed ${seed}`);
  }
});

function read(payloads: readonly string[]): string {
  const { answer, context } = newAnswer();
  const redact = (text: string) => text;
  const reader = new ChunkReader({ answer, choices: answer.choices, redact });
  for (const payload of payloads) reader.take(payload, "");
  answer.end(reader.end({ isWhole: true }));
  return `${context.answer()} ${reader.tokens}`;
}

const TEXTS = [" word", "a", '"', "\n", "", "é", "content"];
const COUNTED = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

function randomChunks(seed: number): string[] {
  const random = seededRandom(seed);
  const isRare = () => random() < 0.15;
  const provider = isRare() ? { provider: "x" } : {};
  return Array.from({ length: CHUNKS }, () => {
    const text = TEXTS[Math.floor(random() * TEXTS.length)];
    const delta = {
      ...(isRare() && { role: "assistant" }),
      [isRare() ? "reasoning_content" : "content"]: text,
      ...(isRare() && { signature: "s" }),
    };
    const choice = {
      index: 0,
      delta,
      finish_reason: null,
      ...(isRare() && { logprobs: { content: [] } }),
      ...(isRare() && { stop_reason: null }),
    };
    return JSON.stringify({
      ...choiceChunk({}),
      ...provider,
      ...(isRare() && { note: 1 }),
      ...(isRare() && { usage: COUNTED }),
      choices: isRare() ? [] : [choice],
    });
  });
}
