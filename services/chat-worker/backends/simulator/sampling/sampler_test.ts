import assert from "node:assert/strict";
import { Candidates } from "../language/candidates.ts";
import { randomFrom } from "./random.ts";
import { chooseSlot, type SamplerSettings } from "./sampler.ts";

const PLAIN: SamplerSettings = {
  temperature: 1,
  topP: 1,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
};
const DRAWS = 4000;
/** Five standard deviations of a share near one half. */
const TOLERANCE = 0.04;

interface Case {
  name: string;
  settings: Partial<SamplerSettings>;
  prompt?: number[];
  answer?: [token: number, times: number][];
  /** Tokens are 0, 1, 2 … with probabilities 0.5, 0.3, 0.2. */
  expected: [number, number, number];
}

/** The weight that a probability has after a repetition penalty: its logit, 10 for certainty, divided. */
function repeated(probability: number, penalty: number): number {
  return Math.exp((10 + Math.log(probability)) / penalty - 10);
}

/** Shares of weights, so that the cases can be read as what they divide. */
function shares(...weights: [number, number, number]): Case["expected"] {
  const sum = weights[0] + weights[1] + weights[2];
  return [weights[0] / sum, weights[1] / sum, weights[2] / sum];
}

const CASES: Case[] = [
  { name: "nothing set", settings: {}, expected: [0.5, 0.3, 0.2] },
  { name: "temperature 0", settings: { temperature: 0 }, expected: [1, 0, 0] },
  {
    name: "temperature 0.5 squares",
    settings: { temperature: 0.5 },
    expected: shares(0.25, 0.09, 0.04),
  },
  {
    name: "temperature 2 takes roots",
    settings: { temperature: 2 },
    expected: shares(Math.sqrt(0.5), Math.sqrt(0.3), Math.sqrt(0.2)),
  },
  { name: "top_p 0", settings: { topP: 0 }, expected: [1, 0, 0] },
  {
    name: "top_p below the first",
    settings: { topP: 0.49 },
    expected: [1, 0, 0],
  },
  {
    name: "top_p above the first",
    settings: { topP: 0.51 },
    expected: shares(0.5, 0.3, 0),
  },
  {
    name: "top_p above the second",
    settings: { topP: 0.81 },
    expected: [0.5, 0.3, 0.2],
  },
  {
    name: "top_p after temperature",
    // At temperature 0.5 the first has 0.66 of the weight.
    settings: { temperature: 0.5, topP: 0.6 },
    expected: [1, 0, 0],
  },
  {
    name: "presence_penalty, once for any number of times",
    settings: { presencePenalty: 1 },
    answer: [[0, 7]],
    expected: shares(0.5 / Math.E, 0.3, 0.2),
  },
  {
    name: "presence_penalty below 0 invites",
    settings: { presencePenalty: -1 },
    answer: [[2, 1]],
    expected: shares(0.5, 0.3, 0.2 * Math.E),
  },
  {
    name: "presence_penalty is not about the prompt",
    settings: { presencePenalty: 2 },
    prompt: [0, 1, 2],
    expected: [0.5, 0.3, 0.2],
  },
  {
    name: "frequency_penalty, by the number of times",
    settings: { frequencyPenalty: 0.5 },
    answer: [[0, 2], [1, 1]],
    expected: shares(0.5 * Math.exp(-1), 0.3 * Math.exp(-0.5), 0.2),
  },
  {
    name: "repetition_penalty about the answer",
    settings: { repetitionPenalty: 1.1 },
    answer: [[0, 3]],
    expected: shares(repeated(0.5, 1.1), 0.3, 0.2),
  },
  {
    name: "repetition_penalty about the prompt",
    settings: { repetitionPenalty: 1.1 },
    prompt: [1],
    expected: shares(0.5, repeated(0.3, 1.1), 0.2),
  },
  {
    name: "repetition_penalty below 1 invites",
    settings: { repetitionPenalty: 0.9 },
    answer: [[2, 1]],
    expected: shares(0.5, 0.3, repeated(0.2, 0.9)),
  },
  {
    name: "penalties before temperature 0",
    settings: { temperature: 0, presencePenalty: 2 },
    answer: [[0, 1]],
    expected: [0, 1, 0],
  },
];

for (const { name, settings, prompt, answer, expected } of CASES) {
  Deno.test(`chooseSlot() draws as it should: ${name}`, () => {
    const candidates = candidatesOf([0.5, 0.3, 0.2]);
    const seen = { prompt: new Set(prompt), answer: new Map(answer) };
    const random = randomFrom(name);
    const counts = [0, 0, 0];
    for (let i = 0; i < DRAWS; i++) {
      const slot = chooseSlot(
        candidates,
        { ...PLAIN, ...settings },
        seen,
        random,
      );
      counts[slot] = (counts[slot] ?? 0) + 1;
    }
    counts.forEach((count, slot) => {
      const share = expected[slot] ?? 0;
      if (share === 0 || share === 1) assert.equal(count, share * DRAWS);
      else assert.ok(Math.abs(count / DRAWS - share) < TOLERANCE, `${counts}`);
    });
    assert.equal(candidates.probabilities[0], 0.5);
  });
}

Deno.test("chooseSlot() keeps one of equals for a tiny top_p, the one that greedy takes", () => {
  const candidates = candidatesOf([0.25, 0.25, 0.25, 0.25]);
  const seen = { prompt: new Set<number>(), answer: new Map() };
  const random = randomFrom("ties");
  for (let i = 0; i < 50; i++) {
    const settings = { ...PLAIN, topP: 0.01 };
    assert.equal(chooseSlot(candidates, settings, seen, random), 0);
  }
});

Deno.test("chooseSlot() keeps as many of equals as top_p needs", () => {
  const candidates = candidatesOf([0.25, 0.25, 0.25, 0.25]);
  const seen = { prompt: new Set<number>(), answer: new Map() };
  const random = randomFrom("half");
  const slots = new Set<number>();
  for (let i = 0; i < 200; i++) {
    slots.add(chooseSlot(candidates, { ...PLAIN, topP: 0.5 }, seen, random));
  }
  assert.deepEqual([...slots].sort(), [0, 1]);
});

Deno.test("chooseSlot() goes on under the largest penalty there is", () => {
  const candidates = candidatesOf([0, 0.1, 0.9]);
  const seen = { prompt: new Set([0, 1, 2]), answer: new Map() };
  for (const temperature of [0, 1]) {
    const settings = { ...PLAIN, temperature, repetitionPenalty: 1e308 };
    const slot = chooseSlot(candidates, settings, seen, () => 0.5);
    assert.ok(slot > 0);
  }
});

Deno.test("chooseSlot() never draws what has no probability", () => {
  const candidates = candidatesOf([0, 1, 0]);
  const seen = { prompt: new Set<number>(), answer: new Map([[1, 9]]) };
  for (const settings of CASES.map((one) => one.settings)) {
    for (const mark of [0, 0.5, 1 - Number.EPSILON]) {
      const all = { ...PLAIN, ...settings };
      assert.equal(chooseSlot(candidates, all, seen, () => mark), 1);
    }
  }
});

function candidatesOf(probabilities: readonly number[]): Candidates {
  const candidates = new Candidates(8);
  candidates.clear();
  probabilities.forEach((share, token) => candidates.add(token, share));
  return candidates;
}
