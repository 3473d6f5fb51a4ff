// Promise: a program that uses the official OpenAI SDK as it comes, with its
// default retries, does not notice a limit of a second, nor a restart of Redis:
// no error reaches it, whether it streams or not, through a front that sends its
// connections to one edge and the other in turn.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { limiterKey } from "@gateway/shared/keys/record";
import { readState, writeState } from "../support/admission_fixture.ts";
import type { TestKey } from "../support/gated_cluster.ts";
import { startGatedCluster, statusOf } from "../support/gated_cluster.ts";
import { startTcpProxy } from "../support/tcp_proxy.ts";
import { sleep, until } from "../support/wait_for.ts";

const MINUTE_MS = 60_000;
const CALLS = 10;
const PACE_MS = 30;
/** What a program is told to wait at one request per second, less than what a timer may miss. */
const LIMIT_WAIT_MS = 900;
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

Deno.test("the official SDK rides out a limit and a restart of Redis", async (t) => {
  await using cluster = await startGatedCluster({
    edges: 2,
    redisConfig: ["appendonly yes", "appendfsync always"],
  });
  const { edges, world } = cluster;
  const ports = edges.map(({ baseUrl }) => Number(new URL(baseUrl).port));
  /** Connections that each edge was given, in turn. */
  const given = [0, 0];
  let turn = 0;
  await using front = startTcpProxy(() => {
    const index = turn++ % ports.length;
    given[index] = (given[index] ?? 0) + 1;
    return ports[index] ?? 0;
  });
  // A connection for each request, so that both edges get some.
  using http = Deno.createHttpClient({ poolMaxIdlePerHost: 0 });
  /** The SDK as it comes; `statuses` is what it saw and kept to itself. */
  const sdkFor = ({ value }: TestKey) => {
    const statuses: number[] = [];
    const client = new OpenAI({
      baseURL: `http://${front.server}/v1`,
      apiKey: value,
      fetch: async (...[input, init]: Parameters<typeof fetch>) => {
        const response = await fetch(input, { ...init, client: http });
        statuses.push(response.status);
        return response;
      },
    });
    return { client, statuses };
  };
  /** Leaves nothing of the key's minute. */
  const useUp = async (key: TestKey) => {
    assert.equal(await statusOf(cluster.ask(key)), 200);
    const state = await readState(world, limiterKey(key)) ?? assert.fail();
    const requestsTatMs = await world.time() + MINUTE_MS;
    await writeState(world, limiterKey(key), { ...state, requestsTatMs });
  };

  for (const stream of [false, true]) {
    const how = stream ? "streaming" : "not streaming";
    await t.step(`one request per second, ${how}`, async () => {
      const key = await cluster.addKey({ limits: { requestsPerMinute: 60 } });
      const { client, statuses } = sdkFor(key);
      let tookMs = 0;
      // A machine that is slow for a second has no limit to wait for.
      do {
        statuses.length = 0;
        const startedAtMs = performance.now();
        await useUp(key);
        assert.equal(await say(client, stream), "Hello");
        tookMs = performance.now() - startedAtMs;
      } while (statuses[0] === 200 && tookMs >= LIMIT_WAIT_MS);
      assert.ok(tookMs >= LIMIT_WAIT_MS, `${tookMs} ms`);
      assert.deepEqual(statuses, [429, 200]);
    });
  }

  await t.step("a restart of Redis", async () => {
    const key = await cluster.addKey();
    const { client, statuses } = sdkFor(key);
    const said: Promise<string>[] = [];
    const call = async () => {
      for (let count = 0; count < CALLS; count += 1) {
        said.push(say(client, count % 2 === 0));
        await sleep(PACE_MS);
      }
    };
    await call();
    await world.redis.kill();
    said.push(say(client, false), say(client, true));
    await until(() => statuses.includes(503));
    await world.redis.restart();
    await call();
    assert.deepEqual(new Set(await Promise.all(said)), new Set(["Hello"]));
    assert.deepEqual(new Set(statuses), new Set([200, 503]));
    await until(async () => await cluster.leases(key) === 0);
  });

  for (const connections of given) assert.ok(connections > 0);
});
