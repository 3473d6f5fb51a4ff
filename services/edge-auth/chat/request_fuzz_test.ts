import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { errorBodySchema } from "../../../tests/support/answer_schemas.ts";
import { seededRandom } from "../../../tests/support/seeded_random.ts";
import { callOf, catalog, ping, weatherTool } from "./request_fixture.ts";
import { parseChatRequest } from "./request.ts";

const ROUNDS = 20_000;

const SCALARS: unknown[] = [
  ...[null, true, false, 0, 1, -1, 1.5, 2 ** 53, Infinity],
  ...["", "x", "\ud800", "\u0000", "a", "__proto__", "neutral-3.7-plus"],
  ...("text user assistant tool function auto required json_object " +
    "json_schema image_url refusal get_weather").split(" "),
];

const NAMES = [
  ...("model messages tools tool_choice max_tokens n temperature top_p stop " +
    "presence_penalty logprobs top_logprobs seed response_format stream " +
    "stream_options enable_thinking role content type text function name arguments id tool_calls " +
    "tool_call_id image_url url schema json_schema parameters include_usage " +
    "refusal __proto__ constructor top_k").split(" "),
  "\ud800",
  "a b",
];

const FRAGMENTS: unknown[] = [
  ping,
  ping.messages,
  weatherTool,
  [weatherTool],
  callOf("a"),
  [callOf("a")],
  { role: "user", content: "x" },
  { role: "assistant", tool_calls: [callOf("a")] },
  { role: "tool", tool_call_id: "a", content: "x" },
  [{ type: "text", text: "x" }],
];

function randomJson(random: () => number, depth: number): unknown {
  const pick = <T>(values: readonly T[]) =>
    values[Math.floor(random() * values.length)];
  const kind = random();
  if (depth === 0 || kind < 0.4) return pick(SCALARS);
  if (kind < 0.55) return structuredClone(pick(FRAGMENTS));
  const size = Math.floor(random() * 4);
  if (kind < 0.75) {
    return Array.from({ length: size }, () => randomJson(random, depth - 1));
  }
  return Object.fromEntries(
    Array.from({ length: size }, () => [
      pick(NAMES) ?? "",
      randomJson(random, depth - 1),
    ]),
  );
}

Deno.test("parseChatRequest() throws only ApiErrors, with a valid body", () => {
  const random = seededRandom(7);
  let accepted = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const noise = randomJson(random, 4);
    const body = random() < 0.1 || typeof noise !== "object" || noise === null
      ? noise
      : { ...ping, ...noise };
    try {
      const request = parseChatRequest(body, catalog);
      // What was accepted survives the bus: nothing is lost or changed by JSON.
      const text = JSON.stringify(request);
      assert.deepEqual(JSON.parse(text), request);
      assert.ok(text.isWellFormed());
      accepted++;
    } catch (error) {
      assert.ok(error instanceof ApiError, String(error));
      assert.ok(error.status === 400 || error.status === 404);
      errorBodySchema.parse(error.toBody());
      assert.ok(error.message.length < 600, error.message);
      assert.ok(error.message.isWellFormed());
    }
  }
  assert.ok(accepted > ROUNDS / 50, `accepted ${accepted}`);
  assert.ok(accepted < ROUNDS, `accepted ${accepted}`);
});

Deno.test("parseChatRequest() refuses nesting that the guard has not seen", () => {
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level++) deep = [deep];
  const tool = { name: "f", parameters: { deep } };
  const bodies = [
    { tools: [{ type: "function", function: tool }] },
    { top_k: deep },
    { messages: deep },
    { stop: deep },
    { tool_choice: deep },
  ];
  for (const fields of bodies) {
    const body = { ...ping, ...fields };
    assert.throws(() => parseChatRequest(body, catalog), ApiError);
  }
});
