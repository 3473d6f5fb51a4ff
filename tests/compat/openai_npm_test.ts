/**
 * Guarantee: an unmodified OpenAI SDK works against the gateway when its base URL
 * is changed and nothing else. Runs the official npm package against a cluster.
 */
import assert from "node:assert/strict";
import OpenAI from "openai";
import { createKey } from "../conformance/context.ts";
import { startCluster } from "../support/cluster.ts";

const MODEL = "neutral-3.7-plus";
const WEATHER_TOOL: OpenAI.ChatCompletionTool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Current weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};
const user = (content: string) => [{ role: "user" as const, content }];

Deno.test("the official openai package for JavaScript", async (t) => {
  await using cluster = await startCluster({ workers: 2 });
  const sdkOf = (apiKey: string, maxRetries = 2) =>
    new OpenAI({ baseURL: cluster.baseUrl(), apiKey, maxRetries });
  const client = sdkOf(cluster.state.api_key);

  await t.step("chat.completions.create", async () => {
    const completion = await client.chat.completions.create({
      model: MODEL,
      messages: user("Say hello."),
      max_tokens: 20,
    });
    assert.equal(completion.object, "chat.completion");
    assert.equal(completion.model, MODEL);
    assert.ok(completion.choices[0]?.message.content);
    assert.match(String(completion._request_id), /^req_[0-9a-f]{32}$/);
    const usage = completion.usage;
    assert.ok(usage);
    assert.equal(
      usage.total_tokens,
      usage.prompt_tokens + usage.completion_tokens,
    );
  });

  await t.step("chat.completions.create with stream", async () => {
    const body = {
      model: MODEL,
      messages: user("Tell me about rivers."),
      seed: 7,
      max_tokens: 60,
    };
    const stream = await client.chat.completions.create({
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
    const whole = await client.chat.completions.create(body);
    assert.equal(content, whole.choices[0]?.message.content);
    assert.deepEqual(usage, whole.usage);
  });

  await t.step(".stream() helper rebuilds the completion", async () => {
    const stream = client.chat.completions.stream({
      model: MODEL,
      messages: user("Tell me a story."),
      n: 2,
      max_tokens: 40,
    });
    const completion = await stream.finalChatCompletion();
    assert.deepEqual(completion.choices.map((choice) => choice.index), [0, 1]);
    for (const choice of completion.choices) {
      assert.ok(choice.message.content);
      assert.equal(choice.message.role, "assistant");
    }
  });

  await t.step(".stream() helper rebuilds tool calls", async () => {
    const stream = client.chat.completions.stream({
      model: MODEL,
      messages: user("What is the weather in Rome?"),
      tools: [WEATHER_TOOL],
      tool_choice: "required",
    });
    const completion = await stream.finalChatCompletion();
    const [choice] = completion.choices;
    assert.equal(choice?.finish_reason, "tool_calls");
    const [call] = choice?.message.tool_calls ?? [];
    assert.ok(call?.type === "function");
    assert.equal(call.function.name, "get_weather");
    assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
  });

  await t.step("tools without stream, and their result", async () => {
    const messages: OpenAI.ChatCompletionMessageParam[] = user(
      "Weather in Rome?",
    );
    const first = await client.chat.completions.create({
      model: MODEL,
      messages,
      tools: [WEATHER_TOOL],
      tool_choice: { type: "function", function: { name: "get_weather" } },
    });
    const message = first.choices[0]?.message;
    assert.ok(message?.tool_calls?.[0]);
    messages.push(message, {
      role: "tool",
      tool_call_id: message.tool_calls[0].id,
      content: "sunny, 24 degrees",
    });
    const second = await client.chat.completions.create({
      model: MODEL,
      messages,
      tools: [WEATHER_TOOL],
      tool_choice: "none",
    });
    assert.ok(second.choices[0]?.message.content);
  });

  await t.step("runTools calls the function and ends with text", async () => {
    const cities: string[] = [];
    const runner = client.chat.completions.runTools({
      model: MODEL,
      messages: user("What is the weather in Rome? Use get_weather."),
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
          parameters: {
            type: "object",
            properties: { city: { type: "string" } },
            required: ["city"],
          },
        },
      }],
    });
    assert.ok(await runner.finalContent());
    assert.equal(cities.length, 1);
  });

  await t.step("parse with a JSON schema", async () => {
    const completion = await client.chat.completions.parse({
      model: MODEL,
      messages: user("Name a city and its country."),
      response_format: {
        type: "json_schema",
        json_schema: {
          name: "place",
          strict: true,
          schema: {
            type: "object",
            properties: {
              city: { type: "string" },
              population: { type: "integer", minimum: 0 },
            },
            required: ["city", "population"],
            additionalProperties: false,
          },
        },
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
    const stranger = sdkOf("sk-wrong");
    const created = await createKey(cluster);
    const keyed = sdkOf(created.key);
    const ask = (sdk: OpenAI, change: object = {}) =>
      sdk.chat.completions.create({
        model: MODEL,
        messages: user("ping"),
        max_tokens: 1,
        ...change,
      });
    await assert.rejects(ask(stranger), OpenAI.AuthenticationError);
    await assert.rejects(
      client.chat.completions.create({
        model: MODEL,
        messages: user("[simulator: error 500]"),
      }, { maxRetries: 0 }),
      OpenAI.InternalServerError,
    );
    await assert.rejects(ask(keyed, { temperature: 3 }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.param, "temperature");
      assert.equal(error.code, "decimal_above_max_value");
      assert.match(String(error.requestID), /^req_/);
      return true;
    });
    await assert.rejects(ask(keyed, { model: "nope" }), OpenAI.NotFoundError);
    await ask(keyed);
    await cluster.keys("disable", created.id);
    await assert.rejects(ask(keyed), OpenAI.PermissionDeniedError);
    await cluster.keys("enable", created.id);
    await ask(keyed);
    await cluster.keys("delete", created.id);
    await assert.rejects(ask(keyed), OpenAI.AuthenticationError);
  });

  await t.step("a 429 raises RateLimitError or is ridden out", async () => {
    const created = await createKey(cluster, "--concurrency=1");
    const impatient = sdkOf(created.key, 0);
    const holding = await impatient.chat.completions.create({
      model: MODEL,
      messages: user(
        "[simulator: 20 tokens] [simulator: 20 tokens per second]",
      ),
      stream: true,
    });
    const ask = (sdk: OpenAI) =>
      sdk.chat.completions.create({
        model: MODEL,
        messages: user("ping"),
        max_tokens: 1,
      });
    await assert.rejects(ask(impatient), OpenAI.RateLimitError);
    const patient = ask(sdkOf(created.key, 4));
    let chunks = 0;
    for await (const _chunk of holding) chunks += 1;
    assert.ok(chunks > 20);
    assert.ok((await patient).choices[0]);
  });

  await t.step("an error in mid-stream is raised", async () => {
    const stream = await client.chat.completions.create({
      model: MODEL,
      messages: user("[simulator: fail after 5 tokens]"),
      stream: true,
    });
    await assert.rejects(async () => {
      for await (const _chunk of stream);
    }, OpenAI.APIError);
  });
});
