// Promise: a program with an unmodified OpenAI SDK and its default retries notices no
// restart of Redis. What the SDK does with a gateway that runs: openai_npm_checks.ts.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { startGateway } from "../support/gateway/gateway.ts";
import { startTcpProxy } from "../support/servers/tcp_proxy.ts";
import { sleep, until } from "../support/wait_for.ts";
import { says } from "./sdk_checks.ts";

const CALLS = 10;
const PACE_MS = 30;
const CALL = { ...says("ping"), max_tokens: 16 };

/** Makes a call and returns the text of the answer. Throws what a program would see. */
async function say(client: OpenAI, stream: boolean): Promise<string> {
  const { completions } = client.chat;
  if (!stream) {
    const answer = await completions.create(CALL);
    return answer.choices[0]?.message.content ?? "";
  }
  let content = "";
  for await (const chunk of await completions.create({ ...CALL, stream })) {
    content += chunk.choices[0]?.delta.content ?? "";
  }
  return content;
}

Deno.test("a program behind a proxy that takes two edges in turn notices no restart of Redis", async () => {
  const redisConfig = ["appendonly yes", "appendfsync always"];
  await using gateway = await startGateway("limited", {
    edges: 2,
    redisConfig,
  });
  const { edges, world: { redis } } = gateway;
  const key = await gateway.addKey();
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
    // Its usual two are enough for a second, in which a busy machine starts no Redis.
    maxRetries: 6,
    fetch: async (...[input, init]: Parameters<typeof fetch>) => {
      const response = await fetch(input, { ...init, client: http });
      statuses.push(response.status);
      return response;
    },
  });
  const answers: Promise<string>[] = [];
  /** Asks for a stream or a whole answer; an error is an answer too. */
  const ask = ({ stream }: { stream: boolean }) => {
    answers.push(say(client, stream).catch((error) => String(error)));
  };
  const askMany = async () => {
    for (let count = 0; count < CALLS; count += 1) {
      ask({ stream: count % 2 === 0 });
      await sleep(PACE_MS);
    }
  };
  await askMany();
  await redis.kill();
  ask({ stream: false });
  ask({ stream: true });
  await until(() => statuses.includes(503));
  await redis.restart();
  await askMany();
  assert.deepEqual(new Set(await Promise.all(answers)), new Set(["Hello"]));
  assert.deepEqual(new Set(statuses), new Set([200, 503]));
  await until(async () => await gateway.leases(key) === 0);
});
