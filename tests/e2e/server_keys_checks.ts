// Promise: several keys of one model server are used within their limits by all workers
// together, and what one key is refused reaches no caller.
import assert from "node:assert/strict";
import { amountOf } from "../support/amount.ts";
import { callApi } from "../support/chat_request.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import {
  jsonResponse,
  streamResponse,
} from "../support/model_servers/model_answers.ts";
import {
  startScriptedServer,
  type WholeRequest,
} from "../support/model_servers/scripted_server.ts";

const KEYS = {
  KEY_ONE: "first-key-of-the-server",
  KEY_TWO: "second-key-of-the-server",
  KEY_THREE: "third-key-of-the-server",
  KEY_DEAD: "key-that-nobody-knows",
};
type Variable = keyof typeof KEYS;
const VARIABLES = new Map(
  Object.entries(KEYS).map(([name, value]) => [`Bearer ${value}`, name]),
);
const USAGE = { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 };
const WORDS = [
  { choices: [{ index: 0, delta: { content: "Hello" } }] },
  { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
  { choices: [], usage: USAGE },
];
const WHOLE = {
  id: "c",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{
    index: 0,
    message: { role: "assistant", content: "Hello" },
    finish_reason: "stop",
  }],
  usage: USAGE,
};
const LIMITED_BODY = { error: { message: "Slow down", code: "rate_limit" } };
const UNKNOWN_BODY = { error: { message: "Incorrect API key provided" } };

/** What a server has seen of one key. */
class KeyRecord {
  requests = 0;
  refused = 0;
  running = 0;
  runningMax = 0;
}

/**
 * A server with keys of which one is unknown and one has a limit: of its requests in a
 * second, only the first few are answered.
 */
function startProvider(
  { perSecond = Infinity, lastsMs = 5 }: {
    /** The bound of KEY_TWO. */
    perSecond?: number;
    lastsMs?: number;
  },
) {
  const records = new Map<string, KeyRecord>();
  const recordOf = (variable: Variable) => {
    const record = records.get(variable) ?? new KeyRecord();
    records.set(variable, record);
    return record;
  };
  let second = 0;
  let inSecond = 0;
  async function* reply(request: WholeRequest) {
    if (request.body === "") return yield* jsonResponse({ data: [] });
    const header = request.headers.get("authorization") ?? "";
    const variable = VARIABLES.get(header);
    const record = recordOf(variable as Variable);
    record.requests += 1;
    if (variable === "KEY_DEAD") {
      record.refused += 1;
      return yield* jsonResponse(UNKNOWN_BODY, { status: 401 });
    }
    if (variable === "KEY_TWO") {
      const now = Math.floor(performance.now() / 1_000);
      if (now !== second) [second, inSecond] = [now, 0];
      inSecond += 1;
      if (inSecond > perSecond) {
        record.refused += 1;
        const headers = { "retry-after": "1" };
        return yield* jsonResponse(LIMITED_BODY, { status: 429, headers });
      }
    }
    record.running += 1;
    record.runningMax = Math.max(record.runningMax, record.running);
    yield { pauseMs: lastsMs };
    record.running -= 1;
    const { stream } = JSON.parse(request.body);
    yield* stream ? streamResponse(WORDS) : jsonResponse(WHOLE);
  }
  return { server: startScriptedServer({ reply }), recordOf };
}

/** Sends requests, some at a time, and counts the answers by their status. */
async function flood(
  gateway: LaunchedGateway,
  { model, requests, atOnce }: {
    model: string;
    requests: number;
    atOnce: number;
  },
): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  let count = 0;
  const client = async () => {
    while (count < requests) {
      count += 1;
      const messages = [{ role: "user", content: `Hi ${count}` }];
      const body = { model, messages, stream: count % 2 === 0 };
      const url = `${gateway.baseUrl()}/chat/completions`;
      const answer = await callApi(url, gateway.state.api_key, { body });
      const text = await answer.text();
      const isWhole = answer.status === 200 && text.includes("Hello") &&
        (!body.stream || text.includes("[DONE]"));
      const outcome = isWhole ? "200" : `${answer.status} ${text}`;
      counts[outcome] = (counts[outcome] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, client));
  return counts;
}

const modelOf = (id: string, backend: object) => ({
  id,
  backends: [{ type: "openai", model: id, ...backend }],
});

/** How many requests are sent to the keys of which one is refused again and again. */
const REQUESTS = amountOf({ usual: 250, full: 1_000 });

/** A pool of keys answers every request, and leaves those alone that are refused. */
async function hidesRefusals(
  gateway: LaunchedGateway,
  recordOf: (variable: Variable) => KeyRecord,
): Promise<void> {
  const counts = await flood(gateway, {
    model: "three",
    requests: REQUESTS,
    atOnce: 40,
  });
  assert.deepEqual(counts, { 200: REQUESTS });
  const limited = recordOf("KEY_TWO");
  assert.ok(limited.refused > 0, "the limit was met");
  assert.ok(
    limited.refused < 100,
    `${limited.refused} of ${limited.requests} refused`,
  );
  const dead = await flood(gateway, {
    model: "half-dead",
    requests: 200,
    atOnce: 10,
  });
  assert.deepEqual(dead, { 200: 200 });
  assert.ok(recordOf("KEY_DEAD").requests <= 20, "it is left alone");
}

/** All workers together keep the limits of keys, and callers hear when to come again. */
async function keepsLimits(
  gateway: LaunchedGateway,
  recordOf: (variable: Variable) => KeyRecord,
): Promise<void> {
  const narrow = await flood(gateway, {
    model: "narrow",
    requests: 300,
    atOnce: 50,
  });
  assert.deepEqual(narrow, { 200: 300 });
  const { runningMax } = recordOf("KEY_ONE");
  assert.ok(runningMax >= 16 && runningMax <= 22, `${runningMax} at once`);
  const rare = await flood(gateway, {
    model: "rare",
    requests: 300,
    atOnce: 30,
  });
  const { requests } = recordOf("KEY_THREE");
  assert.ok(requests >= 108 && requests <= 132, `${requests} in a minute`);
  assert.equal(rare["200"], requests);
  const refusals = Object.keys(rare).filter((outcome) => outcome !== "200");
  for (const outcome of refusals) assert.match(outcome, /^429 .*limit/);
  assert.ok(refusals.length > 0);
}

/** Servers with limited keys, and the models that a gateway has there. */
export class LimitedProviders implements AsyncDisposable {
  readonly models: readonly object[];
  /** The keys by their variables. */
  readonly env: Readonly<Record<string, string>> = KEYS;
  readonly #hasty = startProvider({ perSecond: 5 });
  readonly #slow = startProvider({ lastsMs: 100 });

  constructor() {
    const { baseUrl: base_url } = this.#hasty.server;
    const { baseUrl: slow_url } = this.#slow.server;
    this.models = [
      modelOf("three", {
        base_url,
        api_key_envs: ["KEY_ONE", "KEY_TWO", "KEY_THREE"],
      }),
      modelOf("half-dead", { base_url, api_key_envs: ["KEY_DEAD", "KEY_ONE"] }),
      modelOf("narrow", {
        base_url: slow_url,
        api_key_env: "KEY_ONE",
        concurrency: 20,
      }),
      modelOf("rare", {
        base_url: slow_url,
        api_key_env: "KEY_THREE",
        key_limits: { "*": { requests_per_minute: 120 } },
      }),
    ];
  }

  /** Uses the keys through a gateway with these models and keys. */
  async check(t: Deno.TestContext, gateway: LaunchedGateway): Promise<void> {
    await t.step(
      "nobody notices that one is refused again and again, or is dead",
      () => hidesRefusals(gateway, this.#hasty.recordOf),
    );

    await t.step(
      "the limits of a server are kept, and callers hear when to come again",
      () => keepsLimits(gateway, this.#slow.recordOf),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#hasty.server[Symbol.asyncDispose]();
    await this.#slow.server[Symbol.asyncDispose]();
  }
}
