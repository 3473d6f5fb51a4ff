import assert from "node:assert/strict";
import { Candidates } from "../language/candidates.ts";
import { END_TOKEN } from "../language/vocabulary.ts";
import { isOver, type LengthPlan, planLength, weighEnd } from "./ending.ts";

const PLAN: LengthPlan = { type: "about", tokens: 100 };

const CASES: {
  name: string;
  plan?: LengthPlan;
  tokens: number;
  endsSentence: boolean;
  /** Of END, where the model itself gives it one half. */
  chance: number;
}[] = [
  { name: "never at first", tokens: 0, endsSentence: true, chance: 0 },
  { name: "never early", tokens: 29, endsSentence: true, chance: 0 },
  {
    name: "then as the model has it",
    tokens: 30,
    endsSentence: true,
    chance: 0.5,
  },
  {
    name: "more at a sentence's end",
    tokens: 100,
    endsSentence: true,
    chance: 0.385 + 0.615 / 2,
  },
  { name: "not within one", tokens: 100, endsSentence: false, chance: 0.5 },
  {
    name: "nearly surely when long over",
    tokens: 1000,
    endsSentence: true,
    chance: 0.97 + 0.03 / 2,
  },
  {
    name: "even within a sentence when long over",
    tokens: 401,
    endsSentence: false,
    chance: 0.75,
  },
  {
    name: "never in a text of exact length",
    plan: { type: "exactly", tokens: 100 },
    tokens: 1000,
    endsSentence: true,
    chance: 0,
  },
];

for (const { name, plan = PLAN, tokens, endsSentence, chance } of CASES) {
  Deno.test(`weighEnd() ends a text ${name}`, () => {
    const candidates = new Candidates(8);
    candidates.clear();
    candidates.add(END_TOKEN, 3);
    candidates.add(5, 3);
    weighEnd(candidates, plan, tokens, endsSentence);
    const [end = 0, other = 0] = candidates.probabilities;
    assert.ok(Math.abs(end - chance) < 1e-9, `${end}`);
    assert.ok(Math.abs(end + other - 1) < 1e-9);
  });
}

Deno.test("isOver() cuts a text at its length, or at eight times the planned one", () => {
  assert.equal(isOver({ type: "exactly", tokens: 100 }, 99), false);
  assert.equal(isOver({ type: "exactly", tokens: 100 }, 100), true);
  assert.equal(isOver({ type: "exactly", tokens: 0 }, 0), true);
  assert.equal(isOver(PLAN, 799), false);
  assert.equal(isOver(PLAN, 800), true);
});

Deno.test("planLength() hears how long an answer should be", () => {
  const usual = planLength("Why is the sky blue?").tokens;
  assert.ok(planLength("Answer briefly: why?").tokens < usual);
  assert.ok(planLength("In one word, why?").tokens < usual);
  assert.ok(planLength("Write a long story").tokens > usual);
});
