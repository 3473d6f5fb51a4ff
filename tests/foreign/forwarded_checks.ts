/**
 * What a model server of another maker must show behind the gateway on the endpoints
 * that are forwarded: answers whole and as events, tokens charged as it states them,
 * and that it stops for a client who leaves.
 */
import assert from "node:assert/strict";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { until } from "../support/wait_for.ts";

/** An endpoint that is forwarded. */
export type Endpoint = "messages" | "responses" | "completions" | "embeddings";

/** The names under which {@link forwardedModels} lists one model. */
const TALK = "talk";
const EMBED = "embed";
const DISCOVERED = "found/";
/** Long enough for a client to leave in the middle. */
const LONG_TOKENS = 400;

const HELLO = [{ role: "user", content: "Say hello." }];
const CALLS = {
  messages: { model: TALK, max_tokens: 12, messages: HELLO },
  responses: { model: TALK, max_output_tokens: 12, input: "Say hello." },
  completions: { model: TALK, max_tokens: 12, prompt: "Once upon a time" },
  embeddings: { model: EMBED, input: ["one", "two words"] },
};
const BOUNDS = {
  messages: "max_tokens",
  responses: "max_output_tokens",
  completions: "max_tokens",
};
/** What the last event of a whole stream says. */
const ENDS = {
  messages: /message_stop/,
  responses: /response\.(completed|incomplete)/,
  completions: /\[DONE\]/,
};

/** A models file with one model as it is discovered, and as two of other kinds. */
export function forwardedModels(
  { baseUrl, model, dialect }: {
    baseUrl: string;
    model: string;
    dialect: string;
  },
): string {
  const address = { type: "openai", base_url: baseUrl };
  const server = { ...address, dialect };
  return JSON.stringify({
    models: [
      { id: TALK, backends: [{ ...server, model }] },
      { id: EMBED, kind: "embedding", backends: [{ ...address, model }] },
    ],
    servers: [{
      ...server,
      name: "server",
      discover: { prefix: DISCOVERED, every_seconds: 60 },
    }],
  });
}

/** Checks these endpoints of a server behind the gateway, each as a step. */
export async function checkForwarded(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
  { key, endpoints }: { key: string; endpoints: readonly Endpoint[] },
): Promise<void> {
  const send = (path: string, body?: object, signal?: AbortSignal) =>
    fetch(`${gateway.baseUrl()}/${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
      },
      ...body && { body: JSON.stringify(body) },
      signal: signal ?? null,
    });
  await t.step("models: each of the server under its own name", async () => {
    const { data } = await (await send("models")).json() as {
      data: { id: string }[];
    };
    const found = data.filter(({ id }) => id.startsWith(DISCOVERED));
    assert.ok(found.length > 0, JSON.stringify(data));
  });
  for (const endpoint of endpoints) {
    await t.step(`${endpoint}: whole, charged as stated`, async () => {
      const before = await charged(gateway, endpoint);
      const answer = await send(endpoint, CALLS[endpoint]);
      const text = await answer.text();
      assert.equal(answer.status, 200, text);
      const { usage } = JSON.parse(text);
      assert.ok(tokensOf(usage) > 0, text);
      await until(async () =>
        await charged(gateway, endpoint) === before + tokensOf(usage)
      );
    });
    if (endpoint === "embeddings") continue;
    await t.step(`${endpoint}: as events, to the end`, async () => {
      const before = await charged(gateway, endpoint);
      const answer = await send(endpoint, { ...CALLS[endpoint], stream: true });
      const text = await answer.text();
      assert.equal(answer.status, 200, text);
      assert.match(text.trim().split("\n\n").at(-1) ?? "", ENDS[endpoint]);
      await until(async () => await charged(gateway, endpoint) > before);
    });
    await t.step(`${endpoint}: a client who leaves frees it`, async () => {
      const controller = new AbortController();
      const answer = await send(endpoint, {
        ...CALLS[endpoint],
        [BOUNDS[endpoint]]: LONG_TOKENS,
        stream: true,
      }, controller.signal);
      assert.equal(answer.status, 200);
      await answer.body?.getReader().read();
      controller.abort();
      await gateway.runs("chat-worker", 0);
      const next = await send(endpoint, CALLS[endpoint]);
      assert.equal(next.status, 200, await next.text());
    });
  }
}

/** The tokens in the usage of any dialect. */
function tokensOf(usage: Record<string, number>): number {
  const { total_tokens: total, input_tokens = 0, output_tokens = 0 } = usage;
  return total ?? input_tokens + output_tokens;
}

/** What the requests of an endpoint were charged so far, by the edge's metrics. */
async function charged(
  gateway: LaunchedGateway,
  endpoint: Endpoint,
): Promise<number> {
  const [url] = gateway.state.ops_urls["edge-auth"] ?? [];
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return metrics.split("\n")
    .filter((line) =>
      line.startsWith("gateway_tokens_total{") &&
      line.includes(`endpoint="${endpoint}"`)
    )
    .map((line) => Number(line.split(" ").at(-1)))
    .reduce((sum, tokens) => sum + tokens, 0);
}
