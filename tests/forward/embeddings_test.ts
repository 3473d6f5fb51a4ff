// Embeddings and rerankings through edge, bus and worker: bodies and answers pass to
// the byte, and what they cost is counted.
import assert from "node:assert/strict";
import { BACKEND_KEY } from "../support/gateway/in_process_worker.ts";
import { head, jsonResponse } from "../support/model_servers/model_answers.ts";
import { setup } from "./forward_rig.ts";

const VECTORS =
  '{"object":"list", "data":[{"index":0,"embedding":[1.0,-2e-9]},' +
  '{"index":1,"embedding":"AACAPw=="}],\n"model":"BAAI/bge-m3",' +
  '"usage":{"prompt_tokens":7,"total_tokens":7},"x":12345678901234567890}';

Deno.test("POST /v1/embeddings passes body and answer to the byte, and counts the usage", async () => {
  await using rig = await setup(() =>
    jsonResponse(VECTORS, { headers: { "request-id": "r1", server: "x" } })
  );
  const body =
    '{ "input":["a","\\u00e9é"],"dimensions": 2.0,"encoding_format":' +
    '"base64","model" :"embed","big":12345678901234567890}';
  const answer = await rig.post("embeddings?api-version=1", body, {
    "x-stainless-lang": "js",
    "x-api-key": "sk-other",
  });
  assert.equal(await answer.text(), VECTORS);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "application/json");
  assert.equal(answer.headers.get("request-id"), "r1");
  assert.equal(answer.headers.get("server"), null);
  const request = await rig.servers[0]?.request(1) ?? assert.fail();
  assert.equal(request.path, "/v1/embeddings?api-version=1");
  assert.equal(request.body, body.replace('"embed"', '"BAAI/bge-m3"'));
  assert.equal(request.headers.get("x-stainless-lang"), "js");
  assert.equal(request.headers.get("authorization"), `Bearer ${BACKEND_KEY}`);
  assert.equal(request.headers.has("x-api-key"), false);
  assert.partialDeepStrictEqual(rig.settlements(), [{
    kind: "complete",
    usage: { prompt_tokens: 7, completion_tokens: 0, total_tokens: 7 },
  }]);
});

Deno.test("POST /v1/embeddings asks another server if one sends too few vectors", async () => {
  const empty = '{"object":"list","data":[],"usage":{"prompt_tokens":0}}';
  await using rig = await setup(
    () => jsonResponse(empty),
    () => jsonResponse(VECTORS),
  );
  const answer = await rig.post(
    "embeddings",
    '{"model":"embed","input":["a","b"]}',
  );
  assert.equal(await answer.text(), VECTORS);
});

Deno.test("POST /v1/embeddings passes a large answer whole", async () => {
  const vector = Array.from({ length: 1_536 }, (_, n) => (n / 7).toFixed(8));
  const data = Array.from(
    { length: 100 },
    (_, index) =>
      `{"object":"embedding","index":${index},"embedding":[${vector}]}`,
  );
  const large =
    `{"object":"list","data":[${data}],"usage":{"prompt_tokens":300}}`;
  await using rig = await setup(() => jsonResponse(large));
  const input = data.map((_, index) => `text ${index}`);
  const answer = await rig.post(
    "embeddings",
    JSON.stringify({ model: "embed", input }),
  );
  assert.equal(await answer.text(), large);
  assert.equal(answer.headers.get("content-length"), `${large.length}`);
});

Deno.test("POST /v1/rerank passes Cohere's and Jina's shapes, and counts their tokens", async () => {
  const answers = [
    {
      text:
        '{"results":[{"index":1,"relevance_score":0.9}],"usage":{"total_tokens":12}}',
      tokens: 12,
    },
    {
      text: '{"id":"x","results":[],"meta":{"tokens":{"input_tokens":5}}}',
      tokens: 5,
    },
  ];
  for (const { text, tokens } of answers) {
    await using rig = await setup(() => jsonResponse(text));
    const body =
      '{"model":"order","query":"q","documents":["a","b"],"top_n":1}';
    const answer = await rig.post("rerank", body);
    assert.equal(await answer.text(), text);
    assert.equal(rig.servers[0]?.requests[0]?.path, "/v1/rerank");
    assert.partialDeepStrictEqual(rig.settlements(), [
      { usage: { prompt_tokens: tokens } },
    ]);
  }
});

Deno.test("a forwarded request without usage in its answer costs what was estimated", async () => {
  await using rig = await setup(() =>
    jsonResponse('{"data":[{"embedding":[1]}]}')
  );
  const answer = await rig.post(
    "embeddings",
    '{"model":"embed","input":[1,2,3,4,5]}',
  );
  assert.equal(answer.status, 200);
  await answer.body?.cancel();
  assert.partialDeepStrictEqual(rig.settlements(), [
    { usage: { prompt_tokens: 5, completion_tokens: 0 } },
  ]);
});

Deno.test("a server that refuses a forwarded request is heard in its own words, without secrets", async () => {
  const refusal =
    '{"object":"error", "message":"This model\'s maximum context length is 512 tokens.","code":400}';
  const cases = [
    { status: 400, text: refusal, expected: refusal, headers: {} },
    {
      status: 422,
      text: '{"detail":[{"loc":["body","x"],"msg":"bad"}]}',
      expected: null,
      headers: {},
    },
    {
      status: 429,
      text: '{"error":{"message":"Slow down"}}',
      expected: null,
      headers: { "retry-after": "90" },
    },
    {
      status: 400,
      text:
        `{"error":{"message":"No model BAAI/bge-m3 at 10.0.0.7:8000 for ${BACKEND_KEY}"}}`,
      expected:
        '{"error":{"message":"No model embed at [redacted] for [redacted]"}}',
      headers: {},
    },
  ];
  for (const { status, text, expected, headers } of cases) {
    await using rig = await setup(() =>
      jsonResponse(text, { status, headers })
    );
    const answer = await rig.post(
      "embeddings",
      '{"model":"embed","input":"a"}',
    );
    assert.equal(answer.status, status);
    assert.equal(await answer.text(), expected ?? text);
    const isFinal = "retry-after" in headers;
    assert.equal(
      answer.headers.get("retry-after"),
      headers["retry-after"] ?? null,
    );
    assert.equal(
      answer.headers.get("x-should-retry"),
      isFinal ? "false" : null,
    );
    assert.partialDeepStrictEqual(rig.settlements(), [{ kind: "failed" }]);
  }
});

Deno.test("a refusal may be told in words alone, and its time to wait as a date", async () => {
  const words = "Failed to deserialize the JSON body: missing field `inputs`";
  const plain = { "content-type": "text/plain; charset=utf-8" };
  const text = `${words} at http://10.0.0.7:8000/x`;
  const refusal = head(
    `422 Unprocessable Entity\r\ncontent-type: ${plain["content-type"]}\r\n` +
      `content-length: ${text.length}`,
    text,
  );
  await using rig = await setup(() => [refusal]);
  const body = '{"model":"embed","input":"a"}';
  const answer = await rig.post("embeddings", body);
  assert.equal(answer.status, 422);
  assert.equal(answer.headers.get("content-type"), "text/plain");
  assert.equal(await answer.text(), `${words} at [redacted]`);
  const date = "Sun, 29 Nov 2026 08:00:00 GMT";
  const later = "Sun, 29 Nov 2026 08:01:01 GMT";
  await using busy = await setup(() =>
    jsonResponse('{"error":{"message":"Slow down"}}', {
      status: 429,
      headers: { date, "retry-after": later },
    })
  );
  const late = await busy.post("embeddings", body);
  await late.body?.cancel();
  assert.equal(late.headers.get("retry-after"), "61");
  assert.equal(late.headers.get("x-should-retry"), "false");
});

Deno.test("faults of a server other than refusals are told in our own words", async () => {
  const cases = [
    {
      status: 401,
      text: '{"error":{"message":"Bad key"}}',
      code: "upstream_error",
    },
    {
      status: 500,
      text: '{"error":{"message":"CUDA"}}',
      code: "upstream_error",
    },
    { status: 404, text: '{"detail":"Not Found"}', code: "upstream_error" },
    { status: 404, text: "404 page not found", code: "upstream_error" },
    { status: 200, text: "<html>", code: "upstream_invalid" },
    { status: 200, text: '{"data":[{},{}]}', code: "upstream_invalid" },
  ];
  for (const { status, text, code } of cases) {
    await using rig = await setup(() => jsonResponse(text, { status }));
    const answer = await rig.post(
      "embeddings",
      '{"model":"embed","input":"a"}',
    );
    assert.equal(answer.status, 502, text);
    assert.partialDeepStrictEqual(await answer.json(), { error: { code } });
  }
});

Deno.test("a forwarded request is checked before it is admitted", async () => {
  const cases = [
    { path: "embeddings", body: "[]", status: 400, param: null },
    { path: "embeddings", body: "{", status: 400, param: null },
    { path: "embeddings", body: "{}", status: 400, param: "model" },
    { path: "embeddings", body: '{"model":1}', status: 400, param: "model" },
    {
      path: "embeddings",
      body: '{"model":"embed","stream":1}',
      status: 400,
      param: "stream",
    },
    {
      path: "rerank",
      body: '{"model":"order","stream":"yes"}',
      status: 400,
      param: "stream",
    },
    {
      path: "embeddings",
      body: '{"model":"a","model":"b"}',
      status: 400,
      param: "model",
    },
    { path: "embeddings", body: '{"model":"none"}', status: 404, param: null },
    { path: "embeddings", body: '{"model":"talk"}', status: 404, param: null },
    { path: "rerank", body: '{"model":"embed"}', status: 404, param: null },
    {
      path: "chat/completions",
      body: '{"model":"embed","messages":[]}',
      status: 404,
      param: null,
    },
    {
      path: "embeddings",
      body: '{"model":"embed","priority":5}',
      status: 400,
      param: "priority",
    },
  ];
  await using rig = await setup(() => jsonResponse(VECTORS));
  for (const { path, body, status, param } of cases) {
    const answer = await rig.post(path, body);
    assert.equal(answer.status, status, body);
    assert.partialDeepStrictEqual(
      await answer.json(),
      { error: { param } },
      body,
    );
  }
  assert.equal(rig.servers[0]?.requests.length, 0);
  assert.deepEqual(rig.settlements(), []);
});

Deno.test("embeddings and rerankings refuse addresses to fetch, but not texts with some", async () => {
  await using rig = await setup(() => jsonResponse(VECTORS));
  const image = (url: string) =>
    `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"${url}"}}]}]`;
  const cases = [
    { more: `"messages":${image("http://10.0.0.1/")}`, status: 400 },
    { more: `"messages":${image("data:image/png;base64,AA")}`, status: 200 },
    { more: '"input":["http://a","https://b"]', status: 200 },
  ];
  for (const { more, status } of cases) {
    const answer = await rig.post("embeddings", `{"model":"embed",${more}}`);
    assert.equal(answer.status, status, more);
    await answer.body?.cancel();
  }
});
