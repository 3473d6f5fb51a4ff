// Messages, responses and completions through edge, bus and worker: events pass to the
// byte, and what they say of usage, ends and errors is understood.
import assert from "node:assert/strict";
import {
  chunk,
  CLOSE,
  jsonResponse,
  lastChunk,
  PAUSE,
  typed,
} from "../support/model_servers/model_answers.ts";
import type { Step } from "../support/model_servers/scripted_server.ts";
import {
  DIALECTS,
  RESPONSE,
  stream,
  WHOLE_COMPLETION,
  WHOLE_MESSAGE,
  WHOLE_RESPONSE,
} from "./event_streams.ts";
import { setup, setupWith } from "./forward_rig.ts";

/** How a server may cut its events. */
const DELIVERIES: { readonly [how: string]: (events: string) => Step[] } = {
  "in one packet": (events) => [...stream(events), lastChunk],
  "in pieces of five bytes": (events) => {
    const bytes = new TextEncoder().encode(events);
    const pieces = Array.from(
      { length: Math.ceil(bytes.length / 5) },
      (_, at) => chunk(bytes.slice(5 * at, 5 * at + 5)),
    );
    return [...stream(), ...pieces, lastChunk];
  },
  "event by event": (events) => [
    ...stream(),
    ...events.split(/(?<=\n\n|\n\r\n)/).flatMap((each) => [chunk(each), PAUSE]),
    CLOSE,
  ],
};

Deno.test("events pass to the byte, however they are cut, and their usage is counted", async () => {
  for (const { path, body, events, usage } of DIALECTS) {
    for (const [how, deliver] of Object.entries(DELIVERIES)) {
      await using rig = await setup(() => deliver(events));
      const answer = await rig.post(path, body);
      assert.equal(await answer.text(), events, `${path} ${how}`);
      assert.equal(answer.status, 200);
      assert.match(
        answer.headers.get("content-type") ?? "",
        /^text\/event-stream/,
      );
      assert.equal(answer.headers.get("request-id"), "theirs");
      const request = await rig.request();
      assert.equal(request.path, `/v1/${path}`);
      assert.equal(request.body, body.replace("talk", "BAAI/bge-m3"));
      assert.partialDeepStrictEqual(
        rig.settlements(),
        [{ kind: "complete", usage }],
        `${path} ${how}`,
      );
    }
  }
});

Deno.test("whole answers pass to the byte, and their usage is counted", async () => {
  const cases = [
    {
      path: "messages",
      answer:
        '{"id":"m", "content":[],"usage":{"input_tokens":3,"output_tokens":4}}',
    },
    {
      path: "responses",
      answer: '{"usage":{"input_tokens":3,"output_tokens":4},"output":[1.0]}',
    },
    {
      path: "responses/compact",
      answer: '{"usage":{"input_tokens":3,"output_tokens":4}}',
      dialect: "openai" as const,
    },
    {
      path: "completions",
      answer:
        '{"choices":[{"text":"a"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}',
    },
  ];
  for (const { path, answer: text, dialect = "vllm" } of cases) {
    await using rig = await setupWith(
      { backend: { dialect } },
      () => jsonResponse(text),
    );
    const answer = await rig.post(path, '{"model":"talk","input":"a"}');
    assert.equal(await answer.text(), text, path);
    assert.partialDeepStrictEqual(rig.settlements(), [
      { usage: { prompt_tokens: 3, completion_tokens: 4 } },
    ]);
  }
});

Deno.test("a server that answers a streamed request with one body is heard, too", async () => {
  const text =
    '{"id":"m","content":[],"usage":{"input_tokens":3,"output_tokens":4}}';
  await using rig = await setup(() => jsonResponse(text));
  const answer = await rig.post("messages", DIALECTS[0]?.body ?? "");
  assert.equal(answer.headers.get("content-type"), "application/json");
  assert.equal(await answer.text(), text);
});

Deno.test("headers of agents pass to the server, and a bound above the model's is lowered in place", async () => {
  await using rig = await setup(() => [...stream(WHOLE_MESSAGE), lastChunk]);
  const body = '{"max_tokens": 64000,"model":"talk","stream":true,"x":1.0}';
  const answer = await rig.post("messages?beta=true", body, {
    "anthropic-version": "2024-01-01",
    "anthropic-beta": "a-1,b-2",
    "x-claude-code-session-id": "s1",
  });
  assert.equal(await answer.text(), WHOLE_MESSAGE);
  const { path, body: serverBody, headers } = await rig.request();
  assert.equal(path, "/v1/messages?beta=true");
  assert.equal(
    serverBody,
    body.replace("64000", "1000").replace("talk", "BAAI/bge-m3"),
  );
  assert.equal(headers.get("anthropic-version"), "2024-01-01");
  assert.equal(headers.get("anthropic-beta"), "a-1,b-2");
  assert.equal(headers.get("x-claude-code-session-id"), "s1");
});

Deno.test("a bound is lowered under each name, and thinking to less than it", async () => {
  const thinking = (budget: number) =>
    `"thinking":{"type":"enabled", "budget_tokens" : ${budget}}`;
  const cases = [
    { path: "messages", more: thinking(31_999), sent: thinking(999) },
    { path: "messages", more: thinking(999), sent: thinking(999) },
    // A mistake of the client, which its server tells it.
    { path: "messages", more: thinking(32_000), sent: thinking(32_000) },
    {
      path: "completions",
      more: '"max_completion_tokens":9e9',
      sent: '"max_completion_tokens":1000',
    },
    {
      path: "responses",
      more: '"max_output_tokens":1001,"metadata":{"max_tokens":5000}',
      sent: '"max_output_tokens":1000,"metadata":{"max_tokens":5000}',
    },
  ];
  for (const { path, more, sent } of cases) {
    await using rig = await setup(() => jsonResponse('{"output":[]}'));
    const answer = await rig.post(
      path,
      `{"max_tokens": 32000,"model":"talk",${more}}`,
    );
    assert.equal(answer.status, 200, more);
    await answer.body?.cancel();
    const { body } = await rig.request();
    assert.equal(body, `{"max_tokens": 1000,"model":"BAAI/bge-m3",${sent}}`);
  }
  await using roomy = await setupWith(
    { model: { output_tokens: 8_000 } },
    () => jsonResponse('{"output":[]}'),
  );
  const answer = await roomy.post(
    "messages",
    `{"max_tokens":32000,"model":"talk",${thinking(31_999)}}`,
  );
  await answer.body?.cancel();
  const { body } = await roomy.request();
  assert.ok(body.includes(thinking(4_000)), body);
});

Deno.test("tools that a server refuses are taken out where the models file says so, and named", async () => {
  await using rig = await setupWith(
    { backend: { drop_tool_types: ["web_search"] } },
    () => [...stream(WHOLE_MESSAGE), lastChunk],
  );
  const tool = '{"name":"Bash","x":1.0}';
  const body =
    `{"model":"talk","stream":true,"tools":[{"type":"web_search"},${tool}]}`;
  const answer = await rig.post("messages", body);
  assert.equal(await answer.text(), WHOLE_MESSAGE);
  assert.equal(answer.headers.get("x-dropped-tool-types"), "web_search");
  const { body: serverBody } = await rig.request();
  assert.equal(
    serverBody,
    `{"model":"BAAI/bge-m3","stream":true,"tools":[${tool}]}`,
  );
});

Deno.test("a server of the dialect 'anthropic' gets its key and version in its own headers", async () => {
  await using rig = await setupWith(
    { backend: { dialect: "anthropic" } },
    () => [...stream(WHOLE_MESSAGE), lastChunk],
  );
  const answer = await rig.post("messages", DIALECTS[0]?.body ?? "");
  await answer.text();
  const { headers } = await rig.request();
  assert.match(headers.get("x-api-key") ?? "", /^upstream-key/);
  assert.equal(headers.get("authorization"), undefined);
  assert.equal(headers.get("anthropic-version"), "2023-06-01");
});

Deno.test("events for a whole request: the whole answer in them is read, or an error costs one generation", async () => {
  const end = '{"id":"resp_1","x":1.0,"output":[],' +
    '"usage":{"input_tokens":9,"output_tokens":3}}';
  const completed = "event: response.completed\n" +
    `data: {"type":"response.completed","response":${end}}\n\n`;
  const overloaded =
    'data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n';
  const cases = [
    { path: "responses", events: WHOLE_RESPONSE + completed, status: 200 },
    { path: "responses", events: RESPONSE.text("a"), status: 502 },
    { path: "messages", events: WHOLE_MESSAGE, status: 502 },
    { path: "messages", events: overloaded, status: 503 },
    { path: "completions", events: WHOLE_COMPLETION, status: 502 },
  ];
  for (const { path, events, status } of cases) {
    // Under either label: a body is read by what it is.
    for (const type of ["text/event-stream", "application/json"]) {
      await using rig = await setup(
        () => [typed(type), chunk(events), lastChunk],
      );
      const body = '{"model":"talk","max_tokens":10,"input":"a","prompt":"a"}';
      const answer = await rig.post(path, body);
      const text = await answer.text();
      assert.equal(answer.status, status, `${path} ${type}: ${text}`);
      if (status === 200) {
        assert.equal(text, end);
        assert.equal(answer.headers.get("content-type"), "application/json");
      }
      if (status === 502) {
        assert.match(text, /events although `stream` is not set/);
        assert.equal(rig.servers[0]?.requests.length, 1);
        const [settled] = rig.settlements();
        assert.ok((settled?.usage?.completion_tokens ?? 0) > 0, path);
      }
    }
  }
});
