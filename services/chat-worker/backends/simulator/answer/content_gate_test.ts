import assert from "node:assert/strict";
import { certainLogprob } from "../sampling/logprobs.ts";
import { language } from "../test_support.ts";
import { ContentGate } from "./content_gate.ts";

const { tokenizer } = language();
const { vocabulary } = tokenizer;

Deno.test("the gate gives a token's logprob when its text is out, each once", () => {
  const gate = new ContentGate(vocabulary, ["the moon"]);
  const steps = tokenizer.encode("I see the sun").map((token) => {
    const text = gate.push(token, certainLogprob(token, 0, vocabulary));
    return [text, gate.takeLogprobs().map((entry) => entry.token).join("|")];
  });
  // " the" could be the beginning of the stop text: its space can not, the rest waits.
  assert.deepEqual(steps, [
    ["I", "I"],
    [" see", " see"],
    [" ", ""],
    ["the sun", " the| sun"],
  ]);
  assert.equal(gate.finish(), "");
});

Deno.test("the gate drops what a stop text covers, and its logprobs", () => {
  const gate = new ContentGate(vocabulary, ["the moon"]);
  let text = "";
  const tokens: string[] = [];
  for (const token of tokenizer.encode("I see the moon rise")) {
    text += gate.push(token, certainLogprob(token, 0, vocabulary));
    tokens.push(...gate.takeLogprobs().map((entry) => entry.token));
  }
  assert.equal(text, "I see ");
  assert.ok(gate.isStopped);
  assert.deepEqual(tokens, ["I", " see", " the"]);
});

Deno.test("the gate never lets half a character out", () => {
  const gate = new ContentGate(vocabulary, []);
  const pieces = tokenizer.encode("🚀").map((token) =>
    gate.push(token, undefined)
  );
  assert.deepEqual(pieces, ["", "", "", "🚀"]);
  const cut = new ContentGate(vocabulary, []);
  const [first = 0] = tokenizer.encode("🚀");
  assert.equal(cut.push(first, undefined) + cut.finish(), "");
});
