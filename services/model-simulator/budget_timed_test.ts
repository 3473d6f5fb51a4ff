/** Guarantee: no request keeps the simulator from its other answers for more than 50 ms. */
import assert from "node:assert/strict";
import process from "node:process";
import { Completion } from "./completion.ts";
import { readControls } from "./controls.ts";
import { startAsked } from "./ask_fixture.ts";
import { parseRequest, RequestError } from "./request.ts";

const BUDGET_MS = 50;
const many = <T>(count: number, make: (index: number) => T) =>
  Array.from({ length: count }, (_, index) => make(index));
const schema = (inner: object) => ({
  response_format: {
    type: "json_schema",
    json_schema: { name: "x", schema: inner },
  },
});
const tool = (parameters: object) => ({
  tools: [{ type: "function", function: { name: "f", parameters } }],
  tool_choice: "required",
});
const PATTERN = { type: "string", pattern: `[${"~".repeat(1980)}]{200}` };
const WIDE = Object.fromEntries(many(4_000, (i) => [`p${i}`, { $ref: "#" }]));
const LARGE = {
  properties: { a: { minItems: 200, items: { type: "string" } } },
  required: ["a"],
};
const TWICE = { type: "array", minItems: 2, items: { $ref: "#" } };

/** Everything that costs more than it looks. */
const HOSTILE: Record<string, object> = {
  "a pattern": schema(PATTERN),
  "a pattern of a tool": tool({ properties: { a: PATTERN } }),
  "wide recursion": schema({ type: "object", properties: WIDE }),
  "wide recursion of a tool": tool({
    properties: WIDE,
    required: Object.keys(WIDE),
  }),
  "doubling": schema(TWICE),
  "doubling of a tool": tool({ properties: { a: TWICE }, required: ["a"] }),
  "many items": tool({
    properties: { a: { type: "array", minItems: 1e9, items: {} } },
    required: ["a"],
  }),
  "long texts": tool({
    properties: { a: { type: "string", minLength: 1e9 } },
    required: ["a"],
  }),
  "large constants": tool({
    properties: {
      a: { minItems: 1e4, items: { const: "x".repeat(50_000) } },
    },
    required: ["a"],
  }),
  "alternatives without a value": schema({
    anyOf: many(40, () => ({ $ref: "#" })),
  }),
  "a chain of references": schema({
    $ref: "#/$defs/d0",
    $defs: Object.fromEntries(
      many(4_000, (i) => [`d${i}`, { $ref: `#/$defs/d${i + 1}` }]),
    ),
  }),
  "128 tools": {
    prompt: many(128, (i) => `tool${i}`).join(" "),
    tools: many(128, (i) => ({
      type: "function",
      function: { name: `tool${i}`, parameters: LARGE },
    })),
  },
  "8 choices": { n: 8, ...tool(LARGE) },
  "stop texts of one letter": {
    stop: many(16, (i) => `${"a".repeat(999)}${i % 10}`),
  },
  "blanks": { prompt: " ".repeat(300_000) },
  "brackets": { prompt: "[simulator:".repeat(20_000) },
  "phrases": { prompt: "[simulator: 1 token]".repeat(20_000) },
  "combining marks": { prompt: "\u0301".repeat(300_000) },
};

Deno.test("no request costs more than its budget before and between tokens", async () => {
  const bodies = Object.entries(HOSTILE).map(([what, body]) => {
    const { prompt = "f".repeat(100), ...rest } = {
      prompt: undefined,
      ...body,
    };
    const messages = [{ role: "user", content: prompt }];
    return [what, JSON.stringify({ model: "m", messages, ...rest })] as const;
  });
  for (const [what, body] of bodies) {
    let best = Infinity;
    for (let run = 0; run < 3; run++) {
      best = Math.min(best, await longestWork(body));
    }
    assert.ok(best < BUDGET_MS, `${what}: ${best} ms`);
  }
});

/** The most work without a turn for others, in CPU time, which no neighbour stretches. */
async function longestWork(body: string): Promise<number> {
  let startedAt = process.cpuUsage();
  let longest = 0;
  const lap = () => {
    const { user, system } = process.cpuUsage(startedAt);
    longest = Math.max(longest, (user + system) / 1_000);
    startedAt = process.cpuUsage();
  };
  try {
    const request = parseRequest(body);
    const last = request.messages.at(-1)?.content;
    const completion = await Completion.start({
      request,
      controls: typeof last === "string" ? readControls(last) : {},
      pace: { firstTokenMs: 0, tokensPerSecond: 0 },
      signal: new AbortController().signal,
      now: () => performance.now(),
      random: Math.random,
      created: 1,
    });
    for await (const _ of completion.stream()) lap();
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
  }
  lap();
  return longest;
}

Deno.test("a hostile pattern is refused while another stream goes on", async () => {
  await using simulator = startAsked();
  const prompt = "[simulator: 100 tokens, 200 tokens per second]";
  const stream = simulator.stream({ prompt });
  for (let count = 0; count < 5; count++) {
    const startedAt = performance.now();
    const response = await simulator.post(schema(PATTERN));
    const { error } = await response.json();
    assert.equal(response.status, 400);
    assert.equal(error.type, "invalid_request_error");
    assert.equal(error.param, "response_format");
    assert.ok(performance.now() - startedAt < 10 * BUDGET_MS);
  }
  assert.equal((await stream).at(-1), "[DONE]");
});

Deno.test("a body beyond the bound is refused", async () => {
  await using simulator = startAsked();
  const response = await fetch(`${simulator.url}/chat/completions`, {
    method: "POST",
    body: new Uint8Array(33 * 1024 * 1024),
  });
  assert.equal(response.status, 413);
  await response.body?.cancel();
});

Deno.test("a client that leaves ends its answer within 100 ms", async () => {
  await using simulator = startAsked();
  const waits = [
    { stream: true, prompt: "[simulator: first token 60000 ms]" },
    { stream: false, prompt: "[simulator: first token 60000 ms]" },
    { stream: true, prompt: "[simulator: stall after 3 tokens]" },
    { stream: false, prompt: "[simulator: stall after 3 tokens]" },
  ];
  for (const body of waits) {
    const leaving = new AbortController();
    const { signal } = leaving;
    const response = await simulator.post(body, { signal });
    const request = simulator.seen.at(-1);
    assert.equal(request?.outcome, undefined);
    const leftAtMs = performance.now();
    leaving.abort();
    await response.body?.cancel().catch(() => {});
    assert.equal(await request?.ended, "left");
    const took = performance.now() - leftAtMs;
    assert.ok(took < 100, `${JSON.stringify(body)}: ${took} ms`);
  }
});
