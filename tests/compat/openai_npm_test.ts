/**
 * Guarantee: an unmodified OpenAI SDK works against the gateway when its base URL
 * is changed and nothing else. Runs the official npm package against a cluster.
 */
import assert from "node:assert/strict";
import OpenAI from "openai";
import { createKey } from "../conformance/context.ts";
import { startCluster } from "../support/cluster.ts";

const MODEL = "neutral-3.7-plus";
const WEATHER = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const WEATHER_TOOL: OpenAI.ChatCompletionTool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Current weather of a city",
    parameters: WEATHER,
  },
};
const PLACE = {
  type: "object",
  properties: {
    city: { type: "string" },
    population: { type: "integer", minimum: 0 },
  },
  required: ["city", "population"],
  additionalProperties: false,
};

/** The smallest request with this message. */
const says = (content: string) => ({
  model: MODEL,
  messages: [{ role: "user" as const, content }],
});
const PING = { ...says("ping"), max_tokens: 1 };

Deno.test("the official openai package for JavaScript", async (t) => {
  await using cluster = await startCluster({ workers: 2 });
  const sdkOf = (apiKey: string, maxRetries = 2) =>
    new OpenAI({ baseURL: cluster.baseUrl(), apiKey, maxRetries });
  const client = sdkOf(cluster.state.api_key);
  const { completions } = client.chat;

  await t.step("chat.completions.create", async () => {
    const completion = await completions.create({
      ...says("Say hello."),
      max_tokens: 20,
    });
    assert.equal(completion.object, "chat.completion");
    assert.equal(completion.model, MODEL);
    assert.ok(completion.choices[0]?.message.content);
    assert.match(String(completion._request_id), /^req_[0-9a-f]{32}$/);
    assert.ok(completion.usage?.total_tokens);
  });

  await t.step("chat.completions.create with stream", async () => {
    const body = { ...says("Tell me about rivers."), seed: 7, max_tokens: 60 };
    const stream = await completions.create({
      ...body,
      stream: true,
      stream_options: { include_usage: true },
    });
    let content = "";
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      content += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    const whole = await completions.create(body);
    assert.equal(content, whole.choices[0]?.message.content);
    assert.deepEqual(usage, whole.usage);
  });

  await t.step(".stream() helper rebuilds the completion", async () => {
    const body = { ...says("Tell me a story."), n: 2, max_tokens: 40 };
    const completion = await completions.stream(body).finalChatCompletion();
    assert.deepEqual(completion.choices.map((choice) => choice.index), [0, 1]);
    for (const { message } of completion.choices) {
      assert.ok(message.content);
      assert.equal(message.role, "assistant");
    }
  });

  await t.step(".stream() helper rebuilds tool calls", async () => {
    const stream = completions.stream({
      ...says("What is the weather in Rome?"),
      tools: [WEATHER_TOOL],
      tool_choice: "required",
    });
    const { choices: [choice] } = await stream.finalChatCompletion();
    assert.equal(choice?.finish_reason, "tool_calls");
    const [call] = choice?.message.tool_calls ?? [];
    assert.ok(call?.type === "function");
    assert.equal(call.function.name, "get_weather");
    assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
  });

  await t.step("tools without stream, and their result", async () => {
    const body = { ...says("Weather in Rome?"), tools: [WEATHER_TOOL] };
    const first = await completions.create({
      ...body,
      tool_choice: { type: "function", function: { name: "get_weather" } },
    });
    const message = first.choices[0]?.message;
    const [call] = message?.tool_calls ?? [];
    assert.ok(message && call);
    const second = await completions.create({
      ...body,
      messages: [...body.messages, message, {
        role: "tool",
        tool_call_id: call.id,
        content: "sunny, 24 degrees",
      }],
      tool_choice: "none",
    });
    assert.ok(second.choices[0]?.message.content);
  });

  await t.step("runTools calls the function and ends with text", async () => {
    const cities: string[] = [];
    const runner = completions.runTools({
      ...says("What is the weather in Rome? Use get_weather."),
      tools: [{
        type: "function",
        function: {
          name: "get_weather",
          description: "Current weather of a city",
          parse: JSON.parse,
          function: ({ city }: { city: string }) => {
            cities.push(city);
            return "sunny";
          },
          parameters: WEATHER,
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
    const parsed: unknown = completion.choices[0]?.message.parsed;
    assert.equal(typeof Reflect.get(Object(parsed), "city"), "string");
    assert.ok(Number.isInteger(Reflect.get(Object(parsed), "population")));
  });

  await t.step("models list and retrieve", async () => {
    const ids: string[] = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.deepEqual(ids, [MODEL]);
    const model = await client.models.retrieve(MODEL);
    assert.equal(model.object, "model");
    assert.ok(model.owned_by);
  });

  await t.step("each error class", async () => {
    const created = await createKey(cluster);
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
    const { key } = await createKey(cluster, "--concurrency=1");
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
