// Promise: the most that a text may have is not less than it has, whatever it is
// made of, and what it likely has is near that.
import assert from "node:assert/strict";
import { gptTokens } from "./gpt_tokens_fixture.ts";
import { TEXT_SAMPLES } from "./text_samples_fixture.ts";
import { textTokensLikely, textTokensMost } from "./text_tokens.ts";

/** How much too high it may be where it matters; ratios of what it was when it was made. */
const AT_MOST: Readonly<Record<string, number>> = {
  english: 1.7,
  german: 1.9,
  french: 1.7,
  chinese: 1.8,
  japanese: 1.8,
  typescript: 1.9,
  python: 1.6,
  json: 1.9,
  base64: 1.2,
};
const LONG_CHARS = 200_000;

/** How near the likely number is to the middle of the tokenizers: in language and code, and elsewhere. */
const LIKELY_OF_WORDS = { least: 0.7, most: 1.35 };
const LIKELY_OF_ALL = { least: 0.6, most: 2 };
const WORDS =
  "english german french chinese japanese korean turkish kazakh ukrainian greek typescript python rust html sql json"
    .split(" ");
/** Runs of one sign: tokenizers have long tokens for them that nobody can foresee. */
const RUNS = "spaces newlines tabs dashes equals".split(" ");

for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
  Deno.test(`textTokensMost() of ${name} is not less than tokenizers find`, () => {
    const estimate = textTokensMost(text);
    const { least, most } = gptTokens(text);
    assert.ok(estimate >= most, `${estimate} of ${most} tokens`);
    const bound = AT_MOST[name];
    if (bound !== undefined) {
      assert.ok(estimate <= bound * least, `${estimate} of ${least} tokens`);
    }
  });
}

for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
  if (RUNS.includes(name)) continue;
  Deno.test(`textTokensLikely() of ${name} is near what tokenizers find`, () => {
    const { least, most } = gptTokens(text);
    const share = textTokensLikely(text) / Math.sqrt(least * most);
    const bound = WORDS.includes(name) ? LIKELY_OF_WORDS : LIKELY_OF_ALL;
    assert.ok(share >= bound.least && share <= bound.most, `${share} times`);
    assert.ok(textTokensLikely(text) <= textTokensMost(text));
  });
}

Deno.test("textTokensMost() of a long text, of which it sees a part, is as good", () => {
  for (const [name, text] of Object.entries(TEXT_SAMPLES)) {
    const long = text.repeat(Math.ceil(LONG_CHARS / text.length));
    const whole = textTokensMost(text) * (long.length / text.length);
    const estimate = textTokensMost(long);
    assert.ok(
      estimate > 0.9 * whole && estimate < 1.2 * whole + 500,
      `${name}: ${estimate} of ${whole}`,
    );
  }
});

Deno.test("textTokensMost() takes a long text in little time, and an empty one for nothing", () => {
  assert.equal(textTokensMost(""), 0);
  const text = (TEXT_SAMPLES.english ?? "").repeat(30_000);
  assert.ok(text.length > 10_000_000);
  textTokensMost(text);
  const startedAtMs = performance.now();
  textTokensMost(text);
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < 20, `${tookMs} ms for ${text.length} characters`);
});
