/** Vectors and ranks of the simulator. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI from "openai";
import { startTestSimulator } from "../ask_fixture.ts";

const EMBEDDING = "simulated-embedding-1";
const RERANK = "simulated-rerank-1";

const cosine = (a: readonly number[], b: readonly number[]) =>
  a.reduce((sum, number, at) => sum + number * (b[at] ?? 0), 0);

Deno.test("the simulator gives texts with the same words vectors near each other", async () => {
  await using simulator = startTestSimulator();
  const client = new OpenAI({ baseURL: simulator.url, apiKey: "none" });
  const input = [
    "a red lighthouse",
    "The red LIGHTHOUSE, a",
    "bread and butter",
  ];
  const { data, usage } = await client.embeddings.create({
    model: EMBEDDING,
    input,
  });
  const [one = [], same = [], other = []] = data.map(({ embedding }) =>
    embedding
  );
  assert.deepEqual([one.length, usage.prompt_tokens], [256, 14]);
  assert.ok(Math.abs(cosine(one, one) - 1) < 1e-6);
  assert.ok(cosine(one, same) > 0.8);
  assert.ok(cosine(one, other) < 0.5);
});

Deno.test("the simulator's vectors are the same as numbers and in base64", async () => {
  await using simulator = startTestSimulator();
  const ask = async (more: object) => {
    const body = { model: EMBEDDING, input: [1, 2], dimensions: 8, ...more };
    const answer = await simulator.post("/embeddings", body);
    return (await answer.json()).data[0].embedding;
  };
  const numbers = await ask({});
  const bytes = Buffer.from(await ask({ encoding_format: "base64" }), "base64");
  const read = numbers.map((_: number, at: number) =>
    bytes.readFloatLE(at * 4)
  );
  assert.deepEqual(read, numbers);
});

Deno.test("the simulator counts the tokens of all inputs", async () => {
  await using simulator = startTestSimulator();
  const cases = [
    { input: "a", tokens: 1 },
    { input: ["a", "b", "c"], tokens: 3 },
    { input: [1, 2, 3], tokens: 3 },
    { input: [[1, 2, 3], [100_000]], tokens: 4 },
  ];
  for (const { input, tokens } of cases) {
    const body = { model: EMBEDDING, input };
    const answer = await simulator.post("/embeddings", body);
    const { usage } = await answer.json();
    assert.deepEqual(usage, { prompt_tokens: tokens, total_tokens: tokens });
  }
});

Deno.test("the simulator puts documents first that share words with the query", async () => {
  await using simulator = startTestSimulator();
  const body = {
    model: RERANK,
    query: "red lighthouse",
    documents: ["bread", { text: "a lighthouse" }, "the red lighthouse"],
    top_n: 2,
    return_documents: true,
  };
  const answer = await simulator.post("/rerank", body);
  assert.partialDeepStrictEqual(await answer.json(), {
    results: [
      {
        index: 2,
        relevance_score: 1,
        document: { text: "the red lighthouse" },
      },
      { index: 1, relevance_score: 0.5 },
    ],
  });
});

Deno.test("the simulator refuses texts for vectors and orders as servers do", async () => {
  await using simulator = startTestSimulator();
  const cases = [
    { path: "/embeddings", body: { model: EMBEDDING, input: "" }, status: 400 },
    { path: "/embeddings", body: { model: RERANK, input: "a" }, status: 404 },
    {
      path: "/rerank",
      body: { model: RERANK, query: "a", documents: [] },
      status: 400,
    },
  ];
  for (const { path, body, status } of cases) {
    const answer = await simulator.post(path, body);
    assert.equal(answer.status, status, path);
    await answer.body?.cancel();
  }
});
