/**
 * Guarantee: the gateway works with model servers that nobody here wrote, which
 * show what our own stand-ins cannot. Run by `deno task test:foreign`.
 */
import assert from "node:assert/strict";
import OpenAI from "openai";
import { startCluster } from "../support/cluster.ts";
import { type ForeignSoftware, installedServers } from "./servers.ts";

const MODEL = "neutral-3.7-plus";
const TOOL: OpenAI.ChatCompletionTool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Current weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  },
};
const CHOSEN = {
  type: "function",
  function: { name: "get_weather" },
} as const;
/** A mock counts tokens as it likes; a model's answers vary. */
const QUESTION = "What is the capital of France? Answer in one sentence.";
/** What an answer of 700 tokens takes on a slow machine, at least. */
const LONG_MS = 5_000;

const installed = await installedServers();
if (installed.length === 0) throw new Error("No model server is installed");

for (const software of installed) {
  Deno.test(`the gateway in front of ${software.name}`, async (t) => {
    await using server = await software.start();
    await using cluster = await startCluster({
      env: {
        UPSTREAM_BASE_URL: server.baseUrl,
        UPSTREAM_MODEL: server.model,
        UPSTREAM_DIALECT: software.dialect,
      },
    });
    const client = new OpenAI({
      baseURL: cluster.baseUrl(),
      apiKey: cluster.state.api_key,
      maxRetries: 0,
    });
    for (const [name, check] of Object.entries(CHECKS)) {
      if (!canShow(software, name)) continue;
      await t.step(name, () => check(client, software));
    }
  });
}

/** A mock neither counts nor stops as a model does, and one server refuses tools. */
function canShow({ isModel, tools }: ForeignSoftware, check: string): boolean {
  return (isModel || !OF_MODELS.includes(check)) &&
    (tools === "calls" || check !== TOOLS_STREAMED);
}

const TOOLS_STREAMED = "tools, streamed";
const OF_MODELS = ["max_tokens", "two choices, streamed", "stop"];

type Check = (client: OpenAI, software: ForeignSoftware) => Promise<void>;

const CHECKS: { [name: string]: Check } = {
  async "its own name is not listed"(client) {
    const { data } = await client.models.list();
    assert.deepEqual(data.map(({ id }) => id), [MODEL]);
  },

  async "a whole answer with usage"(client) {
    const answer = await client.chat.completions.create({
      ...ask(QUESTION),
      max_tokens: 30,
      temperature: 0,
    });
    assert.ok(answer.choices[0]?.message.content);
    assert.match(answer.choices[0].finish_reason, /^(stop|length)$/);
    assertUsage(answer.usage, 1);
  },

  async "a stream with usage"(client) {
    const { texts, reasons, usage, chunks } = await stream(client, {
      ...ask(QUESTION),
      max_tokens: 30,
    });
    assert.ok(texts[0]);
    assert.match(reasons[0] ?? "", /^(stop|length)$/);
    assert.ok(chunks > 3, `${chunks} chunks`);
    assertUsage(usage, 1);
  },

  async "max_tokens"(client) {
    const answer = await client.chat.completions.create({
      ...ask("Count to one hundred."),
      max_tokens: 5,
    });
    assert.equal(answer.choices[0]?.finish_reason, "length");
    assert.equal(answer.usage?.completion_tokens, 5);
  },

  async "three choices, whole"(client, { isModel }) {
    const answer = client.chat.completions.create({
      ...ask(QUESTION),
      n: 3,
      max_tokens: 10,
    });
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

  async "two choices, streamed"(client) {
    const { texts, reasons, usage } = await stream(client, {
      ...ask(QUESTION),
      n: 2,
      max_tokens: 10,
    });
    assert.ok(texts[0] && texts[1], JSON.stringify(texts));
    assert.equal(reasons.length, 2);
    assertUsage(usage, 2);
  },

  async "stop"(client) {
    const answer = await client.chat.completions.create({
      ...ask(QUESTION),
      stop: ["a"],
      max_tokens: 60,
      temperature: 0,
    });
    const [choice] = answer.choices;
    assert.equal(choice?.message.content?.includes("a"), false);
    assert.equal(choice?.finish_reason, "stop");
  },

  async "repetition_penalty"(client, { dialect }) {
    const answer = async (penalty: number) => {
      // A field of the specification that OpenAI's package does not know.
      const body = {
        // The small model goes on with this text unless repeating is penalized.
        ...ask(`Repeat: ${"tree ".repeat(10)}`),
        max_tokens: 40,
        temperature: 0,
        seed: 1,
        repetition_penalty: penalty,
      };
      const { choices } = await client.chat.completions.create(body);
      return choices[0]?.message.content;
    };
    const [without, much] = [await answer(1), await answer(1.8)];
    if (dialect === "llama.cpp") assert.notEqual(without, much);
    else assert.ok(without && much);
  },

  async "the roles system and developer"(client) {
    for (const role of ["system", "developer"] as const) {
      const answer = await client.chat.completions.create({
        model: MODEL,
        messages: [
          { role, content: "You are brief." },
          { role: "user", content: QUESTION },
        ],
        max_tokens: 10,
      });
      assert.ok(answer.choices[0]?.message.content, role);
    }
  },

  async "tools, and a history with them"(client, { tools }) {
    const body = {
      ...ask("How is the weather in Rome?"),
      tools: [TOOL],
      tool_choice: CHOSEN,
      max_tokens: 60,
    };
    if (tools === "refuses") {
      await assert.rejects(client.chat.completions.create(body), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError, String(error));
        assert.match(error.message, /tools/);
        return true;
      });
    } else {
      const answer = await client.chat.completions.create(body);
      const [choice] = answer.choices;
      const call = choice?.message.tool_calls?.[0];
      assert.ok(choice && call?.type === "function");
      assert.equal(choice.finish_reason, "tool_calls");
      assert.equal(call.function.name, "get_weather");
      JSON.parse(call.function.arguments);
    }
    const after = await client.chat.completions.create({
      model: MODEL,
      messages: [
        { role: "user", content: "How is the weather in Rome?" },
        {
          role: "assistant",
          content: null,
          tool_calls: [{
            id: "call_1",
            type: "function",
            function: { name: "get_weather", arguments: '{"city":"Rome"}' },
          }],
        },
        { role: "tool", tool_call_id: "call_1", content: "sunny" },
      ],
      max_tokens: 20,
    });
    assert.equal(typeof after.choices[0]?.message.content, "string");
  },

  async [TOOLS_STREAMED](client) {
    const runner = client.chat.completions.stream({
      ...ask("How is the weather in Rome?"),
      tools: [TOOL],
      tool_choice: CHOSEN,
      max_tokens: 60,
    });
    const { choices } = await runner.finalChatCompletion();
    const call = choices[0]?.message.tool_calls?.[0];
    assert.ok(call?.type === "function");
    JSON.parse(call.function.arguments);
  },

  async "a refusal and its reason, without files of the server"(
    client,
    { refused, tools },
  ) {
    const { status, code, content } = refused;
    const body = tools === "refuses"
      ? { ...ask("Hi"), tools: [TOOL] }
      : ask(content);
    await assert.rejects(
      client.chat.completions.create(body),
      (error) => {
        assert.ok(error instanceof OpenAI.APIError, String(error));
        assert.equal(error.status, status);
        assert.equal(error.code, code);
        assert.doesNotMatch(error.message, /\/\w+\/|\.py|\.js|Traceback/);
        return true;
      },
    );
  },

  async "a caller who leaves frees the server"(client) {
    const endless = await client.chat.completions.create({
      ...ask("Write a very long story about a river. Go on and on."),
      max_tokens: 700,
      stream: true,
    });
    for await (const chunk of endless) {
      if (chunk.choices[0]?.delta.content) break;
    }
    endless.controller.abort();
    const startedAtMs = performance.now();
    await client.chat.completions.create({ ...ask("Hi"), max_tokens: 1 });
    assert.ok(performance.now() - startedAtMs < LONG_MS);
  },
};

function ask(content: string) {
  return { model: MODEL, messages: [{ role: "user" as const, content }] };
}

interface Streamed {
  /** By choice. */
  texts: string[];
  reasons: string[];
  usage: OpenAI.CompletionUsage | null | undefined;
  chunks: number;
}

async function stream(
  client: OpenAI,
  body: OpenAI.ChatCompletionCreateParamsNonStreaming,
): Promise<Streamed> {
  const result: Streamed = { texts: [], reasons: [], usage: null, chunks: 0 };
  const answer = await client.chat.completions.create({
    ...body,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const chunk of answer) {
    result.chunks++;
    result.usage = chunk.usage ?? result.usage;
    for (const { index, delta, finish_reason: reason } of chunk.choices) {
      result.texts[index] = (result.texts[index] ?? "") + (delta.content ?? "");
      if (reason !== null) result.reasons[index] = reason;
    }
  }
  return result;
}

function assertUsage(
  usage: OpenAI.CompletionUsage | null | undefined,
  tokensMin: number,
): void {
  assert.ok(usage);
  assert.ok(usage.prompt_tokens > 0);
  assert.ok(usage.completion_tokens >= tokensMin);
  assert.equal(
    usage.total_tokens,
    usage.prompt_tokens + usage.completion_tokens,
  );
}
