/** Where sessions go, and when a server has more than its share. */
import assert from "node:assert/strict";
import { distanceOf, fullOf, seedOf } from "./affinity.ts";

const sessions = Array.from(
  { length: 4_000 },
  (_, index) =>
    Math.imul(index + 1, 0x9e3779b1).toString(16)
      .replace("-", "").padStart(8, "0").repeat(2),
);

interface Server {
  name: string;
  weight: number;
  seed: number;
  running: number;
}

const serversOf = (weights: { [name: string]: number }): Server[] =>
  Object.entries(weights).map(([name, weight]) => (
    { name, weight, seed: seedOf(name), running: 0 }
  ));

const nearest = (session: string, servers: readonly Server[]) =>
  servers.toSorted((a, b) => distanceOf(session, a) - distanceOf(session, b))[0]
    ?.name;

/** The share of the sessions that each server gets. */
function sharesOf(servers: readonly Server[]) {
  const names = sessions.map((session) => nearest(session, servers));
  return servers.map(({ name }) =>
    names.filter((each) => each === name).length / sessions.length
  );
}

const SHARES: { [name: string]: number }[] = [
  { "vllm-a": 1, "vllm-b": 1 },
  { "openai-1": 1, "openai-2": 1, "openai-3": 1, "openai-4": 1 },
  { "vllm-a": 3, "vllm-b": 1 },
  { a: 10, b: 5, c: 1 },
];

for (const weights of SHARES) {
  Deno.test(`distanceOf() shares sessions out by weight: ${JSON.stringify(weights)}`, () => {
    const servers = serversOf(weights);
    const sum = servers.reduce((all, { weight }) => all + weight, 0);
    for (const [index, share] of sharesOf(servers).entries()) {
      const expected = (servers[index]?.weight ?? 0) / sum;
      assert.ok(Math.abs(share - expected) < 0.03, `${share} not ${expected}`);
    }
  });
}

Deno.test("when a server goes, only its own sessions move", () => {
  const servers = serversOf({ a: 1, b: 1, c: 1 });
  const rest = servers.filter(({ name }) => name !== "b");
  for (const session of sessions) {
    const before = nearest(session, servers);
    if (before !== "b") assert.equal(nearest(session, rest), before);
  }
});

const FULL: { running: number[]; weights: number[]; full: number[] }[] = [
  { running: [0, 0], weights: [1, 1], full: [] },
  // One request alone may stay where its session is.
  { running: [1, 0], weights: [1, 1], full: [] },
  { running: [2, 0], weights: [1, 1], full: [0] },
  { running: [7, 2, 2, 1], weights: [1, 1, 1, 1], full: [0] },
  { running: [5, 5, 1, 1], weights: [1, 1, 1, 1], full: [0, 1] },
  { running: [3, 1], weights: [3, 1], full: [] },
  { running: [1, 3], weights: [3, 1], full: [1] },
  { running: [100, 100, 100], weights: [1, 1, 1], full: [] },
  { running: [130, 100, 70], weights: [1, 1, 1], full: [0] },
];

for (const { running, weights, full } of FULL) {
  Deno.test(`fullOf() of ${running} with the weights ${weights} is ${full}`, () => {
    const candidates = running.map((each, index) => (
      { seed: index, running: each, weight: weights[index] ?? 1 }
    ));
    const seeds = [...fullOf(candidates)].map(({ seed }) => seed);
    assert.deepEqual(seeds, full);
  });
}

Deno.test("fullOf() never holds all servers for full", () => {
  for (let busy = 0; busy < 200; busy++) {
    const candidates = [1, 2, 5].map((weight, seed) => (
      { seed, weight, running: busy * weight }
    ));
    assert.ok(fullOf(candidates).size < candidates.length);
  }
});
