/**
 * Cases H: the description of the API says what the other cases saw, and nothing else.
 */
import assert from "node:assert/strict";
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import * as described from "../support/api_document.ts";
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
  unsupported_value: "services/edge-auth/chat/request_test.ts",
  invalid_request: "shared/upstream/error_response_test.ts",
  request_timeout: "services/edge-auth/http/responses_test.ts",
  internal_error: "tests/limits/lost_data_test.ts",
  upstream_unreachable: "shared/upstream/pool_test.ts",
  upstream_timeout: "shared/upstream/pool_test.ts",
  service_unavailable: "tests/limits/ledger_test.ts",
  overloaded: "services/edge-auth/dispatch/dispatcher_test.ts",
  no_worker: "tests/e2e/chaos_timed_test.ts",
  bus_unavailable: "tests/e2e/faults_bus_test.ts",
  server_shutdown: "tests/e2e/faults_process_timed_test.ts",
  worker_lost: "services/edge-auth/chat/answer_test.ts",
  deadline_exceeded: "services/edge-auth/dispatch/dispatcher_test.ts",
  key_revoked: "tests/limits/slot_test.ts",
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

const isChunk = described.validatorOf("ChatCompletionChunk");
const isError = described.validatorOf("Error");

/**
 * What the description says about the answer to a request. Paths and methods that are
 * no operation have errors only.
 */
function describedAnswer(
  { method, url: { pathname }, response: { status } }: Exchange,
): DescribedResponse | undefined {
  const path = pathname.replace(/(.)\/$/, "$1")
    .replace(/^\/v1\/(models|videos)\/[^/]+/, "/v1/$1/{id}");
  const name = method === "HEAD" ? "get" : method.toLowerCase();
  const operation = operations[path]?.[name];
  if (operation === undefined) {
    return [401, 404, 405].includes(status) ? components[status] : undefined;
  }
  const responses: Responses = { ...operation.responses };
  const described = responses[status];
  return described && "$ref" in described ? components[status] : described;
}

/** The internal codes that an error may stand for. */
function codesOf(body: string, among: object = {}): string[] {
  const { error: { code, type } } = JSON.parse(body);
  return Object.entries(examples).filter(([name, { value: { error } }]) =>
    name in among && error.code === code && error.type === type
  ).map(([name]) => name);
}

/** The schemas of answers by their `object`. */
const OBJECTS: Named<string> = {
  "video": "Video",
  "video.deleted": "VideoDeleted",
  "model": "Model",
  "chat.completion": "ChatCompletion",
};

function checkBody(mediaType: string, body: string, what: string): void {
  if (mediaType !== "text/event-stream") {
    const answer = JSON.parse(body);
    const name = OBJECTS[answer.object];
    const names = name === undefined ? ["ModelList", "VideoList"] : [name];
    const isValid = names.some((each) => described.validatorOf(each)(answer));
    return assert.ok(isValid, what);
  }
  for (const [, data = ""] of body.matchAll(/^data: (.*)$/gm)) {
    if (data === "[DONE]") continue;
    const event: unknown = JSON.parse(data);
    assert.ok(isChunk(event) || isError(event), `${what}: ${data}`);
  }
}

function checkRequest({ sent, response }: Exchange, body: string): void {
  let request: unknown;
  try {
    request = JSON.parse(String(sent));
  } catch {
    return; // Bytes, or text that is no JSON on purpose.
  }
  const { status } = response;
  if (status === 200) described.assertDescribed(request);
  if (status === 400 || status === 404) {
    described.ruleBehind(request, JSON.parse(body).error);
  }
}

/** Compares the exchanges of all cases with the description of the API. */
export const referenceCases: Cases = async (
  t,
  { gateway, call, chat, post, exchanges },
) => {
  await t.step("H60 limits, in headers and refusals", async () => {
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
  });
  await t.step("H60 other failures", async () => {
    for (const controls of ["garbage after 0 tokens", "cut after 5 tokens"]) {
      const messages = simulates(controls);
      await assertError(await chat({ messages }), { status: 502 }, controls);
    }
    const large = " ".repeat(20 << 20) + "{}";
    const expected: [BodyInit, type: string, status: number, code: string][] = [
      ["{", "application/json", 400, "invalid_json"],
      ["{}", "text/plain", 415, "unsupported_media_type"],
      [large, "application/json", 413, "request_too_large"],
    ];
    for (const [body, type, status, code] of expected) {
      const response = await post(body, { "content-type": type });
      await assertError(response, { status, code });
    }
  });
  await t.step("H61 the edge sends the description", async () => {
    const url = new URL("/openapi.json", gateway.baseUrl());
    const response = await globalThis.fetch(url);
    assert.deepEqual(await response.json(), document);
  });
  await t.step("H62 videos", async () => {
    const { key } = await gateway.createKey("--scopes=video");
    const headers = { authorization: `Bearer ${key}` };
    const asked = { model: "simulated-video-1", prompt: "A kite" };
    const made = await call("/videos", {
      method: "POST",
      body: JSON.stringify(asked),
      headers: { ...headers, "content-type": "application/json" },
    });
    const { id } = await made.json();
    for (const path of ["", `/${id}`, `/${id}/content`, "/none"]) {
      const { status } = await call(`/videos${path}`, { headers });
      assert.equal(status, ["", `/${id}`].includes(path) ? 200 : 404, path);
    }
    const { status } = await call(`/videos/${id}`, {
      method: "DELETE",
      headers,
    });
    assert.equal(status, 200);
  });

  const seen = { codes: new Set<string>(), headers: new Set<string>() };
  await t.step("H63 every exchange is as described", async () => {
    assert.ok(exchanges.length > 150, `${exchanges.length} exchanges`);
    for (const exchange of exchanges) {
      const { method, url, response } = exchange;
      const { status, headers } = response;
      const what = `${method} ${url.pathname} ${status}`;
      for (const [name] of headers) seen.headers.add(name);
      const body = await exchange.received;
      if (method === "OPTIONS") {
        assert.equal(status, 204);
        continue;
      }
      const described = describedAnswer(exchange) ?? assert.fail(what);
      for (const [name] of headers) {
        const isKnown = USUAL.has(name) || name in described.headers;
        assert.ok(isKnown, `${what}: ${name}`);
      }
      const [mediaType = ""] = headers.get("content-type")?.split(";") ?? [];
      const content = described.content[mediaType];
      assert.ok(content, `${what}: ${mediaType}`);
      if (!body) continue;
      if (status === 200) checkBody(mediaType, body, what);
      else {
        assert.ok(isError(JSON.parse(body)), `${what}: ${body}`);
        const codes = codesOf(body, content.examples);
        assert.ok(codes.length > 0, `${what}: ${body}`);
        for (const code of codes) seen.codes.add(code);
      }
      const isChat = url.pathname.endsWith("/chat/completions");
      if (method === "POST" && isChat) checkRequest(exchange, body);
    }
  });
  await t.step("H64 every described header was seen", () => {
    const names = Object.keys(allHeaders);
    const unseen = names.filter((name) => !seen.headers.has(name));
    assert.deepEqual(unseen, []);
  });
  await t.step("H65 every described code was seen here or has a test", () => {
    const codes = Object.keys(examples);
    const unseen = codes.filter((code) => !seen.codes.has(code));
    assert.deepEqual(unseen.sort(), Object.keys(SEEN_ELSEWHERE).sort());
    for (const [code, path] of Object.entries(SEEN_ELSEWHERE)) {
      const text = Deno.readTextFileSync(new URL(path, ROOT));
      assert.ok(text.includes(code), `${path} has no ${code}`);
    }
  });
};
