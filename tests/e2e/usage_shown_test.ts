/**
 * Guarantee: the usage that the console shows for a key and for all keys is exactly the
 * sum of what its clients received: requests, tokens in and out, errors. Nothing is
 * counted twice or left out between the worker, the edge and Redis.
 */
import assert from "node:assert/strict";
import { estimateTokens } from "../../services/edge-auth/limits/cost.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { askCluster } from "../support/cluster_keys.ts";
import { type ConsoleClient, openConsole } from "../support/console_client.ts";
import { waitFor } from "../support/wait_for.ts";

const EDGES = 2;
const COMPLETE = 24;
const FAILING = 4;
const TOKENS_BEFORE_FAILURE = 5;

interface Counted {
  requests: number;
  errors: number;
  input: number;
  output: number;
}

const zero = (): Counted => ({ requests: 0, errors: 0, input: 0, output: 0 });

function sum(one: Counted, other: Counted): Counted {
  return {
    requests: one.requests + other.requests,
    errors: one.errors + other.errors,
    input: one.input + other.input,
    output: one.output + other.output,
  };
}

/** The four totals of a page. */
async function shown(browser: ConsoleClient, path: string): Promise<Counted> {
  const { text } = await browser.get(path);
  const total = (label: string) => {
    const [, shown] =
      new RegExp(`<dt>${label}</dt><dd>([\\d,]+)<`).exec(text) ??
        assert.fail(`no ${label} on ${path}`);
    return Number(shown?.replaceAll(",", ""));
  };
  return {
    requests: total("Requests"),
    errors: total("Errors"),
    input: total("Input tokens"),
    output: total("Output tokens"),
  };
}

const says = (content: string) => [{ role: "user", content }];

/** Requests that complete; what the model server counted is in the answers. */
async function complete(cluster: Cluster, value: string): Promise<Counted> {
  const told = zero();
  await Promise.all(Array.from({ length: COMPLETE }, async (_, number) => {
    const stream = number % 2 === 0;
    const response = await askCluster(cluster, value, number % EDGES, {
      messages: says(`[simulator: ${number + 1} tokens]`),
      max_tokens: 100,
      n: 1 + number % 3,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    const usage = stream
      ? /"usage":(\{"prompt_tokens".*\})\}\n\ndata: \[DONE\]/.exec(text)?.[1]
      : JSON.stringify(JSON.parse(text).usage);
    const { prompt_tokens, completion_tokens } = JSON.parse(
      usage ?? assert.fail(text),
    );
    told.requests += 1;
    told.input += prompt_tokens;
    told.output += completion_tokens;
  }));
  assert.ok(told.output > COMPLETE);
  return told;
}

/** Requests that fail: at once, which costs nothing, and in mid-stream. */
async function fail(cluster: Cluster, value: string): Promise<Counted> {
  const told = zero();
  for (let number = 0; number < FAILING; number += 1) {
    const response = await askCluster(cluster, value, number % EDGES, {
      messages: says("[simulator: error 400]"),
    });
    await response.body?.cancel();
    assert.ok(response.status >= 400, `${response.status}`);
    told.requests += 1;
    told.errors += 1;
  }
  const content = `[simulator: fail after ${TOKENS_BEFORE_FAILURE} tokens]`;
  const body = { messages: says(content), max_tokens: 50, stream: true };
  const { promptTokens } = estimateTokens({
    ...body,
    messages: [{ role: "user", content }],
    model: "neutral-3.7-plus",
    include_usage: false,
    n: 1,
  });
  for (let number = 0; number < FAILING; number += 1) {
    const response = await askCluster(cluster, value, number % EDGES, body);
    const text = await response.text();
    assert.match(text, /data: \{"error"/);
    told.requests += 1;
    told.errors += 1;
    told.input += promptTokens;
    told.output += TOKENS_BEFORE_FAILURE;
  }
  return told;
}

/** What is refused is nobody's usage. */
async function refuse(cluster: Cluster, value: string): Promise<void> {
  for (
    const [body, status] of [
      [{ max_tokens: -1 }, 400],
      [{ model: "no-such-model" }, 404],
    ] as const
  ) {
    const response = await askCluster(cluster, value, 0, body);
    await response.body?.cancel();
    assert.equal(response.status, status);
  }
  const unknown = await askCluster(cluster, `${value}x`, 0);
  await unknown.body?.cancel();
  assert.equal(unknown.status, 401);
}

Deno.test("the console shows exactly what was used", async () => {
  await using cluster = await startCluster({
    edges: EDGES,
    env: { SIMULATOR_TOKENS_PER_SECOND: "2000" },
  });
  const browser = await openConsole(cluster);
  const make = async (description: string) =>
    JSON.parse(
      await cluster.keys("create", `--description=${description}`, "--json"),
    );
  const [one, two] = [await make("one"), await make("two")];
  const ofOne = sum(
    await complete(cluster, one.key),
    await fail(cluster, one.key),
  );
  const ofTwo = await complete(cluster, two.key);
  await refuse(cluster, one.key);
  const ofAll = sum(ofOne, ofTwo);
  await waitFor(
    async () =>
      (await shown(browser, "/usage?range=24h")).requests >= ofAll.requests,
    { what: "all settlements" },
  );
  for (const range of ["24h", "30d"]) {
    const at = (path: string) => shown(browser, `${path}?range=${range}`);
    assert.deepEqual(await at("/usage"), ofAll);
    assert.deepEqual(await at(`/keys/${one.id}`), ofOne);
    assert.deepEqual(await at(`/keys/${two.id}`), ofTwo);
  }
});
