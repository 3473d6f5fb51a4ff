// What forwarded endpoints refuse, in the words of their dialects.
import assert from "node:assert/strict";
import net from "node:net";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { KEY, setup, setupWith } from "./forward_rig.ts";

const MESSAGE =
  '{"id":"m","content":[],"usage":{"input_tokens":3,"output_tokens":4}}';
const ask = (more = "") => `{"model":"talk","max_tokens":5${more}}`;

Deno.test("refusals of /v1/messages have Anthropic's form, except failed authentications", async () => {
  await using rig = await setup(() => jsonResponse(MESSAGE));
  const cases = [
    { body: "{", status: 400, type: "invalid_request_error" },
    { body: "[]", status: 400, type: "invalid_request_error" },
    { body: ask(',"model":"x"'), status: 400, type: "invalid_request_error" },
    { body: ask(',"stream":1'), status: 400, type: "invalid_request_error" },
    {
      body: ask(',"stream":true,"stream":false'),
      status: 400,
      type: "invalid_request_error",
    },
    {
      body: '{"model":"talk","max_tokens":"many"}',
      status: 400,
      type: "invalid_request_error",
    },
    {
      body: '{"model":"none","max_tokens":5}',
      status: 404,
      type: "not_found_error",
    },
    {
      body: '{"model":"embed","max_tokens":5}',
      status: 404,
      type: "not_found_error",
    },
    {
      body: ask(',"cache_salt":"x"'),
      status: 400,
      type: "invalid_request_error",
    },
  ];
  for (const { body, status, type } of cases) {
    const answer = await rig.post("messages", body);
    assert.equal(answer.status, status, body);
    const refusal = await answer.json();
    assert.equal(refusal.type, "error");
    assert.equal(refusal.error.type, type);
    assert.equal(refusal.request_id, answer.headers.get("x-request-id"));
    assert.equal(refusal.request_id, answer.headers.get("request-id"));
  }
  const wrong = await rig.post("messages", ask(), {
    authorization: "Bearer no",
  });
  assert.equal(wrong.status, 401);
  assert.equal(wrong.headers.get("x-should-retry"), "false");
  assert.deepEqual(await wrong.json(), {
    error: { code: "unauthorized", message: "unauthorized", type: "error" },
  });
  assert.equal(rig.servers[0]?.requests.length, 0);
});

const pictureAt = (url: string) =>
  `,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"${url}"}}]}]`;
const HISTORY =
  ',"messages":[{"role":"assistant","content":[{"type":"tool_use",' +
  '"input":{"image_url":"http://a"}}]},{"role":"user","content":"see \\"http://a\\""}]';
/** Members of requests; null where their server fetches nothing. */
const FETCHES = [
  {
    path: "messages",
    more: pictureAt("http://10.0.0.1/a.png"),
    param: "messages[0].content[0].source.url",
  },
  {
    path: "messages",
    more: pictureAt("data:image/png;base64,AAAA"),
    param: null,
  },
  {
    path: "messages",
    more:
      ',"messages":[{"content":[{"type":"image","source":{"url":"http://a"}}]}]',
    param: "messages[0].content[0].source.url",
  },
  {
    path: "messages",
    more: ',"mcp_servers":[{"name":"a","url":"http://a"}]',
    param: "mcp_servers[0].url",
  },
  { path: "messages", more: HISTORY, param: null },
  {
    path: "messages",
    more: ',"tools":[{"name":"a","input_examples":[{"url":"http://a"}]}]',
    param: null,
  },
  {
    path: "responses",
    more:
      ',"input":[{"type":"web_search_call","action":{"type":"search","sources":[{"type":"url","url":"http://a"}]}}]',
    param: null,
  },
  {
    path: "responses",
    more:
      ',"input":[{"content":[{"type":"input_image","image_url":"https://x/a"}]}]',
    param: "input[0].content[0].image_url",
  },
  {
    path: "responses",
    more: ',"tools":[{"type":"mcp","server_url":"http://a"}]',
    param: "tools[0].server_url",
  },
];

Deno.test("a request to fetch an address is refused, unless the model's server may", async () => {
  await using closed = await setup(() => jsonResponse(MESSAGE));
  await using open = await setupWith(
    { model: { fetches_urls: true } },
    () => jsonResponse(MESSAGE),
  );
  for (const { path, more, param } of FETCHES) {
    const refused = await closed.post(path, ask(more));
    assert.equal(refused.status, param === null ? 200 : 400, more);
    const text = await refused.text();
    if (param !== null) assert.ok(text.includes(`'${param}'`), text);
    const passed = await open.post(path, ask(more));
    assert.equal(passed.status, 200);
    await passed.body?.cancel();
  }
});

Deno.test("an address is refused however it is written, and one of a file from every server", async () => {
  const parts = (url: string) =>
    `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"${url}"}}]}]`;
  const escaped = "\\u0068ttp://10.0.0.1/";
  const name = '"image\\u005furl":"http://10.0.0.1/"';
  const cases = [
    { path: "messages", more: `,"messages":${parts(escaped)}`, open: 200 },
    { path: "messages", more: `,"messages":[{${name}}]`, open: 200 },
    { path: "responses", more: `,"input":${parts(" http://a")}`, open: 200 },
    {
      path: "responses",
      more: `,"prompt":{"variables":${parts("http://a")}}`,
      open: 200,
    },
    { path: "responses", more: `,"input":${parts("file:///a")}`, open: 400 },
    {
      path: "completions",
      more: `,"prompt":"a","image_url":"ftp://a"`,
      open: 200,
    },
  ];
  await using closed = await setup(() => jsonResponse(MESSAGE));
  await using open = await setupWith(
    { model: { fetches_urls: true } },
    () => jsonResponse(MESSAGE),
  );
  for (const { path, more, open: status } of cases) {
    const refused = await closed.post(path, ask(more));
    assert.equal(refused.status, 400, more);
    await refused.body?.cancel();
    const passed = await open.post(path, ask(more));
    assert.equal(passed.status, status, more);
    await passed.body?.cancel();
  }
  assert.equal(closed.servers[0]?.requests.length, 0);
});

Deno.test("media are refused where the operator says what a model accepts, else its server decides", async () => {
  const image = '{"type":"image","source":{"type":"base64","data":"AAAA"}}';
  const file = '{"type":"input_file","file_data":"data:a/b;base64,AAAA"}';
  const user = (content: string) => `[{"role":"user","content":[${content}]}]`;
  const result = `{"type":"tool_result","content":[${image}]}`;
  const call = `{"type":"tool_use","input":{"a":[${image}]}}`;
  const cases = [
    { path: "messages", more: `,"messages":${user(image)}`, at: "" },
    {
      path: "messages",
      more: `,"messages":${user(result)}`,
      at: "messages[0].content[0].content[0].type",
    },
    { path: "messages", more: `,"messages":${user(call)}`, at: null },
    {
      path: "responses",
      more: `,"input":${user(file)}`,
      at: "input[0].content[0].type",
    },
    {
      path: "responses",
      more:
        `,"input":[{"type":"function_call_output","output":[{"type":"input_image"}]}]`,
      at: "input[0].output[0].type",
    },
  ];
  const reply = () => jsonResponse(MESSAGE);
  const models = [{}, { accepts: [] }, { accepts: ["image", "file"] as const }];
  for (const [index, model] of models.entries()) {
    const accepts = model.accepts && [...model.accepts];
    const change = accepts === undefined ? {} : { accepts };
    await using rig = await setupWith({ model: change }, reply);
    for (const { path, more, at } of cases) {
      const answer = await rig.post(path, ask(more));
      const text = await answer.text();
      const isRefused = index === 1 && at !== null;
      assert.equal(answer.status, isRefused ? 400 : 200, more);
      if (isRefused) assert.match(text, /'accepts'/);
      if (isRefused && path === "responses") {
        assert.equal(JSON.parse(text).error.param, at);
      }
    }
  }
});

Deno.test("a model that is closed to unknown members is so at forwarded endpoints, too", async () => {
  const model = { only_known_fields: true, refuse_fields: ["top_p"] };
  const reply = () => jsonResponse(MESSAGE);
  await using rig = await setupWith({ model }, reply);
  const cases = [
    { more: ',"temperature":1,"system":"Be kind"', status: 200 },
    { more: ',"mystery":1', status: 400 },
    { more: ',"mystery":null', status: 200 },
    { more: ',"top_p":1', status: 400 },
  ];
  for (const { more, status } of cases) {
    const answer = await rig.post("messages", ask(more));
    assert.equal(answer.status, status, more);
    await answer.body?.cancel();
  }
});

Deno.test("an endpoint that no server of a model has is refused, and says what to set", async () => {
  await using rig = await setup(() => jsonResponse(MESSAGE));
  const answer = await rig.post("messages", '{"model":"plain","max_tokens":5}');
  assert.equal(answer.status, 400);
  const { error } = await answer.json();
  assert.match(
    error.message,
    /'plain'.*\/v1\/messages.*'dashscope'.*'messages'.*'speaks'/,
  );
  await using other = await setupWith(
    { backend: { dialect: "anthropic" } },
    () => jsonResponse(MESSAGE),
  );
  const chat = await other.post(
    "chat/completions",
    '{"model":"talk","messages":[{"role":"user","content":"a"}]}',
  );
  assert.equal(chat.status, 400);
  assert.match(await chat.text(), /chat\/completions/);
  await using explicit = await setupWith(
    { backend: { dialect: "dashscope", speaks: ["messages"] } },
    () => jsonResponse(MESSAGE),
  );
  assert.equal(await (await explicit.post("messages", ask())).text(), MESSAGE);
});

Deno.test("what a server would have to remember is refused, unless the model is stateful", async () => {
  const members = [
    '"previous_response_id":"resp_1"',
    '"conversation":{"id":"c"}',
    '"background":true',
  ];
  await using rig = await setup(() => jsonResponse(MESSAGE));
  await using stateful = await setupWith(
    { model: { stateful: true } },
    () => jsonResponse(MESSAGE),
  );
  for (const member of members) {
    const body = `{"model":"talk","input":"a",${member}}`;
    const refused = await rig.post("responses", body);
    assert.equal(refused.status, 400, member);
    assert.match(await refused.text(), /nothing is stored here/);
    const passed = await stateful.post("responses", body);
    assert.equal(await passed.text(), MESSAGE);
  }
  const harmless =
    '{"model":"talk","input":"a","background":false,"store":true,"previous_response_id":null}';
  const answer = await rig.post("responses", harmless);
  assert.equal(await answer.text(), MESSAGE);
});

Deno.test("responses are neither kept nor sent over a WebSocket", async () => {
  await using rig = await setup(() => jsonResponse(MESSAGE));
  const url = `${rig.gateway.baseUrl()}/responses`;
  const headers = { authorization: `Bearer ${KEY}` };
  const cases = [
    { method: "GET", path: "/resp_1", status: 404 },
    { method: "DELETE", path: "/resp_1", status: 404 },
    { method: "POST", path: "/resp_1/cancel", status: 404 },
    { method: "GET", path: "", status: 405 },
    { method: "GET", path: "/resp_1/input_items", status: 404 },
  ];
  for (const { method, path, status } of cases) {
    const answer = await fetch(url + path, { method, headers });
    assert.equal(answer.status, status, `${method} ${path}`);
    await answer.body?.cancel();
  }
  assert.match(await upgrade(url), /^HTTP\/1.1 426 .*upgrade_required/s);
});

/** The answer to a request for a WebSocket. */
async function upgrade(address: string): Promise<string> {
  const { port, pathname } = new URL(address);
  const socket = net.connect(Number(port), "127.0.0.1");
  socket.end(
    `GET ${pathname} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${KEY}\r\n` +
      "connection: Upgrade, close\r\nupgrade: websocket\r\n" +
      "sec-websocket-version: 13\r\nsec-websocket-key: AAAA\r\n\r\n",
  );
  let text = "";
  for await (const piece of socket) text += piece;
  return text;
}

Deno.test("Anthropic's clients may send their key in x-api-key, but no other one beside it", async () => {
  await using rig = await setup(() => jsonResponse(MESSAGE));
  const other = mintKey(randomBytes);
  const none = { authorization: "" };
  const cases = [
    { path: "messages", headers: { ...none, "x-api-key": KEY }, status: 200 },
    { path: "messages", headers: { "x-api-key": KEY }, status: 200 },
    { path: "messages", headers: { "x-api-key": other }, status: 401 },
    {
      path: "messages",
      headers: { ...none, "x-api-key": "sk-wrong" },
      status: 401,
    },
    { path: "responses", headers: { ...none, "x-api-key": KEY }, status: 401 },
    { path: "responses", headers: { "x-api-key": other }, status: 200 },
  ];
  for (const { path, headers, status } of cases) {
    const answer = await rig.post(path, ask(), headers);
    assert.equal(answer.status, status, `${path} ${Object.keys(headers)}`);
    await answer.body?.cancel();
  }
});

Deno.test("GET /v1/models has Anthropic's shape for a client that names its version", async () => {
  await using rig = await setup(() => jsonResponse(MESSAGE));
  const get = async (path: string, headers: Record<string, string>) => {
    const answer = await fetch(`${rig.gateway.baseUrl()}/models${path}`, {
      headers,
    });
    return await answer.json();
  };
  const headers = { "x-api-key": KEY, "anthropic-version": "2023-06-01" };
  const list = await get("?limit=1000", headers);
  assert.partialDeepStrictEqual(list, {
    has_more: false,
    first_id: "embed",
    last_id: "plain",
  });
  const model = {
    type: "model",
    id: "talk",
    display_name: "talk",
    created_at: "2026-01-01T00:00:00.000Z",
  };
  assert.deepEqual(list.data[2], model);
  assert.deepEqual(await get("/talk", headers), model);
  assert.partialDeepStrictEqual(await get("/none", headers), {
    type: "error",
    error: { type: "not_found_error" },
  });
  const usual = await get("", { authorization: `Bearer ${KEY}` });
  assert.equal(usual.object, "list");
});
