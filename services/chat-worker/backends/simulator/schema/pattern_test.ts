import assert from "node:assert/strict";
import { randomFrom } from "../sampling/random.ts";
import { WorkBudget } from "./budget.ts";
import { parsePattern } from "./pattern.ts";
import { matchesPattern } from "./pattern_match.ts";
import { writePattern } from "./pattern_text.ts";

/** Texts are judged by the engine of the language, which these patterns do not endanger. */
const TEXTS = [
  "",
  "a",
  "b",
  "ab",
  "abc",
  "aab",
  "aaab",
  "AB-1234",
  "2026-03-14",
  "+4915112345",
  "a.b",
  "a\nb",
  "x@example.com",
  "foo bar",
  "foofoo",
  "_1",
  "-",
  "]",
  "^",
  "é",
  "中",
  "\\",
  "a{2}",
];

const PATTERNS = [
  "",
  "a",
  "^a$",
  "^a|b$",
  "^(a|b)$",
  "^[ab]+$",
  "^[^ab]+$",
  "^a*b$",
  "^a+?b$",
  "^a{2}b$",
  "^a{2,}b$",
  "^a{1,2}b$",
  "^(?:foo)+$",
  "^(?<word>foo)( bar)?$",
  "^[A-Z]{2}-\\d{4}$",
  "^\\d{4}-\\d{2}-\\d{2}$",
  "^\\+?[1-9]\\d{1,14}$",
  "^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$",
  "^a.b$",
  "^a\\.b$",
  "^\\w+$",
  "^\\W$",
  "^\\S+\\s\\S+$",
  "^[\\w-]+$",
  "^[a\\-z]$",
  "^[\\]^-]$",
  "^\\u4e2d$",
  "^\\xe9$",
  "^\\\\$",
  "^(a|ab)(c|bcd)?$",
  "^(|a)+b$",
  "(a*)*b",
  "b$",
  "^$",
  "^[\\D]$",
];

for (const source of PATTERNS) {
  Deno.test(`the pattern ${source || "(empty)"} matches what it should, and is written so`, () => {
    const pattern = parsePattern(source);
    assert.ok(pattern);
    const reference = new RegExp(source);
    for (const text of TEXTS) {
      const found = matchesPattern(pattern, text, new WorkBudget(10_000));
      assert.equal(found, reference.test(text), JSON.stringify(text));
    }
    const random = randomFrom(source);
    for (let round = 0; round < 20; round++) {
      const budget = new WorkBudget(10_000);
      const text = writePattern(pattern, { random, extraMax: 4, budget });
      assert.ok(text !== undefined);
      assert.match(text, reference);
    }
  });
}

const NOT_UNDERSTOOD = [
  "(?=a)",
  "(?!a)",
  "(?<=a)b",
  "(a)\\1",
  "\\bfoo",
  "\\p{L}",
  "(",
  ")",
  "[a",
  "a{2,1}",
  "a{x}",
  "*a",
  "a**",
  "\\u12",
  "[z-a]",
  "a".repeat(2001),
  "(".repeat(50) + ")".repeat(50),
];

for (const source of NOT_UNDERSTOOD) {
  Deno.test(`the pattern ${source.slice(0, 20)} is not understood`, () => {
    assert.equal(parsePattern(source), undefined);
  });
}

const HOSTILE = [
  "(a+)+$",
  "(a|a)*$",
  "^(a|aa)+$",
  "((((a{1000}){1000}){1000}){1000})",
  "^((((){1000}){1000}){1000}){1000}$",
  "(.*){50}x",
];

for (const source of HOSTILE) {
  Deno.test(`the pattern ${source} costs no more than its budget`, () => {
    const pattern = parsePattern(source);
    assert.ok(pattern);
    const startMs = performance.now();
    const text = "a".repeat(200) + "b";
    matchesPattern(pattern, text, new WorkBudget(50_000));
    writePattern(pattern, {
      random: randomFrom("hostile"),
      extraMax: 4,
      budget: new WorkBudget(50_000),
    });
    // Milliseconds here; the language's own engine takes hours for the first.
    assert.ok(performance.now() - startMs < 2000);
  });
}
