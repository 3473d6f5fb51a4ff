/**
 * Guarantee: the simulator honours every field of the specification, whatever
 * others stand beside it. Random valid requests, streamed and whole.
 */
import assert from "node:assert/strict";
import { defaultCatalog } from "@gateway/shared/models/catalog_file";
import type {
  ChatChoice,
  ChatCompletion,
  ChatRequest,
  Logprobs,
  ResponseMessage,
} from "@gateway/shared/openai/chat";
import { parseChatRequest } from "@gateway/shared/openai/request";
import {
  chatCompletionChunkSchema,
  chatCompletionSchema,
} from "@gateway/shared/openai/schemas";
import type OpenAI from "openai";
import { ChatCompletionStream } from "openai/lib/ChatCompletionStream";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { seedsOr } from "../../../../tests/support/seeds.ts";
import { createAnswerEncoder } from "../../answer.ts";
import { PARAMETERS, randomBody } from "./random_request_fixture.ts";
import { WorkBudget } from "./schema/budget.ts";
import { conforms } from "./schema/conforms.ts";
import type { Json } from "./schema/json.ts";
import { callOf, simulatorOf } from "./test_support.ts";

type ParsedCall = OpenAI.Chat.Completions.ChatCompletionMessageToolCall;

const REQUESTS = 200;
/** What answers there are, each of which must come. */
const KINDS = [
  "json",
  "length",
  "several calls",
  "stop",
  "thinking",
  "tool_calls",
];
const SCHEMA_WORK = 1e6;
const IDENTITY = {
  id: "chatcmpl-1",
  created: 1_767_225_600,
  model: "neutral-3.7-plus",
  fingerprint: "simulator",
};

/** The lines that the worker makes of the answer. */
async function linesOf(request: ChatRequest): Promise<string[]> {
  const encoder = createAnswerEncoder(request, IDENTITY);
  let text = "";
  for await (const events of simulatorOf().complete(request, callOf())) {
    text += encoder.push(events);
  }
  text += encoder.finish();
  return text.split("\n").slice(0, -1);
}

async function wholeOf(request: ChatRequest): Promise<ChatCompletion> {
  const lines = await linesOf({ ...request, stream: false });
  assert.equal(lines.length, 1);
  return chatCompletionSchema.parse(JSON.parse(lines[0] ?? ""));
}

/** The streamed answer as OpenAI's package puts it together, and its log probabilities. */
async function streamedOf(request: ChatRequest) {
  const lines = await linesOf({
    ...request,
    stream: true,
    include_usage: true,
  });
  let reasoning = "";
  const chunks = lines.map((line) =>
    chatCompletionChunkSchema.parse(JSON.parse(line))
  );
  for (const { choices: [choice] } of chunks) {
    if (choice?.index === 0) reasoning += choice.delta.reasoning_content ?? "";
  }
  const bytes = new Blob([lines.map((line) => `${line}\n`).join("")]).stream();
  const completion = await ChatCompletionStream.fromReadableStream(bytes)
    .finalChatCompletion();
  return { completion, reasoning };
}

for (const seed of seedsOr([1, 2])) {
  Deno.test(`${REQUESTS} random requests get what each of their fields says (TEST_SEED=${seed})`, async () => {
    const random = seededRandom(seed);
    const catalog = defaultCatalog();
    const seen = new Set<string>();
    for (let number = 0; number < REQUESTS; number += 1) {
      const body = randomBody(random);
      const request = parseChatRequest(body, catalog);
      try {
        const whole = await wholeOf(request);
        checkUsage(request, whole);
        assert.equal(whole.choices.length, request.n);
        for (const [index, choice] of whole.choices.entries()) {
          assert.equal(choice.index, index);
          checkChoice(request, choice, seen);
        }
        await checkRepeats(request, whole);
      } catch (error) {
        throw new Error(`Request ${number}: ${JSON.stringify(body)}`, {
          cause: error,
        });
      }
    }
    // A property of what never comes is none.
    assert.deepEqual([...seen].sort(), KINDS);
  });
}

/** The same once more, and streamed: all of it, where chance has no part. */
async function checkRepeats(
  request: ChatRequest,
  whole: ChatCompletion,
): Promise<void> {
  const isFixed = request.seed !== undefined || request.temperature === 0;
  const { completion, reasoning } = await streamedOf(request);
  assert.equal(completion.choices.length, request.n);
  if (!isFixed) return;
  assert.deepEqual(await wholeOf(request), whole);
  assert.deepEqual(completion.usage, whole.usage);
  assert.equal(reasoning, whole.choices[0]?.message.reasoning_content ?? "");
  for (const [index, choice] of whole.choices.entries()) {
    const other = completion.choices[index];
    assert.equal(other?.finish_reason, choice.finish_reason);
    assert.equal(other.message.content ?? "", choice.message.content ?? "");
    assert.deepEqual(
      callsOf(other.message.tool_calls),
      callsOf(choice.message.tool_calls),
    );
    assert.deepEqual(
      other.logprobs?.content ?? [],
      contentOf(choice.logprobs),
    );
  }
}

/** Calls without what OpenAI's package adds to them. */
function callsOf(
  calls: ResponseMessage["tool_calls"] | ParsedCall[] = [],
): string[] {
  return calls.map((call) =>
    call.type === "function"
      ? `${call.id} ${call.function.name} ${call.function.arguments}`
      : call.type
  );
}

function checkUsage(request: ChatRequest, { usage }: ChatCompletion): void {
  assert.equal(
    usage.total_tokens,
    usage.prompt_tokens + usage.completion_tokens,
  );
  assert.ok(usage.prompt_tokens > 0);
  const most = request.n * (request.max_tokens ?? Infinity);
  assert.ok(usage.completion_tokens <= most, `${usage.completion_tokens}`);
  const thought = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  assert.ok(thought <= usage.completion_tokens);
  if (request.enable_thinking !== true) assert.equal(thought, 0);
  else if (request.thinking_budget !== undefined) {
    assert.ok(thought <= request.n * request.thinking_budget, `${thought}`);
  }
}

function checkChoice(
  request: ChatRequest,
  choice: ChatChoice,
  seen: Set<string>,
): void {
  const { message, finish_reason: reason } = choice;
  seen.add(reason);
  const isThinking = (message.reasoning_content ?? "") !== "";
  if (isThinking) seen.add("thinking");
  assert.ok(!isThinking || request.enable_thinking === true);
  for (const stop of request.stop ?? []) {
    assert.ok(!(message.content ?? "").includes(stop), `stop ${stop}`);
  }
  checkCalls(request, message, reason);
  if ((message.tool_calls ?? []).length > 1) seen.add("several calls");
  checkFormat(request, choice, seen);
  checkLogprobs(request, choice);
}

function checkCalls(
  request: ChatRequest,
  { tool_calls: calls = [] }: ResponseMessage,
  reason: string,
): void {
  const { tools = [], tool_choice: wanted, parallel_tool_calls } = request;
  if (reason === "tool_calls") assert.ok(calls.length > 0);
  if (tools.length === 0 || wanted === "none") assert.equal(calls.length, 0);
  if (parallel_tool_calls === false) assert.ok(calls.length <= 1);
  const mustCall = wanted === "required" || typeof wanted === "object";
  if (mustCall && reason !== "length") assert.ok(calls.length > 0);
  for (const [position, { function: call }] of calls.entries()) {
    assert.ok(tools.some((tool) => tool.function.name === call.name));
    if (typeof wanted === "object") {
      assert.equal(call.name, wanted.function.name);
    }
    // Only the last one can be cut.
    const isWhole = reason !== "length" || position < calls.length - 1;
    if (isWhole) {
      checkSchema(
        call.arguments,
        PARAMETERS[call.name] ?? { type: "object" },
      );
    }
  }
  assert.equal(new Set(calls.map(({ id }) => id)).size, calls.length);
}

function checkFormat(
  { response_format: format, stop = [] }: ChatRequest,
  { message, finish_reason: reason }: ChatChoice,
  seen: Set<string>,
): void {
  if (format === undefined || format.type === "text") return;
  // Cut by a stop text or by its bound it is the beginning of one.
  if (reason !== "stop" || stop.length > 0) return;
  seen.add("json");
  const schema = format.type === "json_schema"
    ? format.json_schema.schema
    : { type: "object" };
  checkSchema(message.content ?? "", schema);
}

function checkSchema(text: string, schema: unknown): void {
  const value: Json = JSON.parse(text);
  assert.ok(
    conforms(value, schema, schema, new WorkBudget(SCHEMA_WORK)),
    text,
  );
}

function checkLogprobs(request: ChatRequest, choice: ChatChoice): void {
  const { logprobs, top_logprobs: most = 0 } = request;
  if (logprobs !== true) {
    assert.equal(choice.logprobs, null);
    return;
  }
  const entries = contentOf(choice.logprobs);
  let said = "";
  for (const entry of entries) {
    assert.ok(entry.logprob <= 0);
    assert.ok(entry.top_logprobs.length <= most);
    said += entry.token;
  }
  const content = choice.message.content ?? "";
  // A stop text may begin within the last token.
  const last = entries.at(-1)?.token.length ?? 0;
  assert.ok(said.startsWith(content), said);
  assert.ok(said.length - content.length < Math.max(last, 1), said);
  if (request.stop === undefined) assert.equal(said, content);
}

interface Entry {
  token: string;
  logprob: number;
  top_logprobs: unknown[];
}

function contentOf(logprobs: Logprobs | null): Entry[] {
  const content: unknown = logprobs?.content;
  return Array.isArray(content) ? content : [];
}
