/** Chat requests made at random: what is accepted, and that nothing is a fault. */
import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import { errorBodySchema } from "@gateway/shared/openai/completion";
import { amountOf } from "../../../tests/support/amount.ts";
import {
  assertDescribed,
  ruleBehind,
} from "../../../tests/support/api_document.ts";
import { seededRandom } from "../../../tests/support/seeded_random.ts";
import { callOf, catalog, ping, weatherTool } from "./request_fixture.ts";
import { parseChatRequest } from "./request.ts";

const ROUNDS = amountOf({ usual: 1_500, full: 20_000 });

/** Parts of valid requests. */
const FRAGMENTS: unknown[] = [
  ping,
  ping.messages,
  weatherTool,
  [weatherTool],
  callOf("a"),
  [callOf("a")],
  { role: "user", content: "x" },
  { role: "assistant", tool_calls: [callOf("a")] },
  { role: "assistant", refusal: "x" },
  { role: "tool", tool_call_id: "a", content: "x" },
  [{ type: "text", text: "x" }],
  [{ type: "image_url", image_url: { url: "https://x" } }],
  { type: "json_schema", json_schema: { name: "x", schema: {} } },
  { stream: true, stream_options: { include_usage: true } },
  { logprobs: true, top_logprobs: 1, response_format: { type: "text" } },
  { tools: [weatherTool], tool_choice: "auto" },
  { max_tokens: 1, n: 1, temperature: 1, top_p: 1, presence_penalty: 1 },
  { seed: 1, stop: "x", enable_thinking: true, top_k: 1 },
];

const names = new Set(["__proto__", "constructor", "\ud800", "a b"]);
const scalars = new Set<unknown>([null, false, 0, -1, 1.5, 2 ** 53, Infinity]);
for (const text of ["", "\ud800", "\0", "__proto__"]) scalars.add(text);
JSON.parse(JSON.stringify(FRAGMENTS), (name, value) => {
  names.add(name);
  if (typeof value !== "object") scalars.add(value);
  return value;
});
const NAMES = [...names];
const SCALARS = [...scalars];

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
      assertDescribed(body);
      accepted++;
    } catch (error) {
      assert.ok(error instanceof ApiError, String(error));
      assert.ok(error.status === 400 || error.status === 404);
      ruleBehind(body, error);
      errorBodySchema.parse(error.toBody());
      assert.ok(error.message.length < 600, error.message);
      assert.ok(error.message.isWellFormed());
    }
  }
  assert.ok(accepted > ROUNDS / 50, `accepted ${accepted}`);
  assert.ok(accepted < ROUNDS, `accepted ${accepted}`);
});
