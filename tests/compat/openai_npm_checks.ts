// Promise: an unmodified OpenAI SDK works against the gateway when its base URL
// is changed and nothing else. The official npm package in front of a gateway.
import assert from "node:assert/strict";
import OpenAI from "openai";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
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

/** Calls this gateway with the package. */
export async function checkPackage(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
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
}

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
