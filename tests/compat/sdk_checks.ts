// What a program can do with the official SDK through the gateway, whatever model
// server is behind it: the simulator in `openai_npm_checks.ts`, those that nobody here
// wrote in `tests/foreign`.
import assert from "node:assert/strict";
import OpenAI from "openai";
import type { DialectName } from "@gateway/shared/models/dialects";

/** What is expected of a model server. */
export interface ModelServerTraits {
  name: string;
  dialect: DialectName;
  /** It heeds `stop`, `max_tokens` and penalties; a mock does not. */
  isModel: boolean;
  /** What it does with `tools`. */
  tools: "calls" | "refuses";
  /** A request that it refuses, and the refusal that callers get. */
  refused: { content: string; status: number; code: string };
}

const MODEL = "neutral-3.7-plus";
/** A function that a model may call, with one required argument, `city`. */
export const WEATHER_TOOL = {
  type: "function" as const,
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
const CHOSEN = { type: "function", function: { name: "get_weather" } } as const;
const WITH_TOOL = {
  tools: [WEATHER_TOOL],
  tool_choice: CHOSEN,
  max_tokens: 60,
};
/** A mock counts tokens as it likes; a model's answers vary. */
const QUESTION = "What is the capital of France? Answer in one sentence.";
const WEATHER = "How is the weather in Rome?";
/** What an answer of 700 tokens takes on a slow machine, at least. */
const LONG_MS = 5_000;

/** The part of a request with one message of the user. */
export function says(content: string) {
  return { model: MODEL, messages: [{ role: "user" as const, content }] };
}

type Body = OpenAI.ChatCompletionCreateParamsNonStreaming;
type Checks = {
  [name: string]: (client: OpenAI, traits: ModelServerTraits) => Promise<void>;
};

const ask = (client: OpenAI, content: string, more: Partial<Body> = {}) =>
  client.chat.completions.create({ ...says(content), ...more });

/** Checks all that OpenAI's client does with a chat, each part in a step of its own. */
export async function checkSdk(
  t: Deno.TestContext,
  client: OpenAI,
  traits: ModelServerTraits,
): Promise<void> {
  const checks = {
    ...CHECKS,
    ...traits.isModel && OF_MODELS,
    ...traits.tools === "calls" && OF_TOOLS,
  };
  for (const [name, check] of Object.entries(checks)) {
    await t.step(name, () => check(client, traits));
  }
}

async function stream(client: OpenAI, body: Body) {
  let chunks = 0;
  const runner = client.chat.completions.stream({
    ...body,
    stream: true,
    stream_options: { include_usage: true },
  }).on("chunk", () => chunks++);
  const { choices, usage } = await runner.finalChatCompletion();
  return { choices, usage, chunks };
}

function assertUsage(
  usage: OpenAI.CompletionUsage | null | undefined,
  tokensMin: number,
): void {
  assert.ok(usage);
  assert.ok(usage.prompt_tokens > 0);
  assert.ok(usage.completion_tokens >= tokensMin);
  const sum = usage.prompt_tokens + usage.completion_tokens;
  assert.equal(usage.total_tokens, sum);
}

/** A call of the tool with arguments that can be read. */
function assertToolCall(choice: OpenAI.ChatCompletion.Choice | undefined) {
  const call = choice?.message.tool_calls?.[0];
  assert.ok(choice && call?.type === "function");
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(call.function.name, "get_weather");
  assert.equal(typeof JSON.parse(call.function.arguments), "object");
}

const CHECKS: Checks = {
  async "models: its own name is not listed"(client) {
    const { data } = await client.models.list();
    // The simulator has models of other kinds, too.
    const ids = data.map(({ id }) => id)
      .filter((id) => !id.startsWith("simulated-"));
    assert.deepEqual(ids, [MODEL]);
    const model = await client.models.retrieve(MODEL);
    assert.equal(model.object, "model");
    assert.ok(model.owned_by);
  },

  async "a whole answer with usage"(client) {
    const bounds = { max_tokens: 30, temperature: 0 };
    const answer = await ask(client, QUESTION, bounds);
    assert.equal(answer.model, MODEL);
    assert.match(String(answer._request_id), /^req_[0-9a-f]{32}$/);
    assert.ok(answer.choices[0]?.message.content);
    assert.match(answer.choices[0].finish_reason, /^(stop|length)$/);
    assertUsage(answer.usage, 1);
  },

  async "a stream with usage"(client) {
    const body = { ...says(QUESTION), max_tokens: 30 };
    const { choices: [choice], usage, chunks } = await stream(client, body);
    assert.ok(choice?.message.content);
    assert.match(choice.finish_reason, /^(stop|length)$/);
    assert.ok(chunks > 3, `${chunks} chunks`);
    assertUsage(usage, 1);
  },

  async "three choices, whole"(client, { isModel }) {
    const answer = ask(client, QUESTION, { n: 3, max_tokens: 10 });
    if (!isModel) {
      // It is spoken to as OpenAI, and has one choice to give.
      await assert.rejects(answer, { status: 400, param: "n" });
      return;
    }
    const { choices, usage } = await answer;
    assert.deepEqual(choices.map(({ index }) => index), [0, 1, 2]);
    for (const { message } of choices) assert.ok(message.content);
    assertUsage(usage, 3);
  },

  async "repetition_penalty"(client, { dialect }) {
    const answer = async (penalty: number) => {
      // The small model goes on with this text unless repeating is penalized.
      const content = `Repeat: ${"tree ".repeat(10)}`;
      const bounds = { max_tokens: 40, temperature: 0, seed: 1 };
      // A field of the specification that OpenAI's package does not know.
      const change = { ...bounds, repetition_penalty: penalty };
      return (await ask(client, content, change)).choices[0]?.message.content;
    };
    const [without, much] = [await answer(1), await answer(1.8)];
    if (dialect === "llama.cpp") assert.notEqual(without, much);
    else assert.ok(without && much);
  },

  async "the roles system and developer"(client) {
    for (const role of ["system", "developer"] as const) {
      const brief = { role, content: "You are brief." };
      const messages = [brief, ...says(QUESTION).messages];
      const answer = await ask(client, "", { messages, max_tokens: 10 });
      assert.ok(answer.choices[0]?.message.content, role);
    }
  },

  async "tools, and a history with them"(client, { tools }) {
    const answer = ask(client, WEATHER, WITH_TOOL);
    if (tools === "calls") assertToolCall((await answer).choices[0]);
    else {
      await assert.rejects(answer, (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError, String(error));
        assert.match(error.message, /tools/);
        return true;
      });
    }
    const called = { name: "get_weather", arguments: '{"city":"Rome"}' };
    const call = { id: "call_1", type: "function", function: called } as const;
    const messages: Body["messages"] = [
      ...says(WEATHER).messages,
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: "sunny" },
    ];
    const after = await ask(client, "", { messages, max_tokens: 20 });
    assert.equal(typeof after.choices[0]?.message.content, "string");
  },

  async "a refusal and its reason, without files of the server"(
    client,
    { refused, tools },
  ) {
    const { status, code, content } = refused;
    const body = tools === "refuses"
      ? { ...says("Hi"), tools: [WEATHER_TOOL] }
      : says(content);
    const options = { maxRetries: 0 };
    const answer = client.chat.completions.create(body, options);
    await assert.rejects(answer, (error) => {
      assert.ok(error instanceof OpenAI.APIError, String(error));
      assert.equal(error.status, status);
      assert.equal(error.code, code);
      assert.doesNotMatch(error.message, /\/\w+\/|\.py|\.js|Traceback/);
      return true;
    });
  },

  async "a caller who leaves frees the server"(client) {
    const endless = await client.chat.completions.create({
      ...says("Write a very long story about a river. Go on and on."),
      max_tokens: 700,
      stream: true,
    });
    for await (const chunk of endless) {
      if (chunk.choices[0]?.delta.content) break;
    }
    endless.controller.abort();
    const startedAtMs = performance.now();
    await ask(client, "Hi", { max_tokens: 1 });
    assert.ok(performance.now() - startedAtMs < LONG_MS);
  },
};

/** A mock neither counts nor stops as a model does. */
const OF_MODELS: Checks = {
  async "max_tokens"(client) {
    const bounds = { max_tokens: 5 };
    const answer = await ask(client, "Count to one hundred.", bounds);
    assert.equal(answer.choices[0]?.finish_reason, "length");
    assert.equal(answer.usage?.completion_tokens, 5);
  },

  async "two choices, streamed"(client) {
    const body = { ...says(QUESTION), n: 2, max_tokens: 10 };
    const { choices, usage } = await stream(client, body);
    assert.deepEqual(choices.map(({ index }) => index), [0, 1]);
    for (const { message } of choices) assert.ok(message.content);
    assertUsage(usage, 2);
  },

  async "stop"(client) {
    const change = { max_tokens: 60, temperature: 0, stop: ["a"] };
    const { choices: [choice] } = await ask(client, QUESTION, change);
    assert.equal(choice?.message.content?.includes("a"), false);
    assert.equal(choice?.finish_reason, "stop");
  },
};

const OF_TOOLS: Checks = {
  async "tools, streamed"(client) {
    const { choices } = await stream(client, {
      ...says(WEATHER),
      ...WITH_TOOL,
    });
    assertToolCall(choices[0]);
  },
};
