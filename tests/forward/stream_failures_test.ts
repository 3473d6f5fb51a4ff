// Streams of messages, responses and completions that fail, fall silent, or are left.
import assert from "node:assert/strict";
import {
  chunk,
  CLOSE,
  lastChunk,
  PAUSE,
  STALL,
  streamHead,
} from "../support/model_servers/model_answers.ts";
import type { Step } from "../support/model_servers/scripted_server.ts";
import { until } from "../support/wait_for.ts";
import {
  completion,
  DIALECTS,
  MESSAGE,
  namedEvent,
  RESPONSE,
  stream,
} from "./event_streams.ts";
import { setup, setupWith } from "./forward_rig.ts";

/** Longer than any test. */
const PATIENT_MS = 60_000;

Deno.test("until the model has begun, another server may still answer", async () => {
  const failures: { path: number; steps: Step[] }[] = [
    { path: 0, steps: [...stream(MESSAGE.start, MESSAGE.ping), CLOSE] },
    {
      path: 0,
      steps: stream(
        MESSAGE.start,
        namedEvent("error", {
          error: { type: "overloaded_error", message: "Overloaded" },
        }),
      ),
    },
    {
      path: 1,
      steps: stream(
        RESPONSE.created +
          namedEvent("response.failed", {
            response: { error: { code: "server_error", message: "x" } },
          }),
      ),
    },
    {
      path: 2,
      steps: stream('data: {"error":{"message":"x","code":500}}\n\n'),
    },
  ];
  for (const { path, steps } of failures) {
    const dialect = DIALECTS[path] ?? assert.fail();
    await using rig = await setup(
      () => steps,
      () => [...stream(dialect.events), lastChunk],
    );
    const answer = await rig.post(dialect.path, dialect.body);
    assert.equal(await answer.text(), dialect.events);
  }
});

Deno.test("a refusal with which a stream begins reaches the client in the server's words", async () => {
  const failed = (code: string) => ({ error: { code, message: "Why 1.0." } });
  const responses = (code: string) =>
    RESPONSE.created +
    namedEvent("response.failed", { response: failed(code) });
  const cases = [
    {
      path: 1,
      events: responses("context_length_exceeded"),
      status: 400,
      body: failed("context_length_exceeded"),
    },
    {
      path: 1,
      events: responses("invalid_prompt"),
      status: 400,
      body: failed("invalid_prompt"),
    },
    {
      path: 1,
      events: responses("rate_limit_exceeded"),
      status: 429,
      body: failed("rate_limit_exceeded"),
    },
    {
      path: 0,
      events: MESSAGE.start + namedEvent("error", {
        error: { type: "overloaded_error", message: "Too busy" },
      }),
      status: 503,
      body: {
        type: "error",
        error: { type: "overloaded_error", message: "Too busy" },
      },
    },
    {
      path: 2,
      events: `data: ${JSON.stringify(failed("invalid_request_error"))}\n\n`,
      status: 400,
      body: failed("invalid_request_error"),
    },
  ];
  for (const { path, events, status, body } of cases) {
    const dialect = DIALECTS[path] ?? assert.fail();
    await using rig = await setup(() => [...stream(events), lastChunk]);
    const answer = await rig.post(dialect.path, dialect.body);
    assert.equal(answer.status, status);
    assert.deepEqual(await answer.json(), body);
  }
  // A server that has failed has nothing to say to the client.
  await using rig = await setup(() => [
    ...stream(responses("server_error")),
    lastChunk,
  ]);
  const answer = await rig.post("responses", DIALECTS[1]?.body ?? "");
  assert.equal(answer.status, 502);
  assert.equal((await answer.json()).error.code, "upstream_error");
});

Deno.test("a stream that breaks off ends with the error of its dialect, never with a normal end", async () => {
  const cases = [
    {
      path: 0,
      start: MESSAGE.start + MESSAGE.text("Hello"),
      ends:
        /\n\nevent: error\ndata: \{"type":"error","error":\{"type":"api_error",.*"request_id":"req_.*\}\n\n$/,
      tokens: 1,
    },
    {
      path: 1,
      start: RESPONSE.created + RESPONSE.text("Hello"),
      ends:
        /\n\nevent: response.failed\ndata: \{"type":"response.failed",.*"error":\{"code":"server_error",.*\n\n$/,
      tokens: 1,
    },
    {
      path: 2,
      start: completion("Hello"),
      ends: /\n\ndata: \{"error":\{.*"code":"upstream_truncated"\}\}\n\n$/,
      tokens: 1,
    },
  ];
  for (const { path, start, ends, tokens } of cases) {
    const dialect = DIALECTS[path] ?? assert.fail();
    await using rig = await setup(() => [...stream(start), PAUSE, CLOSE]);
    const text = await (await rig.post(dialect.path, dialect.body)).text();
    assert.ok(text.startsWith(start), text);
    assert.match(text, ends);
    assert.partialDeepStrictEqual(rig.settlements(), [
      { kind: "failed", completionTokens: tokens },
    ]);
  }
});

Deno.test("an error that a server reports in the middle passes in its own words, without secrets", async () => {
  const cases = [
    {
      path: 0,
      event: namedEvent("error", {
        error: { type: "overloaded_error", message: "Overloaded" },
      }),
      more: false,
    },
    {
      path: 1,
      event: namedEvent("response.failed", {
        response: {
          error: { code: "rate_limit_exceeded", message: "try again in 3 s" },
        },
      }),
      more: false,
    },
    {
      path: 1,
      event: namedEvent("error", { code: "server_error", message: "x" }),
      more: true,
    },
    {
      path: 2,
      event: 'data: {"error":{"message":"Out of memory"}}\n\n',
      more: false,
    },
  ];
  const starts = [MESSAGE.text("a"), RESPONSE.text("a"), completion("a")];
  for (const { path, event, more } of cases) {
    const dialect = DIALECTS[path] ?? assert.fail();
    const start = starts[path] ?? "";
    await using rig = await setup(() =>
      stream(start + event + "data: never\n\n")
    );
    const text = await (await rig.post(dialect.path, dialect.body)).text();
    assert.ok(text.startsWith(start + event), text);
    const rest = text.slice(start.length + event.length);
    assert.equal(rest.startsWith("event: response.failed\n"), more, rest);
    assert.ok(more || rest === "", rest);
    assert.partialDeepStrictEqual(rig.settlements(), [{ kind: "failed" }]);
  }
  const secret = namedEvent("error", {
    error: { message: "No upstream-key-0123456789 at 10.0.0.7" },
  });
  await using rig = await setup(() => stream(MESSAGE.text("a") + secret));
  const text = await (await rig.post("messages", DIALECTS[0]?.body ?? ""))
    .text();
  assert.match(text, /"message":"No \[redacted\] at \[redacted\]"/);
});

Deno.test("a worker that is lost after the final event leaves its client a normal end", async () => {
  for (const { path, body, events } of DIALECTS) {
    await using rig = await setupWith({ streamHeadMs: PATIENT_MS }, () => [
      ...stream(events),
      STALL,
    ]);
    const answer = await rig.post(path, body);
    const reader = answer.body?.pipeThrough(new TextDecoderStream())
      .getReader() ?? assert.fail("no body");
    let text = "";
    while (text.length < events.length) text += (await reader.read()).value;
    await rig.worker.kill();
    const rest = await reader.read();
    assert.deepEqual([text, rest.value], [events, undefined]);
    await until(() => rig.settlements().length === 1);
    const [outcome] = rig.settlements();
    assert.equal(outcome?.kind, "failed");
    assert.ok((outcome?.completionTokens ?? 0) > 0, "what came is paid for");
  }
});

Deno.test("a silent stream is kept open in the way of its dialect", async () => {
  const cases = [
    { path: 0, sign: MESSAGE.ping },
    { path: 1, sign: ": keep-alive\n\n" },
  ];
  for (const { path, sign } of cases) {
    const dialect = DIALECTS[path] ?? assert.fail();
    const silence = Promise.withResolvers<void>();
    await using rig = await setupWith({ streamHeadMs: 1 }, () => [
      streamHead(),
      { until: silence.promise },
      chunk(dialect.events),
      lastChunk,
    ]);
    const answer = await rig.post(dialect.path, dialect.body);
    const reader = answer.body?.pipeThrough(new TextDecoderStream())
      .getReader();
    const first = await reader?.read();
    assert.equal(first?.value, sign);
    silence.resolve();
    let rest = "";
    for (;;) {
      const { value, done } = await reader?.read() ?? { done: true, value: "" };
      if (done) break;
      rest += value;
    }
    assert.equal(
      rest.replaceAll(sign, ""),
      dialect.events.replaceAll(sign, ""),
    );
  }
});

Deno.test("a client that leaves a stream stops its server, and pays for what came", async () => {
  await using rig = await setup(
    () => [...stream(MESSAGE.start + MESSAGE.text("Hello")), STALL],
  );
  const answer = await rig.post("messages", DIALECTS[0]?.body ?? "");
  const reader = answer.body?.getReader();
  await reader?.read();
  await reader?.cancel();
  const request = await rig.request();
  await request.left;
  await until(() => rig.settlements().length === 1);
  assert.partialDeepStrictEqual(rig.settlements(), [
    { kind: "cancelled", completionTokens: 1 },
  ]);
});
