import assert from "node:assert/strict";
import { TEXT_SAMPLES } from "./text_samples_fixture.ts";
import { createTextMeter } from "./text_meter.ts";
import { textTokensLikely } from "./text_tokens.ts";

const TEXT = `${TEXT_SAMPLES.english} ${TEXT_SAMPLES.typescript} `.repeat(20);

for (const pieceChars of [1, 4, 1_023, 1_024, 1_025, TEXT.length]) {
  Deno.test(`createTextMeter() finds the tokens of a text in pieces of ${pieceChars}`, () => {
    const meter = createTextMeter();
    for (let at = 0; at < TEXT.length; at += pieceChars) {
      meter.add(TEXT.slice(at, at + pieceChars));
      meter.add("");
    }
    const whole = textTokensLikely(TEXT);
    const difference = Math.abs(meter.likelyTokens - whole) / whole;
    assert.ok(difference < 0.01, `${meter.likelyTokens} of ${whole}`);
    assert.equal(meter.pieces, Math.ceil(TEXT.length / pieceChars));
  });
}

Deno.test("createTextMeter() begins at nothing", () => {
  const { likelyTokens, pieces } = createTextMeter();
  assert.deepEqual({ likelyTokens, pieces }, { likelyTokens: 0, pieces: 0 });
});
