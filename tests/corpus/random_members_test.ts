// Promise: what the gateway does not know passes unchanged through edge, bus and
// worker, in requests and in answers, wherever it stands. The only members that do not
// pass are those of `shared/openai/refused_fields.ts`.
import assert from "node:assert/strict";
import { amountOf } from "../support/amount.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { chat, type OpenGateway } from "../support/gateway/open.ts";
import {
  jsonResponse,
  streamResponse,
} from "../support/model_servers/model_answers.ts";
import {
  startScriptedServer,
  type WholeRequest,
} from "../support/model_servers/scripted_server.ts";
import { seededRandom, seedsOr } from "../support/seeded_random.ts";
import { assertArrived, type Json, Planter } from "./random_members.ts";

const CASES = amountOf({ usual: 150, full: 2_000 });
const AT_ONCE = 25;
/** On a busy machine, no edge may take its worker for lost and offer a job twice. */
const SLOWER = 20;

/** A request and its answer, and what was planted in each. */
interface Case {
  request: Json;
  answer: Json[];
  inRequest: Planter;
  answered: Planter;
}

function caseOf(number: number, seed: number): Case {
  const random = seededRandom(seed * 1_000_000 + number);
  const [inRequest, answered] = [new Planter(random), new Planter(random)];
  const stream = random() < 0.5;
  const request = requestOf(inRequest, { number, stream });
  const answer = stream ? chunksOf(answered) : [bodyOf(answered)];
  return { request, answer, inRequest, answered };
}

function requestOf(
  plant: Planter,
  { number, stream }: { number: number; stream: boolean },
): Json {
  const call = plant.in({
    id: "c1",
    type: "function",
    function: plant.in({ name: "f", arguments: "{}" }),
  });
  return plant.in({
    case_number: number,
    stream,
    ...stream && { stream_options: plant.in({ include_usage: true }) },
    messages: [
      plant.in({ role: "system", content: "s" }),
      plant.in({
        role: "user",
        content: [
          plant.in({ type: "text", text: "a" }),
          plant.in({ type: "text", text: "b" }),
        ],
      }),
      plant.in({ role: "assistant", content: null, tool_calls: [call] }),
      plant.in({ role: "tool", tool_call_id: "c1", content: "r" }),
    ],
    tools: [
      plant.in({
        type: "function",
        function: plant.in({ name: "f", parameters: plant.in({}) }),
      }),
    ],
    response_format: plant.in({
      type: "json_schema",
      json_schema: plant.in({ name: "n", schema: plant.in({}) }),
    }),
  });
}

const FUNCTION = { name: "f", arguments: "{}" };

function callOf(plant: Planter): Json {
  const called = plant.in(FUNCTION);
  return plant.in({ index: 0, id: "c1", type: "function", function: called });
}

function usageOf(plant: Planter): Json {
  return plant.in({
    prompt_tokens: 3,
    completion_tokens: 2,
    total_tokens: 5,
    completion_tokens_details: plant.in({ reasoning_tokens: 1 }),
  });
}

function chunksOf(plant: Planter): Json[] {
  const chunk = (choices: Json[], more: Json = {}) =>
    plant.in({
      id: "x",
      object: "chat.completion.chunk",
      created: 1,
      model: "theirs",
      choices,
      ...more,
    });
  const choice = (delta: Json, finish_reason: string | null = null) =>
    plant.in({ index: 0, delta, finish_reason });
  return [
    chunk([choice(plant.in({ role: "assistant", content: "" }))]),
    chunk([choice(plant.in({ content: "Hi" }))]),
    chunk([choice(plant.in({ tool_calls: [callOf(plant)] }))]),
    chunk([choice(plant.in({}), "tool_calls")]),
    chunk([], { usage: usageOf(plant) }),
  ];
}

function bodyOf(plant: Planter): Json {
  const { index: _, ...call } = callOf(plant);
  const message = { role: "assistant", content: "Hi", tool_calls: [call] };
  return plant.in({
    id: "x",
    object: "chat.completion",
    created: 1,
    model: "theirs",
    choices: [
      plant.in({
        index: 0,
        message: plant.in(message),
        finish_reason: "tool_calls",
      }),
    ],
    usage: usageOf(plant),
  });
}

for (const seed of seedsOr([1])) {
  Deno.test(`${CASES} requests and answers with random members arrive unchanged, seed ${seed}`, async () => {
    const received = new Map<number, Json>();
    const cases = Array.from(
      { length: CASES },
      (_, number) => caseOf(number, seed),
    );
    const reply = (request: WholeRequest) => {
      const body: Json = JSON.parse(request.body);
      const number = Number(body.case_number);
      received.set(number, body);
      const answer = cases[number]?.answer ?? [];
      return body.stream === true
        ? streamResponse(answer)
        : jsonResponse(answer[0]);
    };
    await using server = startScriptedServer({ reply });
    await using gateway = await startGateway("open", { slower: SLOWER });
    await gateway.addWorker({ baseUrl: server.baseUrl });
    for (let from = 0; from < CASES; from += AT_ONCE) {
      const some = cases.slice(from, from + AT_ONCE);
      await Promise.all(some.map((each, at) => {
        const what = `seed ${seed}, case ${from + at}`;
        const body = () => received.get(from + at);
        return check(each, { gateway, what, body });
      }));
    }
  });
}

async function check(
  { request, inRequest, answered }: Case,
  { gateway, what, body }: {
    gateway: OpenGateway;
    what: string;
    body: () => Json | undefined;
  },
): Promise<void> {
  const response = await chat(gateway.edge, request);
  const text = await response.text();
  assert.equal(response.status, 200, `${what}: ${text}`);
  assertArrived(inRequest.planted, body(), `${what}, request`);
  const parts = request.stream === true
    ? text.split("\n\n").filter((line) => line.startsWith("data: {"))
      .map((line) => JSON.parse(line.slice("data: ".length)))
    : [JSON.parse(text)];
  assertArrived(answered.planted, parts, `${what}, answer`);
}
