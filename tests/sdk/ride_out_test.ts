// Promise: a program that uses the official OpenAI SDK with its default retries does not
// notice a restart of Redis, whether it streams or not, through a front that sends its
// connections to one edge and the other in turn.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { startGatedCluster } from "../support/gated_cluster.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { sleep, until } from "../support/wait_for.ts";

const CALLS = 10;
const PACE_MS = 30;
const BODY = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user" as const, content: "ping" }],
  max_tokens: 16,
};

/** Makes a call and returns what was said. Throws what a program would see. */
async function say(client: OpenAI, stream: boolean): Promise<string> {
  const { completions } = client.chat;
  if (!stream) {
    const answer = await completions.create(BODY);
    return answer.choices[0]?.message.content ?? "";
  }
  let content = "";
  for await (const chunk of await completions.create({ ...BODY, stream })) {
    content += chunk.choices[0]?.delta.content ?? "";
  }
  return content;
}

Deno.test("the official SDK rides out a restart of Redis", async () => {
  const redisConfig = ["appendonly yes", "appendfsync always"];
  await using cluster = await startGatedCluster({ edges: 2, redisConfig });
  const { edges, world: { redis } } = cluster;
  const key = await cluster.addKey();
  const ports = edges.map(({ baseUrl }) => Number(new URL(baseUrl).port));
  let turn = 0;
  await using front = startTcpProxy(() => ports[turn++ % ports.length] ?? 0);
  // A connection for each request, so that both edges get some.
  using http = Deno.createHttpClient({ poolMaxIdlePerHost: 0 });
  /** What the SDK saw and kept to itself. */
  const statuses: number[] = [];
  const client = new OpenAI({
    baseURL: `http://${front.server}/v1`,
    apiKey: key.value,
    fetch: async (...[input, init]: Parameters<typeof fetch>) => {
      const response = await fetch(input, { ...init, client: http });
      statuses.push(response.status);
      return response;
    },
  });
  const said: Promise<string>[] = [];
  const call = async () => {
    for (let count = 0; count < CALLS; count += 1) {
      said.push(say(client, count % 2 === 0));
      await sleep(PACE_MS);
    }
  };
  await call();
  await redis.kill();
  said.push(say(client, false), say(client, true));
  await until(() => statuses.includes(503));
  await redis.restart();
  await call();
  assert.deepEqual(new Set(await Promise.all(said)), new Set(["Hello"]));
  assert.deepEqual(new Set(statuses), new Set([200, 503]));
  await until(async () => await cluster.leases(key) === 0);
});
