// Promise: the usage that the console shows for a key and for all keys is exactly the
// sum of what its clients received: requests, tokens in and out, failures and why.
import assert from "node:assert/strict";
import { estimateTokens } from "../../services/edge-auth/limits/cost.ts";
import type { TestClient } from "../../services/key-admin/console_fixture.ts";
import { chatRequest } from "../support/chat_request.ts";
import { type Cluster, simulates, startCluster } from "../support/cluster.ts";
import { statusOf } from "../support/gated_cluster.ts";
import { matchIn, openConsole } from "../support/console_client.ts";
import { until } from "../support/wait_for.ts";

const EDGES = 2;
const COMPLETE = 24;
const FAILING = 4;
const TOKENS_BEFORE_FAILURE = 5;

/** What a page counts, by the names there. */
const TOTALS = "Requests,Failed,Refused,Input tokens,Output tokens".split(",");
/** As many numbers. */
type Usage = number[];

const sum = (all: readonly Usage[]): Usage =>
  TOTALS.map((_, at) => all.reduce((sum, usage) => sum + (usage[at] ?? 0), 0));

async function shown(browser: TestClient, path: string): Promise<Usage> {
  const { text } = await browser.get(path);
  return TOTALS.map((name) => {
    const form = new RegExp(`<dt>${name}</dt><dd>([\\d,]+)<`);
    return Number(matchIn(text, form).replaceAll(",", ""));
  });
}

/** The sum of a column of a usage file. */
async function sumsOf(browser: TestClient, path: string) {
  const { text } = await browser.get(`${path}/export.csv`);
  const [names = [], ...lines] = text.trimEnd().split("\r\n")
    .map((line) => line.split(","));
  return (name: string) =>
    lines.reduce((sum, line) => sum + Number(line[names.indexOf(name)]), 0);
}

/** Requests that complete; what the model server counted is in the answers. */
function complete(cluster: Cluster, value: string): Promise<Usage[]> {
  return Promise.all(Array.from({ length: COMPLETE }, async (_, number) => {
    const stream = number % 2 === 0;
    const response = await cluster.ask(value, number % EDGES, {
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
    return [1, 0, 0, count("prompt"), count("completion")];
  }));
}

/** Requests that fail: at once, which costs nothing, and in mid-stream. */
async function fail(cluster: Cluster, value: string): Promise<Usage[]> {
  const messages = simulates(`fail after ${TOKENS_BEFORE_FAILURE} tokens`);
  const { promptTokens } = estimateTokens(chatRequest({ messages }));
  const usages: Usage[] = [];
  for (let number = 0; number < FAILING; number += 1) {
    const ask = async (body: object) =>
      await (await cluster.ask(value, number % EDGES, body)).text();
    assert.match(await ask({ messages: simulates("error 400") }), /^\{"error"/);
    const body = { messages, max_tokens: 50, stream: true };
    assert.match(await ask(body), /data: \{"error"/);
    usages.push([1, 1], [1, 1, 0, promptTokens, TOKENS_BEFORE_FAILURE]);
  }
  return usages;
}

Deno.test("the console shows what was used, and why requests were refused or failed", async () => {
  await using cluster = await startCluster({ edges: EDGES });
  const browser = await openConsole(cluster);
  const [one, two] = [await cluster.createKey(), await cluster.createKey()];
  const refusals = [
    [one.key, { max_tokens: -1 }, 400],
    [one.key, { model: "no-such-model" }, 404],
    // One with an unknown key is nobody's.
    [`${one.key}x`, {}, 401],
  ] as const;
  for (const [key, body, status] of refusals) {
    assert.equal(await statusOf(cluster.ask(key, 0, body)), status);
  }
  const ofOne = sum([
    ...await complete(cluster, one.key),
    ...await fail(cluster, one.key),
    [0, 0, 2],
  ]);
  const completed = await complete(cluster, two.key);
  await cluster.keys("disable", two.id);
  const refused = await cluster.ask(two.key, 0);
  await refused.body?.cancel();
  const ofTwo = sum([...completed, [0, 0, 1]]);
  const ofAll = sum([ofOne, ofTwo]);
  await until(async () => {
    const usage = await shown(browser, "/usage?range=24h");
    return usage.every((count, at) => count >= (ofAll[at] ?? 0));
  });
  for (const range of ["24h", "30d"]) {
    const at = (path: string) => shown(browser, `${path}?range=${range}`);
    assert.deepEqual(await at("/usage"), ofAll);
    assert.deepEqual(await at(`/keys/${one.id}`), ofOne);
    assert.deepEqual(await at(`/keys/${two.id}`), ofTwo);
  }
  const ofRequests = { invalid_request: FAILING + 1, unknown_model: 1 };
  const reasons: [path: string, Record<string, number>][] = [
    [`/keys/${one.id}`, { ...ofRequests, cut: FAILING, key_disabled: 0 }],
    [`/keys/${two.id}`, { key_disabled: 1, refused: 1, failed: 0 }],
    ["/usage", { ...ofRequests, cut: FAILING, key_disabled: 1 }],
  ];
  for (const [path, counts] of reasons) {
    // Edges write these once a second.
    const wanted = Object.values(counts);
    const read = await until(async () => {
      const sums = Object.keys(counts).map(await sumsOf(browser, path));
      return sums.every((sum, at) => sum >= (wanted[at] ?? 0)) && sums;
    });
    assert.deepEqual(read, wanted, path);
  }
  const { text } = await browser.get(`/keys/${two.id}/requests`);
  const id = refused.headers.get("x-request-id");
  assert.match(text, new RegExp(`${id}.*>403<`));
});
