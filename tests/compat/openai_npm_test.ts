// Promise: an unmodified OpenAI SDK works against the gateway when its base URL
// is changed and nothing else. Runs the official npm package against a gateway, and,
// with its default retries, through a restart of Redis.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { startTcpProxy } from "../support/servers/tcp_proxy.ts";
import { sleep, until } from "../support/wait_for.ts";
import {
  checkSdk,
  type ModelServerTraits,
  says,
  WEATHER_TOOL,
} from "./sdk_checks.ts";

const SIMULATOR: ModelServerTraits = {
  name: "the simulator",
  dialect: "openai",
  isModel: true,
  tools: "calls",
  refused: {
    content: "[simulator: error 429]",
    status: 429,
    code: "rate_limit_exceeded",
  },
};
const CALLS = 10;
const PACE_MS = 30;
const CALL = { ...says("ping"), max_tokens: 16 };
const PING = { ...says("ping"), max_tokens: 1 };
const PLACE = {
  type: "object",
  properties: {
    city: { type: "string" },
    population: { type: "integer", minimum: 0 },
  },
  required: ["city", "population"],
  additionalProperties: false,
};

/** A gateway and the package's clients for it. */
interface Sdk {
  gateway: LaunchedGateway;
  /** A client with this key. */
  sdkOf: (apiKey: string, maxRetries?: number) => OpenAI;
  /** The chats of a client whose key may do everything. */
  completions: OpenAI["chat"]["completions"];
}

Deno.test("the official openai package for JavaScript", async (t) => {
  await using gateway = await startGateway("launched", { workers: 2 });
  const sdkOf = (apiKey: string, maxRetries = 2) =>
    new OpenAI({ baseURL: gateway.baseUrl(), apiKey, maxRetries });
  const client = sdkOf(gateway.state.api_key);
  const { completions } = client.chat;
  const sdk: Sdk = { gateway, sdkOf, completions };

  await checkSdk(t, client, SIMULATOR);

  await t.step(
    "runTools calls the function and ends with text",
    () => runsTools(sdk),
  );

  await t.step("parse with a JSON schema", () => parsesSchema(sdk));

  await t.step("each error class", () => raisesErrors(sdk));

  await t.step(
    "a 429 raises RateLimitError or is ridden out",
    () => meetsLimit(sdk),
  );

  await t.step("an error in mid-stream is raised", () => raisesInStream(sdk));
});

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
  const ask = (stream: boolean) => {
    answers.push(say(client, stream).catch((error) => String(error)));
  };
  const askMany = async () => {
    for (let count = 0; count < CALLS; count += 1) {
      ask(count % 2 === 0);
      await sleep(PACE_MS);
    }
  };
  await askMany();
  await redis.kill();
  ask(false);
  ask(true);
  await until(() => statuses.includes(503));
  await redis.restart();
  await askMany();
  assert.deepEqual(new Set(await Promise.all(answers)), new Set(["Hello"]));
  assert.deepEqual(new Set(statuses), new Set([200, 503]));
  await until(async () => await gateway.leases(key) === 0);
});

async function runsTools({ completions }: Sdk) {
  const cities: string[] = [];
  const runner = completions.runTools({
    ...says("What is the weather in Rome? Use get_weather."),
    tools: [{
      type: "function",
      function: {
        ...WEATHER_TOOL.function,
        parse: JSON.parse,
        function: ({ city }: { city: string }) => {
          cities.push(city);
          return "sunny";
        },
      },
    }],
  });
  assert.ok(await runner.finalContent());
  assert.equal(cities.length, 1);
}

async function parsesSchema({ completions }: Sdk) {
  const completion = await completions.parse({
    ...says("Name a city and its country."),
    response_format: {
      type: "json_schema",
      json_schema: { name: "place", strict: true, schema: PLACE },
    },
  });
  const { city, population } = Object(completion.choices[0]?.message.parsed);
  assert.equal(typeof city, "string");
  assert.ok(Number.isInteger(population));
}

async function raisesErrors({ gateway, sdkOf }: Sdk) {
  const created = await gateway.createKey();
  const keyed = sdkOf(created.key);
  const ask = (change: object = {}, sdk = keyed) =>
    sdk.chat.completions.create({ ...PING, ...change });
  const stranger = sdkOf("sk-wrong");
  const failing = says("[simulator: error 500]");
  const impatient = sdkOf(created.key, 0);
  await assert.rejects(ask({}, stranger), OpenAI.AuthenticationError);
  await assert.rejects(ask(failing, impatient), OpenAI.InternalServerError);
  await assert.rejects(ask({ temperature: 3 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    assert.equal(error.code, "decimal_above_max_value");
    assert.match(String(error.requestID), /^req_/);
    return true;
  });
  await assert.rejects(ask({ model: "nope" }), OpenAI.NotFoundError);
  await gateway.keys("disable", created.id);
  await assert.rejects(ask(), OpenAI.PermissionDeniedError);
}

async function meetsLimit({ gateway, sdkOf }: Sdk) {
  const { key } = await gateway.createKey("--concurrency=1");
  const impatient = sdkOf(key, 0).chat.completions;
  const holding = await impatient.create({
    ...says("[simulator: 20 tokens, 20 tokens per second]"),
    stream: true,
  });
  await assert.rejects(impatient.create(PING), OpenAI.RateLimitError);
  const patient = sdkOf(key, 4).chat.completions.create(PING);
  let chunks = 0;
  for await (const _chunk of holding) chunks += 1;
  assert.ok(chunks > 20);
  assert.ok((await patient).choices[0]);
}

async function raisesInStream({ completions }: Sdk) {
  const stream = await completions.create({
    ...says("[simulator: fail after 5 tokens]"),
    stream: true,
  });
  await assert.rejects(async () => {
    for await (const _chunk of stream);
  }, OpenAI.APIError);
}
