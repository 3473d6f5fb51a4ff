/** What a client gets of an answer to a chat, and what it is given credit for. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { SSE_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { StartedRun } from "../dispatch/outcome.ts";
import type { AnswerOptions } from "../requests/answer.ts";
import { bodyAnswer, EventAnswer } from "./answer.ts";

/** A response whose client reads nothing until it is consumed. */
function createResponse() {
  const buffers = { writableHighWaterMark: 65_536, readableHighWaterMark: 1 };
  const out = Object.assign(new PassThrough(buffers), {
    statusCode: 200,
    headersSent: false,
    sendHead(statusCode: number): void {
      Object.assign(out, { statusCode, headersSent: true });
    },
  });
  return out;
}

function setup(change: Partial<AnswerOptions> = {}) {
  const clock = { ms: 0 };
  const calls = { delivered: [] as number[], cancelled: [] as string[] };
  const out = createResponse();
  const options: AnswerOptions = {
    out,
    lease: null,
    now: () => clock.ms,
    streamHeadMs: SSE_LIMITS.headMs,
    ...change,
  };
  const [answer, whole] = [new EventAnswer(options), bodyAnswer(options)];
  const run: StartedRun = {
    delivered: (sequence) => void calls.delivered.push(sequence),
    cancel: (reason) => void calls.cancelled.push(reason),
  };
  answer.attach(run);
  whole.attach(run);
  return { clock, calls, out, answer, whole };
}

const bytes = (lines: string) => new TextEncoder().encode(lines);
const FAILURE = new ApiError("worker_lost", "The worker was lost.");
const FAILURE_EVENT = `data: ${JSON.stringify(FAILURE.toBody())}\n\n`;
const DONE_EVENT = "data: [DONE]\n\n";

Deno.test("EventAnswer frames whole lines as events and ends with [DONE]", async () => {
  const { answer, out, calls } = setup();
  answer.onPayload(bytes('{"a":1}\n{"b":'), 1);
  answer.onPayload(bytes("2}\n"), 2);
  answer.onEnd();
  const events = `data: {"a":1}\n\ndata: {"b":2}\n\n${DONE_EVENT}`;
  assert.equal(await text(out), events);
  assert.deepEqual(calls.delivered, [1, 2]);
});

Deno.test("EventAnswer fails as an HTTP error before the first line, and by an event after it", async () => {
  const early = setup();
  early.answer.onPayload(bytes('{"cut'), 1);
  assert.deepEqual(early.calls.delivered, [1], "the rest is needed");
  early.answer.onError(FAILURE);
  assert.equal(await text(early.out), JSON.stringify(FAILURE.toBody()));
  assert.equal(early.out.statusCode, FAILURE.status);
  assert.equal(early.answer.hasStarted, false);

  const { answer, out } = setup();
  answer.onPayload(bytes('{"a":1}\n{'), 1);
  assert.equal(answer.hasStarted, true);
  answer.onError(FAILURE);
  assert.equal(await text(out), `data: {"a":1}\n\n${FAILURE_EVENT}`);
});

Deno.test("both answers discard what a lost worker has sent", async () => {
  for (const kind of ["answer", "whole"] as const) {
    const { out, [kind]: answer } = setup();
    answer.onPayload(bytes('{"old'), 1);
    answer.onRestart();
    answer.onPayload(bytes('{"new":1}\n'), 1);
    answer.onEnd();
    const body = await text(out);
    assert.ok(body.includes('{"new":1}\n') && !body.includes("old"), body);
  }
});

Deno.test("EventAnswer gives credit only for what the client has received, including a cut line after that", async () => {
  const { answer, out, calls } = setup();
  const line = bytes(`${"x".repeat(40_000)}\n`);
  answer.onPayload(line, 1);
  assert.deepEqual(calls.delivered, [1]);
  answer.onPayload(line, 2);
  answer.onPayload(bytes("y".repeat(50_000)), 3);
  assert.deepEqual(calls.delivered, [1]);
  out.resume();
  await once(out, "drain");
  assert.deepEqual(calls.delivered, [1, 3]);
  answer.onPayload(bytes("y"), 4);
  assert.deepEqual(calls.delivered, [1, 3, 4]);
});

Deno.test("EventAnswer sends a keep-alive after silence, not before", async () => {
  const { answer, clock, out } = setup();
  answer.onTick(SSE_LIMITS.headMs - 1);
  assert.equal(out.headersSent, false, "the 200 is still held");
  answer.onPayload(bytes("{}\n"), 1);
  for (const ms of [SSE_LIMITS.keepAliveMs - 1, SSE_LIMITS.keepAliveMs]) {
    clock.ms = ms;
    answer.onTick(ms);
  }
  answer.onTick(clock.ms);
  answer.onEnd();
  assert.equal(await text(out), `data: {}\n\n: keep-alive\n${DONE_EVENT}`);
});

Deno.test("EventAnswer opens a late stream with keep-alives; another worker or an error may still follow", async () => {
  for (const ending of ["restart", "error"]) {
    const { answer, clock, out } = setup();
    answer.onPayload(bytes('{"cut'), 1);
    clock.ms = SSE_LIMITS.headMs;
    answer.onTick(clock.ms);
    assert.equal(out.statusCode, 200);
    assert.equal(answer.hasStarted, false);
    if (ending === "restart") {
      answer.onRestart();
      answer.onPayload(bytes("{}\n"), 1);
      answer.onEnd();
    } else answer.onError(FAILURE);
    assert.equal(
      await text(out),
      ": keep-alive\n" +
        (ending === "restart" ? `data: {}\n\n${DONE_EVENT}` : FAILURE_EVENT),
    );
  }
  const { answer, out } = setup({ streamHeadMs: 0 });
  answer.onTick(10 * SSE_LIMITS.headMs);
  assert.equal(out.headersSent, false, "0: the 200 is held for ever");
});

Deno.test("EventAnswer disconnects a client that reads nothing", () => {
  const { answer, clock, calls } = setup();
  answer.onPayload(bytes(`${"x".repeat(100_000)}\n`), 1);
  clock.ms = SSE_LIMITS.slowClientMs - 1;
  answer.onTick(clock.ms);
  assert.deepEqual(calls.cancelled, []);
  clock.ms = SSE_LIMITS.slowClientMs;
  answer.onTick(clock.ms);
  assert.deepEqual(calls.cancelled, ["slow_client"]);
});

Deno.test("EventAnswer refuses a line that is too long", () => {
  const { answer, calls } = setup();
  answer.onPayload(new Uint8Array(STREAM_LIMITS.lineBytesMax).fill(120), 1);
  assert.deepEqual(calls.cancelled, []);
  answer.onPayload(new Uint8Array(1).fill(120), 2);
  assert.deepEqual(calls.cancelled, ["violation"]);
});

Deno.test("an answer whose client has left is cut", () => {
  for (const kind of ["answer", "whole"] as const) {
    const { out, [kind]: answer } = setup();
    answer.onAbandoned();
    assert.equal(out.statusCode, 499);
    assert.equal(out.destroyed, true);
  }
  const { answer, out } = setup();
  answer.onPayload(bytes("{}\n"), 1);
  answer.onAbandoned();
  answer.onPayload(bytes("{}\n"), 2);
  answer.onEnd();
  assert.equal(out.destroyed, true);
  assert.equal(out.statusCode, 200);
});

Deno.test("an answer in one body joins its parts, cut anywhere, and keeps no view of them", async () => {
  const { calls, out, whole: answer } = setup();
  const body = '{"text":"é"}\n';
  const all = bytes(body);
  for (let at = 0; at < all.length; at += 1) {
    const part = all.slice(at, at + 1);
    answer.onPayload(part, at + 1);
    part.fill(0);
  }
  answer.onEnd();
  assert.equal(await text(out), body);
  assert.equal(calls.delivered.length, all.length);
  assert.equal(answer.hasStarted, false);
});
