/** Cases F and G that need no limits: request ids, models, methods, HTTP. */
import assert from "node:assert/strict";
import {
  modelListSchema,
  modelSchema,
} from "@gateway/shared/openai/completion";
import {
  assertError,
  assertRequestId,
  type Cases,
  M1,
  MODEL,
  rawExchange,
} from "./context.ts";

export const routingCases: Cases = async (
  t,
  { cluster, call, chat, fetch },
) => {
  const url = `${cluster.baseUrl()}/chat/completions`;
  const { api_key: key } = cluster.state;
  const body = JSON.stringify({ ...M1, max_tokens: 2 });
  const head = (more: string) =>
    "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
    `Authorization: Bearer ${key}\r\n${more}\r\n`;

  await t.step("F54 every answer has a request id of its own", async () => {
    const responses = [
      await chat({ max_tokens: 1 }),
      await chat({ max_tokens: 1, stream: true }),
      await chat({ n: 0 }),
      await fetch(url),
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
  });
  await t.step("F55 a failing backend leaks nothing", async () => {
    const content = "[simulator: error 500]";
    const response = await chat({ messages: [{ role: "user", content }] });
    const text = await response.text();
    assert.equal(response.status, 502, text);
    assert.ok(JSON.parse(text).error.message);
    assert.ok(!/\bat \w|\.ts\b|sk-/.test(text), text);
  });
  await t.step("G56 models", async () => {
    const list = modelListSchema.parse(await (await call("/models")).json());
    assert.ok(list.data.some((model) => model.id === MODEL));
    const response = await call(`/models/${MODEL}`);
    const one = modelSchema.parse(await response.json());
    assert.deepEqual(one, list.data.find((model) => model.id === MODEL));
    for (const path of ["/models/nope", "/models/a%2Fb%20c"]) {
      const expected = { status: 404, code: "model_not_found" };
      await assertError(await call(path), expected);
    }
  });
  await t.step("G57 methods and paths", async () => {
    const wrongMethod = await call("/chat/completions");
    assert.ok(wrongMethod.headers.get("allow")?.includes("POST"));
    const expected = { status: 405, code: "method_not_allowed" };
    await assertError(wrongMethod, expected);
    for (const method of ["PUT", "DELETE", "PATCH"]) {
      await assertError(await call("/models", { method }), expected, method);
    }
    for (const path of ["/nope", "/embeddings"]) {
      const response = await call(path, { method: "POST" });
      await assertError(response, { status: 404 });
    }
    const options = await fetch(url, { method: "OPTIONS" });
    assert.equal(options.status, 204);
    assert.ok(options.headers.get("allow")?.includes("POST"));
    assert.equal(options.headers.get("access-control-allow-origin"), null);
    const outside = await fetch(`${cluster.state.edge_url}/nope`);
    await assertError(outside, { status: 404 });
  });
  await t.step("G57 an unknown URL gets a hint", async () => {
    const hint = async (url: string) => {
      const headers = { authorization: `Bearer ${key}` };
      const response = await fetch(url, { method: "POST", headers });
      return (await response.json()).error.message;
    };
    const there = "/v1/chat/completions, /v1/audio/speech, " +
      "/v1/images/generations, /v1/images/edits, /v1/audio/transcriptions, " +
      "/v1/audio/translations, /v1/videos, and /v1/models";
    assert.equal(
      await hint(`${cluster.baseUrl()}/responses`),
      `Invalid URL (POST /v1/responses). This service has ${there}.`,
    );
    assert.equal(
      await hint(`${cluster.state.edge_url}/chat/completions?key=${key}`),
      "Invalid URL (POST /chat/completions). All paths begin with /v1.",
    );
  });
  await t.step("G57 HEAD is answered like GET, without the body", async () => {
    for (const path of ["/models", `/models/${MODEL}`, "/models/nope"]) {
      const whole = await call(path);
      const headOnly = await call(path, { method: "HEAD" });
      const { length } = await whole.bytes();
      assert.equal(headOnly.status, whole.status, path);
      assert.equal(headOnly.headers.get("content-length"), String(length));
      assert.equal((await headOnly.bytes()).length, 0, path);
    }
  });
  await t.step("G58 ways of sending a body", async () => {
    const chunk = (text: string) =>
      `${text.length.toString(16)}\r\n${text}\r\n`;
    const chunked = await rawExchange(url, [
      head("Transfer-Encoding: chunked\r\n") + chunk(body.slice(0, 20)),
      { waitMs: 20 },
      `${chunk(body.slice(20))}0\r\n\r\n`,
    ]);
    assert.match(chunked, /^HTTP\/1.1 200 /);
    const expecting = await rawExchange(url, [
      head(`Content-Length: ${body.length}\r\nExpect: 100-continue\r\n`),
      { waitMs: 50 },
      body,
    ]);
    assert.match(expecting, /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200 /);
    const modern = head(`Content-Length: ${body.length}\r\n`) + body;
    const old = await rawExchange(url, [modern.replace("/1.1", "/1.0")]);
    assert.match(old, /^HTTP\/1.0 200 |^HTTP\/1.1 200 /);
    const reused = await rawExchange(url, [
      `${head("Content-Length: 1\r\n")}{`,
      { waitMs: 100 },
      modern,
    ]);
    assert.match(reused, /^HTTP\/1.1 400 [\s\S]*HTTP\/1.1 200 /);
  });
  await t.step("G59 nothing is compressed", async () => {
    const headers = { "accept-encoding": "gzip, deflate, br" };
    const body = { stream: true, max_tokens: 30 };
    const response = await chat(body, { headers });
    assert.equal(response.headers.get("content-encoding"), null);
    let pieces = 0;
    for await (const _piece of response.body ?? []) pieces += 1;
    assert.ok(pieces > 1, `${pieces} pieces`);
  });
};
