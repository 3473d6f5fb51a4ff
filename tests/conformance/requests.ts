// Cases A, E, F and G: who may call, what is refused and with which error, request
// ids, models, methods, HTTP. What else is no credential: tests/hostile/http_test.ts.
import assert from "node:assert/strict";
import {
  modelListSchema,
  modelSchema,
} from "@gateway/shared/openai/completion";
import {
  assertError,
  assertRequestId,
  type Cases,
  type Context,
  M1,
  MODEL,
  rawExchange,
  UNAUTHORIZED,
} from "./context.ts";
import { until } from "../support/wait_for.ts";

async function assertUnauthorized(
  response: Response,
  what: string,
  status = 401,
): Promise<void> {
  assert.equal(response.status, status, what);
  assert.deepEqual(await response.json(), UNAUTHORIZED, what);
  const header = (name: string) => response.headers.get(name) ?? "";
  assert.match(header("content-type"), /^application\/json/, what);
  if (status === 401) assert.match(header("www-authenticate"), /^Bearer/, what);
  assertRequestId(response, what);
}

/** Posts {@link M1}, or another body, with these headers and no others. */
function postWith(
  context: Context,
  headers: HeadersInit,
  body = JSON.stringify(M1),
): Promise<Response> {
  return context.fetch(context.chatUrl, {
    method: "POST",
    headers,
    // As bytes: for a text, fetch would add a Content-Type of its own.
    body: new TextEncoder().encode(body),
  });
}

/** Keys: how they are sent, and what a wrong one gets. */
export const authenticationCases: Cases = {
  async "A1-A5 no key, no valid key: 401 to the letter"(context) {
    await assertUnauthorized(await postWith(context, {}), "no key");
    const { key } = context;
    const wrong = [
      "Bearer sk-wrong",
      `Basic ${btoa(`u:${key}`)}`,
      key,
      "Bearer ",
      "Bearer",
    ];
    for (const authorization of wrong) {
      const what = authorization.slice(0, 8);
      await assertUnauthorized(
        await postWith(context, { authorization }),
        what,
      );
    }
  },
  async "A4 the scheme's case does not matter"(context) {
    for (const scheme of ["bearer", "BEARER", "Bearer "]) {
      const response = await postWith(context, {
        authorization: `${scheme} ${context.key}`,
      });
      assert.equal(response.status, 200, scheme);
      await response.body?.cancel();
    }
  },
  async "A6 from outside of a key's networks: 403 on every path, and logged"(
    context,
  ) {
    const { gateway } = context;
    const { id, key } = await gateway.createKey("--allowed-cidrs=192.0.2.0/24");
    const headers = {
      authorization: `Bearer ${key}`,
      "x-forwarded-for": "192.0.2.7",
    };
    const form = new FormData();
    form.set("model", "whisper-1");
    form.set("file", new File(["no sound"], "a.wav"));
    const json = { ...headers, "content-type": "application/json" };
    const post = { method: "POST", headers: json, body: JSON.stringify(M1) };
    const requests: [path: string, init: RequestInit][] = [
      ["models", { headers }],
      [`models/${MODEL}`, { headers }],
      ["videos", { headers }],
      ["videos/video_1", { headers }],
      ["audio/transcriptions", { method: "POST", headers, body: form }],
      ["chat/completions", post],
      ["messages", post],
      ["embeddings", post],
      ["videos", post],
      ["responses", post],
    ];
    const url = (path: string) => `${gateway.baseUrl()}/${path}`;
    for (const [path, init] of requests) {
      // Not the context's: these answers are no part of the description of the API.
      const response = await fetch(url(path), init);
      assert.equal(response.status, 403, path);
      assert.match(await response.text(), /may not be used from your address/);
    }
    await until(async () => {
      const { requests: rows } = JSON.parse(
        await gateway.command("requests", "--key", id),
      );
      return JSON.stringify(rows).includes('"address_forbidden"');
    });
    await gateway.keys("edit", id, "--allowed-cidrs=192.0.2.0/24,127.0.0.0/8");
    for (const [path, init] of requests) {
      const response = await fetch(url(path), init);
      assert.notEqual(response.status, 403, path);
      await response.body?.cancel();
    }
  },
  async "A6 disabled 403, enabled 200, deleted 401"(context) {
    const created = await context.gateway.createKey();
    const authorization = `Bearer ${created.key}`;
    const becomes = async (status: number) => {
      const response = await postWith(context, { authorization });
      if (status === 200) {
        assert.equal(response.status, 200, await response.text());
      } else await assertUnauthorized(response, "A6", status);
    };
    await becomes(200);
    await context.gateway.keys("disable", created.id);
    await becomes(403);
    const bad = await postWith(context, { authorization }, "{");
    await assertUnauthorized(bad, "disabled key, bad body", 403);
    await context.gateway.keys("enable", created.id);
    await becomes(200);
    await context.gateway.keys("delete", created.id);
    await becomes(401);
  },
  async "A9-A10 without a key no path is revealed"(context) {
    await assertUnauthorized(
      await postWith(context, {}, "{"),
      "malformed JSON",
    );
    await assertUnauthorized(
      await context.fetch(context.chatUrl),
      "wrong method",
    );
    const base = context.gateway.baseUrl();
    await assertUnauthorized(await context.fetch(`${base}/models`), "models");
    const images = `${base}/images/generations`;
    await assertUnauthorized(
      await context.fetch(images, { method: "POST" }),
      "images",
    );
    const response = await context.call("/models");
    assert.equal(response.status, 200);
    await response.body?.cancel();
  },
  async "A11 no key: refused before the body is read"(context) {
    // The body never comes: an edge that waits for it would not answer.
    const answer = await rawExchange(context.chatUrl, [
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
      "Authorization: Bearer sk-wrong\r\nContent-Length: 1000000\r\n\r\n",
    ]);
    assert.match(answer, /^HTTP\/1.1 401 /);
  },
};

const says = (message: unknown) => ({ messages: [message] });
const LONG = { role: "user", content: "word ".repeat(200_000) };

interface Mistake {
  /** Replaces fields of a good request. */
  change: object;
  code: string;
  /** The field that the error names. */
  param: string;
}

/**
 * One mistake for each code of a refused field. The bounds of all fields are in
 * `services/edge-auth/chat/request_refused_test.ts`.
 */
const MISTAKES: Mistake[] = [
  {
    change: { model: undefined },
    code: "missing_required_parameter",
    param: "model",
  },
  { change: { stream: "true" }, code: "invalid_type", param: "stream" },
  {
    change: says({ role: "bogus", content: "x" }),
    code: "invalid_value",
    param: "messages[0].role",
  },
  { change: { n: 0 }, code: "integer_below_min_value", param: "n" },
  { change: { n: 9 }, code: "integer_above_max_value", param: "n" },
  {
    change: { temperature: -0.1 },
    code: "decimal_below_min_value",
    param: "temperature",
  },
  {
    change: { temperature: 2.1 },
    code: "decimal_above_max_value",
    param: "temperature",
  },
  { change: { messages: [] }, code: "empty_array", param: "messages" },
  { change: { stop: "" }, code: "empty_string", param: "stop" },
  {
    change: { stop: "a".repeat(513) },
    code: "string_above_max_length",
    param: "stop",
  },
  { change: { priority: 5 }, code: "unsupported_parameter", param: "priority" },
  { change: says(LONG), code: "context_length_exceeded", param: "messages" },
];

/** Fields: what is refused, and by which code. */
export const validationCases: Cases = {
  async "E45-E51 a mistake gets its code and names its field"({ chat }) {
    for (const { change, code, param } of MISTAKES) {
      await assertError(await chat(change), { status: 400, code, param }, code);
    }
  },
  async "E45-E49 values at the bounds are accepted"({ answer }) {
    const accepted = [
      { temperature: 0, top_p: 1, presence_penalty: -2, seed: -1 },
      { temperature: 2, top_p: 0, presence_penalty: 2, seed: 2_147_483_647 },
      { n: 8, repetition_penalty: 1.05, stream: false },
      { stop: [] },
      { stop: null },
    ];
    for (const change of accepted) await answer({ max_tokens: 2, ...change });
  },
  async "E45 an unknown model is named"({ chat }) {
    const response = await chat({ model: "nope" });
    assert.match(await response.clone().text(), /nope/);
    await assertError(response, { status: 404, code: "model_not_found" });
  },
  async "E49 a JSON object where one is asked for"({ answer }) {
    const format = { response_format: { type: "json_object" } };
    const { choices: [choice] } = await answer(format);
    assert.equal(typeof JSON.parse(choice?.message.content ?? ""), "object");
  },
};

/** A short request, sent byte by byte by the cases of HTTP, and its length. */
const BODY = JSON.stringify({ ...M1, max_tokens: 2 });
const BODY_LENGTH = `Content-Length: ${BODY.length}\r\n`;

/** The head of a chat request with the key, for a raw socket. */
const headOf = (key: string, more: string) =>
  "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
  `Authorization: Bearer ${key}\r\n${more}\r\n`;

/** Paths and methods: what exists, and what an unknown one gets. */
export const routingCases: Cases = {
  async "F54 every answer has a request id of its own"(
    { chatUrl, call, chat, fetch },
  ) {
    const responses = [
      await chat({ max_tokens: 1 }),
      await chat({ max_tokens: 1, stream: true }),
      await chat({ n: 0 }),
      await fetch(chatUrl),
      await call("/nope"),
      await call("/chat/completions"),
      await call("/chat/completions", { method: "OPTIONS" }),
    ];
    const ids = new Set<string>();
    for (const response of responses) {
      assertRequestId(response, String(response.status));
      ids.add(response.headers.get("x-request-id") ?? "");
      await response.body?.cancel();
    }
    assert.equal(ids.size, responses.length);
  },
  async "F55 a failing backend leaks nothing"({ chat }) {
    const content = "[simulator: error 500]";
    const response = await chat({ messages: [{ role: "user", content }] });
    const text = await response.text();
    assert.equal(response.status, 502, text);
    assert.ok(JSON.parse(text).error.message);
    assert.ok(!/\bat \w|\.ts\b|sk-/.test(text), text);
  },
  async "G56 models"({ call }) {
    const list = modelListSchema.parse(
      await (await call("/models")).json(),
    );
    assert.ok(list.data.some((model) => model.id === MODEL));
    const response = await call(`/models/${MODEL}`);
    const one = modelSchema.parse(await response.json());
    assert.deepEqual(one, list.data.find((model) => model.id === MODEL));
    for (const path of ["/models/nope", "/models/a%2Fb%20c"]) {
      const expected = { status: 404, code: "model_not_found" };
      await assertError(await call(path), expected);
    }
  },
  async "G57 methods and paths"({ gateway, chatUrl, call, fetch }) {
    const wrongMethod = await call("/chat/completions");
    assert.ok(wrongMethod.headers.get("allow")?.includes("POST"));
    const expected = { status: 405, code: "method_not_allowed" };
    await assertError(wrongMethod, expected);
    for (const method of ["PUT", "DELETE", "PATCH"]) {
      await assertError(await call("/models", { method }), expected, method);
    }
    for (const path of ["/nope", "/moderations"]) {
      const response = await call(path, { method: "POST" });
      await assertError(response, { status: 404 });
    }
    const options = await fetch(chatUrl, { method: "OPTIONS" });
    assert.equal(options.status, 204);
    assert.ok(options.headers.get("allow")?.includes("POST"));
    assert.equal(options.headers.get("access-control-allow-origin"), null);
    const outside = await fetch(`${gateway.state.edge_url}/nope`);
    await assertError(outside, { status: 404 });
  },
  async "G57 an unknown URL gets a hint"({ gateway, key, fetch }) {
    const hint = async (url: string) => {
      const headers = { authorization: `Bearer ${key}` };
      const response = await fetch(url, { method: "POST", headers });
      return (await response.json()).error.message;
    };
    assert.match(
      await hint(`${gateway.baseUrl()}/nope`),
      /^Invalid URL \(POST \/v1\/nope\)\. This service has \/v1\/chat\/completions, .*, and \/v1\/models\.$/,
    );
    assert.equal(
      await hint(`${gateway.state.edge_url}/chat/completions?key=${key}`),
      "Invalid URL (POST /chat/completions). All paths begin with /v1.",
    );
  },
  async "G57 HEAD is answered like GET, without the body"({ call }) {
    for (const path of ["/models", `/models/${MODEL}`, "/models/nope"]) {
      const whole = await call(path);
      const headOnly = await call(path, { method: "HEAD" });
      const { length } = await whole.bytes();
      assert.equal(headOnly.status, whole.status, path);
      assert.equal(headOnly.headers.get("content-length"), String(length));
      assert.equal((await headOnly.bytes()).length, 0, path);
    }
  },
  async "G58 a body may come in chunks"({ chatUrl, key }) {
    const chunk = (text: string) =>
      `${text.length.toString(16)}\r\n${text}\r\n`;
    const answer = await rawExchange(chatUrl, [
      headOf(key, "Transfer-Encoding: chunked\r\n") + chunk(BODY.slice(0, 20)),
      { waitMs: 20 },
      `${chunk(BODY.slice(20))}0\r\n\r\n`,
    ]);
    assert.match(answer, /^HTTP\/1.1 200 /);
  },
  async "G58 a client may wait for 100 Continue"({ chatUrl, key }) {
    const answer = await rawExchange(chatUrl, [
      headOf(key, `${BODY_LENGTH}Expect: 100-continue\r\n`),
      { waitMs: 50 },
      BODY,
    ]);
    assert.match(answer, /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200 /);
  },
  async "G58 HTTP/1.0 is answered"({ chatUrl, key }) {
    const request = headOf(key, BODY_LENGTH) + BODY;
    const answer = await rawExchange(chatUrl, [
      request.replace("/1.1", "/1.0"),
    ]);
    assert.match(answer, /^HTTP\/1.0 200 |^HTTP\/1.1 200 /);
  },
  async "G58 a connection goes on after a bad request"({ chatUrl, key }) {
    const answers = await rawExchange(chatUrl, [
      `${headOf(key, "Content-Length: 1\r\n")}{`,
      { waitMs: 100 },
      headOf(key, BODY_LENGTH) + BODY,
    ]);
    assert.match(answers, /^HTTP\/1.1 400 [\s\S]*HTTP\/1.1 200 /);
  },
  async "G59 nothing is compressed"({ chat }) {
    const headers = { "accept-encoding": "gzip, deflate, br" };
    const body = { stream: true, max_tokens: 30 };
    const response = await chat(body, { headers });
    assert.equal(response.headers.get("content-encoding"), null);
    let pieces = 0;
    for await (const _piece of response.body ?? []) pieces += 1;
    assert.ok(pieces > 1, `${pieces} pieces`);
  },
};
