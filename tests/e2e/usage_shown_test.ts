/**
 * Guarantee: the usage that the console shows for a key and for all keys is exactly the
 * sum of what its clients received: requests, tokens in and out, errors. Nothing is
 * counted twice or left out between the worker, the edge and Redis.
 */
import assert from "node:assert/strict";
import { estimateTokens } from "../../services/edge-auth/limits/cost.ts";
import { createKey } from "../conformance/context.ts";
import { chatRequest } from "../support/chat_request.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { askCluster } from "../support/cluster_keys.ts";
import type { TestClient } from "../../services/key-admin/console_fixture.ts";
import { matchIn, openConsole } from "../support/console_client.ts";
import { waitFor } from "../support/wait_for.ts";

const EDGES = 2;
const COMPLETE = 24;
const FAILING = 4;
const TOKENS_BEFORE_FAILURE = 5;

/** Totals by their names on a page. */
interface Usage {
  "Requests": number;
  "Errors": number;
  "Input tokens": number;
  "Output tokens": number;
}

const NONE: Usage = {
  "Requests": 0,
  "Errors": 0,
  "Input tokens": 0,
  "Output tokens": 0,
};

/** Each total of a page, or of several usages. */
const totals = (total: (name: keyof Usage) => number): Usage => ({
  "Requests": total("Requests"),
  "Errors": total("Errors"),
  "Input tokens": total("Input tokens"),
  "Output tokens": total("Output tokens"),
});

const sum = (all: readonly Usage[]): Usage =>
  totals((name) => all.reduce((total, usage) => total + usage[name], 0));

async function shown(browser: TestClient, path: string): Promise<Usage> {
  const { text } = await browser.get(path);
  return totals((name) => {
    const form = new RegExp(`<dt>${name}</dt><dd>([\\d,]+)<`);
    return Number(matchIn(text, form).replaceAll(",", ""));
  });
}

const simulates = (controls: string) => [
  { role: "user" as const, content: `[simulator: ${controls}]` },
];

/** Requests that complete; what the model server counted is in the answers. */
function complete(cluster: Cluster, value: string): Promise<Usage[]> {
  return Promise.all(Array.from({ length: COMPLETE }, async (_, number) => {
    const stream = number % 2 === 0;
    const response = await askCluster(cluster, value, number % EDGES, {
      messages: simulates(`${number + 1} tokens`),
      max_tokens: 100,
      n: 1 + number % 3,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    const count = (of: string) =>
      Number(matchIn(text, new RegExp(`"${of}_tokens":(\\d+)`)));
    assert.ok(count("completion") > number);
    return {
      ...NONE,
      "Requests": 1,
      "Input tokens": count("prompt"),
      "Output tokens": count("completion"),
    };
  }));
}

/** Requests that fail: at once, which costs nothing, and in mid-stream. */
async function fail(cluster: Cluster, value: string): Promise<Usage[]> {
  const failed = { ...NONE, "Requests": 1, "Errors": 1 };
  const messages = simulates(`fail after ${TOKENS_BEFORE_FAILURE} tokens`);
  const { promptTokens } = estimateTokens(chatRequest({ messages }));
  const usages: Usage[] = [];
  for (let number = 0; number < FAILING; number += 1) {
    const ask = async (body: object) =>
      await (await askCluster(cluster, value, number % EDGES, body)).text();
    assert.match(await ask({ messages: simulates("error 400") }), /^\{"error"/);
    const body = { messages, max_tokens: 50, stream: true };
    assert.match(await ask(body), /data: \{"error"/);
    usages.push(failed, {
      ...failed,
      "Input tokens": promptTokens,
      "Output tokens": TOKENS_BEFORE_FAILURE,
    });
  }
  return usages;
}

/** What is refused is nobody's usage. */
async function refuse(cluster: Cluster, value: string): Promise<void> {
  const rows: [key: string, body: object, status: number][] = [
    [value, { max_tokens: -1 }, 400],
    [value, { model: "no-such-model" }, 404],
    [`${value}x`, {}, 401],
  ];
  for (const [key, body, status] of rows) {
    const response = await askCluster(cluster, key, 0, body);
    await response.body?.cancel();
    assert.equal(response.status, status);
  }
}

Deno.test("the console shows exactly what was used", async () => {
  await using cluster = await startCluster({ edges: EDGES });
  const browser = await openConsole(cluster);
  const [one, two] = [await createKey(cluster), await createKey(cluster)];
  const ofOne = sum([
    ...await complete(cluster, one.key),
    ...await fail(cluster, one.key),
  ]);
  const ofTwo = sum(await complete(cluster, two.key));
  await refuse(cluster, one.key);
  const ofAll = sum([ofOne, ofTwo]);
  await waitFor(
    async () =>
      (await shown(browser, "/usage?range=24h")).Requests >= ofAll.Requests,
    { what: "all settlements" },
  );
  for (const range of ["24h", "30d"]) {
    const at = (path: string) => shown(browser, `${path}?range=${range}`);
    assert.deepEqual(await at("/usage"), ofAll);
    assert.deepEqual(await at(`/keys/${one.id}`), ofOne);
    assert.deepEqual(await at(`/keys/${two.id}`), ofTwo);
  }
});
