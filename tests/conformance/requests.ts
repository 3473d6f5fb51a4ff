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
  M1,
  MODEL,
  rawExchange,
  UNAUTHORIZED,
} from "./context.ts";

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

/** Keys: how they are sent, and what a wrong one gets. */
export const authenticationCases: Cases = async (
  t,
  { gateway, call, fetch },
) => {
  const base = gateway.baseUrl();
  const url = `${base}/chat/completions`;
  const key = gateway.state.api_key;
  // As bytes: for a text, fetch would add a Content-Type of its own.
  const ask = (headers: HeadersInit, body = JSON.stringify(M1)) =>
    fetch(url, {
      method: "POST",
      headers,
      body: new TextEncoder().encode(body),
    });

  await t.step("A1-A5 no key, no valid key: 401 to the letter", async () => {
    await assertUnauthorized(await ask({}), "no key");
    const wrong = [
      "Bearer sk-wrong",
      `Basic ${btoa(`u:${key}`)}`,
      key,
      "Bearer ",
      "Bearer",
    ];
    for (const authorization of wrong) {
      const what = authorization.slice(0, 8);
      await assertUnauthorized(await ask({ authorization }), what);
    }
  });
  await t.step("A4 the scheme's case does not matter", async () => {
    for (const scheme of ["bearer", "BEARER", "Bearer "]) {
      const response = await ask({ authorization: `${scheme} ${key}` });
      assert.equal(response.status, 200, scheme);
      await response.body?.cancel();
    }
  });
  await t.step("A6 disabled 403, enabled 200, deleted 401", async () => {
    const created = await gateway.createKey();
    const authorization = `Bearer ${created.key}`;
    const becomes = async (status: number) => {
      const response = await ask({ authorization });
      if (status === 200) {
        assert.equal(response.status, 200, await response.text());
      } else await assertUnauthorized(response, "A6", status);
    };
    await becomes(200);
    await gateway.keys("disable", created.id);
    await becomes(403);
    const bad = await ask({ authorization }, "{");
    await assertUnauthorized(bad, "disabled key, bad body", 403);
    await gateway.keys("enable", created.id);
    await becomes(200);
    await gateway.keys("delete", created.id);
    await becomes(401);
  });
  await t.step("A9-A10 without a key no path is revealed", async () => {
    await assertUnauthorized(await ask({}, "{"), "malformed JSON");
    await assertUnauthorized(await fetch(url), "wrong method");
    await assertUnauthorized(await fetch(`${base}/models`), "models");
    const images = `${base}/images/generations`;
    await assertUnauthorized(await fetch(images, { method: "POST" }), "images");
    const response = await call("/models");
    assert.equal(response.status, 200);
    await response.body?.cancel();
  });
  await t.step("A11 no key: refused before the body is read", async () => {
    // The body never comes: an edge that waits for it would not answer.
    const answer = await rawExchange(url, [
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
      "Authorization: Bearer sk-wrong\r\nContent-Length: 1000000\r\n\r\n",
    ]);
    assert.match(answer, /^HTTP\/1.1 401 /);
  });
};

/** Values around the bounds of a field, and of the wrong type. */
const FIELDS: [param: string, refused: unknown[], accepted: unknown[]][] = [
  ["temperature", [-0.1, 2.1, "hot", true], [0, 2]],
  ["top_p", [-0.1, 1.1], [0, 1]],
  ["presence_penalty", [-2.1, 2.1], [-2, 2]],
  ["repetition_penalty", [0, -1], [1.05]],
  ["n", [0, -1, 1.5, "2", 9], [8]],
  ["max_tokens", [0, -1, 1.5], [1]],
  ["seed", [1.5], [-1, 2147483647]],
  ["stream", ["true"], [false]],
  ["stop", [], [[], null]],
  ["model", [7], []],
  ["messages", [[], "hi"], []],
];

const says = (message: unknown) => ({ messages: [message] });
const LONG = { role: "user", content: "word ".repeat(200_000) };

/** Changes to a good request, the field that the error names, and its code. */
const REFUSED: [change: object, param?: string, code?: string][] = [
  [{ model: undefined }, "model", "missing_required_parameter"],
  [{ messages: undefined }, "messages", "missing_required_parameter"],
  [says(7), "messages[0]"],
  [says({ role: "bogus", content: "x" }), "messages[0].role"],
  [says({ role: "user" })],
  [says({ role: "user", content: 7 }), "messages[0].content"],
  [{ stop: [1] }],
  [{ stop: "" }, "stop", "empty_string"],
  [{ stop: "a".repeat(513) }, "stop", "string_above_max_length"],
  [{ priority: 5 }, "priority", "unsupported_parameter"],
  [{ response_format: {} }, "response_format.type"],
  [{ response_format: { type: "json_schema", json_schema: {} } }],
  [says(LONG), "messages", "context_length_exceeded"],
];

/** Fields: what is refused, and by which code. */
export const validationCases: Cases = async (t, { answer, chat }) => {
  const refuses = async (change: object, param?: string, code?: string) => {
    const what = JSON.stringify(change).slice(0, 80);
    await assertError(await chat(change), { status: 400, param, code }, what);
  };

  for (const [param, refused, accepted] of FIELDS) {
    await t.step(`E45-E49 ${param}`, async () => {
      for (const value of refused) await refuses({ [param]: value }, param);
      for (const value of accepted) {
        await answer({ max_tokens: 2, [param]: value });
      }
    });
  }
  await t.step("E45-E51 other mistakes", async () => {
    for (const row of REFUSED) await refuses(...row);
  });
  await t.step("E45 an unknown model is named", async () => {
    const response = await chat({ model: "nope" });
    assert.match(await response.clone().text(), /nope/);
    await assertError(response, { status: 404, code: "model_not_found" });
  });
  await t.step("E49 a JSON object where one is asked for", async () => {
    const format = { response_format: { type: "json_object" } };
    const { choices: [choice] } = await answer(format);
    assert.equal(typeof JSON.parse(choice?.message.content ?? ""), "object");
  });
  // E50 and E51, bodies that are no request or too large: tests/hostile.
};

/** Paths and methods: what exists, and what an unknown one gets. */
export const routingCases: Cases = async (
  t,
  { gateway, call, chat, fetch },
) => {
  const url = `${gateway.baseUrl()}/chat/completions`;
  const { api_key: key } = gateway.state;
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
    const outside = await fetch(`${gateway.state.edge_url}/nope`);
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
      await hint(`${gateway.baseUrl()}/responses`),
      `Invalid URL (POST /v1/responses). This service has ${there}.`,
    );
    assert.equal(
      await hint(`${gateway.state.edge_url}/chat/completions?key=${key}`),
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
