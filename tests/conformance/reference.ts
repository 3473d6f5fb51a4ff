/**
 * Cases H: the description of the API says what the other cases saw, and nothing else.
 */
import assert from "node:assert/strict";
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import * as apiDocument from "../support/api_document.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { simulates } from "../support/gateway/simulator.ts";
import { until } from "../support/wait_for.ts";
import { assertError, type Cases, type Exchange } from "./context.ts";

type Named<T> = { [name: string]: T };
interface DescribedResponse {
  headers: object;
  content: Named<{ examples?: object }>;
}
type Responses = Named<DescribedResponse | undefined>;

const operations: Named<Named<{ responses: object }>> = document.paths;
const components: Responses = document.components.responses;
const { examples, headers: allHeaders } = document.components;

const ROOT = new URL("../../", import.meta.url);
/** The codes that need more than requests to one gateway, and a test of each. */
const SEEN_ELSEWHERE: Named<string> = {
  forbidden: "tests/hostile/http_test.ts",
  insufficient_quota: "tests/limits/budgets_test.ts",
  unsupported_value: "services/edge-auth/chat/request_refused_test.ts",
  upgrade_required: "tests/forward/refusals_test.ts",
  invalid_request: "shared/upstream/error_response_test.ts",
  request_timeout: "services/edge-auth/http/responses_test.ts",
  internal_error: "tests/limits/lost_data_test.ts",
  upstream_unreachable: "shared/upstream/pool_test.ts",
  upstream_timeout: "shared/upstream/pool_test.ts",
  service_unavailable: "tests/limits/ledger_test.ts",
  overloaded: "services/edge-auth/dispatch/dispatcher_test.ts",
  queue_full: "services/edge-auth/dispatch/dispatcher_test.ts",
  no_worker: "tests/e2e/faults/chaos_timed_test.ts",
  bus_unavailable: "tests/e2e/faults/bus_test.ts",
  server_shutdown: "tests/e2e/faults/process_checks.ts",
  worker_lost: "services/edge-auth/chat/answer_test.ts",
  deadline_exceeded: "services/edge-auth/dispatch/dispatcher_test.ts",
  key_revoked: "tests/limits/slot_test.ts",
  request_stopped: "services/edge-auth/dispatch/running_test.ts",
  keep_unavailable: "tests/e2e/kept/lost_test.ts",
  keep_failed: "tests/e2e/kept/lost_test.ts",
  keep_full: "tests/e2e/kept/answers_test.ts",
};

/** Headers of HTTP itself, of caches and browsers. */
const USUAL = new Set([
  "cache-control",
  "content-length",
  "content-type",
  "date",
  "connection",
  "keep-alive",
  "transfer-encoding",
  "vary",
  "x-accel-buffering",
  "x-content-type-options",
]);

/** Fewer would mean that the other cases did not run before. */
const EXCHANGES_MIN = 100;

const isChunk = apiDocument.validatorOf("ChatCompletionChunk");
const isError = apiDocument.validatorOf("Error");

/**
 * What the description says about the answer to a request. Paths and methods that are
 * no operation have errors only.
 */
function describedAnswer(
  { method, url: { pathname }, response: { status } }: Exchange,
): DescribedResponse | undefined {
  const path = pathname.replace(/(.)\/$/, "$1")
    .replace(/^\/v1\/(models|videos|answers)\/[^/]+/, "/v1/$1/{id}");
  const name = method === "HEAD" ? "get" : method.toLowerCase();
  const operation = operations[path]?.[name];
  if (operation === undefined) {
    return [401, 404, 405].includes(status) ? components[status] : undefined;
  }
  const responses: Responses = { ...operation.responses };
  const described = responses[status];
  return described && "$ref" in described ? components[status] : described;
}

/** How the description shows the answer to a request: its headers and examples. */
function describedContent(exchange: Exchange) {
  const { method, url, response: { status, headers } } = exchange;
  const what = `${method} ${url.pathname} ${status}`;
  const described = describedAnswer(exchange) ?? assert.fail(what);
  const [mediaType = ""] = headers.get("content-type")?.split(";") ?? [];
  const content = described.content[mediaType];
  assert.ok(content, `${what}: ${mediaType}`);
  return { what, mediaType, headers: described.headers, content };
}

/** The internal codes that an answer may stand for: none unless it is an error. */
async function codesOf(exchange: Exchange): Promise<string[]> {
  const body = await exchange.received;
  const { method, response: { status } } = exchange;
  if (method === "OPTIONS" || status === 200 || body === "") return [];
  const { error: { code, type } } = JSON.parse(body);
  const among = describedContent(exchange).content.examples ?? {};
  return Object.entries(examples).filter(([name, { value: { error } }]) =>
    name in among && error.code === code && error.type === type
  ).map(([name]) => name);
}

/** The schemas of answers by their `object`. */
const OBJECTS: Named<string> = {
  "video": "Video",
  "video.deleted": "VideoDeleted",
  "answer": "Answer",
  "answer.deleted": "AnswerDeleted",
  "model": "Model",
  "chat.completion": "ChatCompletion",
};

function checkBody(mediaType: string, body: string, what: string): void {
  if (mediaType !== "text/event-stream") {
    const answer = JSON.parse(body);
    const name = OBJECTS[answer.object];
    const names = name === undefined ? ["ModelList", "VideoList"] : [name];
    const isValid = names.some((each) => apiDocument.validatorOf(each)(answer));
    return assert.ok(isValid, what);
  }
  for (const [, data = ""] of body.matchAll(/^data: (.*)$/gm)) {
    if (data === "[DONE]") continue;
    const event: unknown = JSON.parse(data);
    assert.ok(isChunk(event) || isError(event), `${what}: ${data}`);
  }
}

function checkRequest({ requestBody, response }: Exchange, body: string): void {
  let request: unknown;
  try {
    request = JSON.parse(String(requestBody));
  } catch {
    return; // Bytes, or text that is no JSON on purpose.
  }
  const { status } = response;
  if (status === 200) apiDocument.assertDescribed(request);
  if (status === 400 || status === 404) {
    apiDocument.ruleBehind(request, JSON.parse(body).error);
  }
}

/** Compares an answer, and the request if it was for a chat, with the description. */
async function checkExchange(exchange: Exchange): Promise<void> {
  const { method, url, response: { status, headers } } = exchange;
  const body = await exchange.received;
  if (method === "OPTIONS") return assert.equal(status, 204);
  const described = describedContent(exchange);
  const { what, mediaType } = described;
  for (const [name] of headers) {
    const isKnown = USUAL.has(name) || name in described.headers;
    assert.ok(isKnown, `${what}: ${name}`);
  }
  if (body === "") return;
  if (status === 200) checkBody(mediaType, body, what);
  else {
    assert.ok(isError(JSON.parse(body)), `${what}: ${body}`);
    const codes = await codesOf(exchange);
    assert.ok(codes.length > 0, `${what}: ${body}`);
  }
  const isChat = url.pathname.endsWith("/chat/completions");
  if (method === "POST" && isChat) checkRequest(exchange, body);
}

/** Compares the exchanges of all cases with the description of the API. */
export const referenceCases: Cases = {
  async "H60 limits, in headers and refusals"({ gateway, chat }) {
    const limits = ["--rpm=2", "--tpm=1000", "--tokens-per-day=1000"];
    const { key } = await gateway.createKey(...limits);
    const headers = { authorization: `Bearer ${key}` };
    const statuses: number[] = [];
    for (const change of [{}, { max_tokens: 900, n: 8 }, {}, {}]) {
      const answer = chat({ max_tokens: 1, ...change }, { headers });
      statuses.push(await readStatus(answer));
    }
    assert.deepEqual(statuses, [200, 429, 200, 429]);
    const daily = await gateway.createKey("--tokens-per-day=1");
    const init = { headers: { authorization: `Bearer ${daily.key}` } };
    // The first request is counted when it has ended.
    await until(async () => {
      const response = await chat({ max_tokens: 1 }, init);
      await response.body?.cancel();
      return response.headers.get("x-should-retry") === "false";
    }, 2_000);
  },
  async "H60 other failures"({ chat, post }) {
    for (const controls of ["garbage after 0 tokens", "cut after 5 tokens"]) {
      const messages = simulates(controls);
      await assertError(await chat({ messages }), { status: 502 }, controls);
    }
    const large = " ".repeat(20 << 20) + "{}";
    const json = "application/json";
    const mistakes = [
      { body: "{", type: json, status: 400, code: "invalid_json" },
      {
        body: "{}",
        type: "text/plain",
        status: 415,
        code: "unsupported_media_type",
      },
      { body: large, type: json, status: 413, code: "request_too_large" },
    ];
    for (const { body, type, status, code } of mistakes) {
      const response = await post(body, { "content-type": type });
      await assertError(response, { status, code });
    }
  },
  async "H60 kept answers"({ chat, call }) {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const texts: string[] = [];
    for (const edge of [0, 1]) {
      const answer = await chat({ max_tokens: 3, stream: true }, { headers });
      texts[edge] = await answer.text();
      assert.equal(answer.status, 200);
      if (edge === 0) continue;
      assert.equal(answer.headers.get("idempotent-replayed"), "true");
      assert.equal(texts[1], texts[0]);
      const path = `/answers/${answer.headers.get("x-gateway-answer")}`;
      const rest = await call(`${path}?after=1`);
      assert.ok(texts[0]?.endsWith(await rest.text()));
      const accept = "application/json";
      const state = await call(path, { headers: { accept } });
      assert.equal((await state.json()).object, "answer");
      const method = "DELETE";
      assert.equal(await readStatus(call(path, { method })), 200);
      const gone = { status: 404, code: "answer_not_found" };
      await assertError(await call(path, { method }), gone);
    }
    const other = { "idempotency-key": crypto.randomUUID() };
    await readStatus(chat({ max_tokens: 1 }, { headers: other }));
    await assertError(await chat({ max_tokens: 2 }, { headers: other }), {
      status: 422,
      code: "idempotency_mismatch",
    });
  },
  async "H61 the edge sends the description"({ gateway }) {
    const url = new URL("/openapi.json", gateway.baseUrl());
    const response = await globalThis.fetch(url);
    assert.deepEqual(await response.json(), document);
  },
  async "H62 videos"({ gateway, call }) {
    const { key } = await gateway.createKey("--scopes=video");
    const headers = { authorization: `Bearer ${key}` };
    const fields = { model: "simulated-video-1", prompt: "A kite" };
    const response = await call("/videos", {
      method: "POST",
      body: JSON.stringify(fields),
      headers: { ...headers, "content-type": "application/json" },
    });
    const { id } = await response.json();
    for (const path of ["", `/${id}`, `/${id}/content`, "/none"]) {
      const { status } = await call(`/videos${path}`, { headers });
      assert.equal(status, ["", `/${id}`].includes(path) ? 200 : 404, path);
    }
    const { status } = await call(`/videos/${id}`, {
      method: "DELETE",
      headers,
    });
    assert.equal(status, 200);
  },
  async "H63 every exchange is as described"({ exchanges }) {
    assert.ok(
      exchanges.length > EXCHANGES_MIN,
      `${exchanges.length} exchanges`,
    );
    for (const exchange of exchanges) await checkExchange(exchange);
  },
  "H64 every described header was seen"({ exchanges }) {
    const codes = new Set(
      exchanges.flatMap(({ response }) => [...response.headers.keys()]),
    );
    const names = Object.keys(allHeaders);
    assert.deepEqual(names.filter((name) => !codes.has(name)), []);
  },
  async "H65 every described code was seen here or has a test"({ exchanges }) {
    const names = new Set<string>();
    for (const exchange of exchanges) {
      for (const code of await codesOf(exchange)) names.add(code);
    }
    const unseen = Object.keys(examples).filter((code) => !names.has(code));
    assert.deepEqual(unseen.sort(), Object.keys(SEEN_ELSEWHERE).sort());
    for (const [code, path] of Object.entries(SEEN_ELSEWHERE)) {
      const text = Deno.readTextFileSync(new URL(path, ROOT));
      assert.ok(text.includes(code), `${path} has no ${code}`);
    }
  },
};
