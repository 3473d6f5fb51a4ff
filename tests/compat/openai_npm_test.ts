// Promise: an unmodified OpenAI SDK works against the gateway when its base URL
// is changed and nothing else. Runs the official npm package against a cluster.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { startCluster } from "../support/cluster.ts";
import type { ModelServerTraits } from "./sdk_checks.ts";
import { checkSdk, says, WEATHER_TOOL } from "./sdk_checks.ts";

const SIMULATOR: ModelServerTraits = {
  ...{ name: "the simulator", dialect: "openai", isModel: true },
  tools: "calls",
  refused: {
    ...{ content: "[simulator: error 429]", status: 429 },
    code: "rate_limit_exceeded",
  },
};
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

Deno.test("the official openai package for JavaScript", async (t) => {
  await using cluster = await startCluster({ workers: 2 });
  const sdkOf = (apiKey: string, maxRetries = 2) =>
    new OpenAI({ baseURL: cluster.baseUrl(), apiKey, maxRetries });
  const client = sdkOf(cluster.state.api_key);
  const { completions } = client.chat;

  await checkSdk(t, client, SIMULATOR);

  await t.step("runTools calls the function and ends with text", async () => {
    const cities: string[] = [];
    const runner = completions.runTools({
      ...says("What is the weather in Rome? Use get_weather."),
      tools: [{
        type: "function",
        function: {
          ...{ ...WEATHER_TOOL.function, parse: JSON.parse },
          function: ({ city }: { city: string }) => {
            cities.push(city);
            return "sunny";
          },
        },
      }],
    });
    assert.ok(await runner.finalContent());
    assert.equal(cities.length, 1);
  });

  await t.step("parse with a JSON schema", async () => {
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
  });

  await t.step("each error class", async () => {
    const created = await cluster.createKey();
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
    await cluster.keys("disable", created.id);
    await assert.rejects(ask(), OpenAI.PermissionDeniedError);
  });

  await t.step("a 429 raises RateLimitError or is ridden out", async () => {
    const { key } = await cluster.createKey("--concurrency=1");
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
  });

  await t.step("an error in mid-stream is raised", async () => {
    const stream = await completions.create({
      ...says("[simulator: fail after 5 tokens]"),
      stream: true,
    });
    await assert.rejects(async () => {
      for await (const _chunk of stream);
    }, OpenAI.APIError);
  });
});
