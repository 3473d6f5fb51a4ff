import assert from "node:assert/strict";
import { sleep } from "./create.ts";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { DIALECTS } from "@gateway/shared/models/dialects";
import {
  type Reply,
  startFakeModelServer,
} from "../../../tests/support/fake_model_server.ts";
import {
  chatReply,
  choiceChunk,
  chunk,
  event,
  jsonResponse,
  streamHead,
} from "../../../tests/support/model_answers.ts";
import { OpenAiBackend } from "./openai.ts";
import { UpstreamError } from "./errors.ts";
import { type AttemptReport, BackendPool } from "./pool.ts";

const answer = chatReply({ words: ["Hello ", "there"] });
const spoken = "Hello there";

interface Result {
  text: string;
  error: unknown;
  attempts: string[];
}

/** Asks a pool of two model servers of different preference, over TCP. */
async function ask(a: Reply | "dead", b: Reply): Promise<Result> {
  const first = startFakeModelServer({ reply: a === "dead" ? answer : a });
  if (a === "dead") await first[Symbol.asyncDispose]();
  await using second = startFakeModelServer({ reply: b });
  const attempts: AttemptReport[] = [];
  const pool = new BackendPool({
    backends: [first, second].map((server, preference) => ({
      preference,
      weight: 1,
      backend: new OpenAiBackend({
        config: {
          type: "openai",
          name: `server${preference}`,
          baseUrl: server.baseUrl,
          model: "m",
          weight: 1,
          preference,
          headers: {},
          dialect: DIALECTS.dashscope,
          deadlines: {
            connectMs: 1_000,
            firstTokenMs: 100,
            betweenTokensMs: 1_000,
            totalMs: 5_000,
          },
        },
        apiKey: null,
        now: monotonicNow,
        wallNow,
        newToolCallId: () => "call_new",
      }),
    })),
    now: monotonicNow,
    random: Math.random,
    sleep,
    onAttempt: (report) => attempts.push(report),
  });
  const result: Result = { text: "", error: null, attempts: [] };
  try {
    const signal = new AbortController().signal;
    const events = pool.complete({
      model: "neutral-3.7-plus",
      messages: [{ role: "user", content: "hi" }],
      stream: true,
      include_usage: false,
      n: 1,
    }, { requestId: "r", signal });
    for await (const batch of events) {
      for (const e of batch) {
        if (e.type === "delta") result.text += e.content ?? "";
      }
    }
  } catch (error) {
    result.error = error;
  } finally {
    pool.close();
    if (a !== "dead") await first[Symbol.asyncDispose]();
  }
  result.attempts = attempts.map((x) => `${x.backend} ${x.outcome}`);
  return result;
}

const mended: { name: string; a: Reply | "dead"; outcome: string }[] = [
  { name: "does not listen", a: "dead", outcome: "unreachable" },
  { name: "hangs up", a: () => [{ close: true }], outcome: "unreachable" },
  {
    name: "answers 503",
    a: () => jsonResponse({}, { status: 503 }),
    outcome: "overloaded",
  },
  {
    name: "does not have the model",
    a: () =>
      jsonResponse({ error: { message: "model 'm' not found" } }, {
        status: 404,
      }),
    outcome: "unknown_model",
  },
  {
    name: "answers 429",
    a: () => jsonResponse({}, { status: 429 }),
    outcome: "rate_limited",
  },
  {
    name: "answers 401",
    a: () => jsonResponse({}, { status: 401 }),
    outcome: "credentials",
  },
  { name: "says nothing", a: () => [{ stall: true }], outcome: "timeout" },
  {
    name: "says nothing but its role",
    a: () => [
      streamHead(),
      chunk(event(choiceChunk({ role: "assistant" }))),
      { stall: true },
    ],
    outcome: "timeout",
  },
];

for (const { name, a, outcome } of mended) {
  Deno.test(`a pool's caller does not notice a model server that ${name}`, async () => {
    assert.deepEqual(await ask(a, answer), {
      text: spoken,
      error: null,
      attempts: [`server0 ${outcome}`, "server1 success"],
    });
  });
}

Deno.test("a pool's caller gets the answer of one model server only", async () => {
  const cut: Reply = () => [
    streamHead(),
    chunk(event(choiceChunk({ content: "Hello" }))),
    { pauseMs: 20 },
    { close: true },
  ];
  const { text, error, attempts } = await ask(cut, answer);
  assert.equal(text, "Hello");
  assert.ok(error instanceof UpstreamError);
  assert.equal(error.code, "upstream_truncated");
  assert.deepEqual(attempts, ["server0 truncated"]);
});
