/** `queue` in the list of models: its defaults, and its bounds. */
import assert from "node:assert/strict";
import { parseCatalog } from "./catalog.ts";
import { QUEUE_DEFAULT } from "./queue.ts";

const backends = [{
  type: "openai",
  base_url: "http://127.0.0.1:9/v1",
  model: "theirs",
}];

Deno.test("queue says how requests wait for a model, with defaults for what it leaves out", () => {
  const cases = [
    { queue: undefined, terms: QUEUE_DEFAULT },
    { queue: {}, terms: QUEUE_DEFAULT },
    {
      queue: { wait_seconds: 90.5 },
      terms: { ...QUEUE_DEFAULT, waitMs: 90_500 },
    },
    { queue: { wait_seconds: 0 }, terms: { ...QUEUE_DEFAULT, waitMs: 0 } },
    { queue: { requests_max: 0 }, terms: { ...QUEUE_DEFAULT, requestsMax: 0 } },
    {
      queue: { wait_seconds: 3_600, requests_max: 100_000, tokens_max: 1 },
      terms: { waitMs: 3_600_000, requestsMax: 100_000, tokensMax: 1 },
    },
  ];
  for (const { queue, terms } of cases) {
    const model = { id: "m", backends, ...queue && { queue } };
    const catalog = parseCatalog({ models: [model] });
    assert.deepEqual(catalog.get("m")?.queue, terms);
  }
});

Deno.test("a queue outside of its bounds is a mistake with its path", () => {
  const cases = [
    { queue: { wait_seconds: -1 }, path: "queue.wait_seconds" },
    { queue: { wait_seconds: 3_601 }, path: "queue.wait_seconds" },
    { queue: { wait_seconds: "2" }, path: "queue.wait_seconds" },
    { queue: { requests_max: -1 }, path: "queue.requests_max" },
    { queue: { requests_max: 1.5 }, path: "queue.requests_max" },
    { queue: { requests_max: 100_001 }, path: "queue.requests_max" },
    { queue: { tokens_max: 0 }, path: "queue.tokens_max" },
    { queue: { seconds: 1 }, path: "queue" },
    { queue: 2, path: "queue" },
  ];
  for (const { queue, path } of cases) {
    const models = [{ id: "m", backends, queue }];
    assert.throws(() => parseCatalog({ models }), (error) => {
      assert.ok(error instanceof Error);
      return error.message.includes(`models[0].${path}: `);
    }, path);
  }
});
