import assert from "node:assert/strict";
import { SSE_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { Writable } from "node:stream";
import {
  type AnswerOptions,
  holdUntil,
  StreamAnswer,
  WholeAnswer,
} from "./answer.ts";
import { StreamedResponse } from "../http/server.ts";

function setup() {
  const clock = { ms: 0 };
  const told = {
    delivered: [] as number[],
    abandoned: [] as string[],
    overlong: 0,
  };
  const options: AnswerOptions = {
    headers: new Headers({ "content-type": "text/event-stream" }),
    now: () => clock.ms,
    headMs: SSE_LIMITS.headMs,
    onDelivered: (sequence) => void told.delivered.push(sequence),
    onOverlongLine: () => void (told.overlong += 1),
    onAbandoned: (reason) => void told.abandoned.push(reason),
    hold: (end) => end(),
  };
  return { clock, told, options };
}

const bytes = (text: string) => new TextEncoder().encode(text);
/** Where the body of a streamed answer goes: a client that reads nothing before `read`. */
async function outOf({ response }: { response: Promise<Response> }) {
  const streamed = await response;
  assert.ok(streamed instanceof StreamedResponse);
  assert.equal(streamed.status, 200);
  let text = "";
  let takeNext: (() => void) | null = null;
  let isReading = false;
  const out = new Writable({
    highWaterMark: 64 * 1024,
    write(piece, _encoding, done) {
      text += piece;
      if (isReading) done();
      else takeNext = done;
    },
  });
  const read = (until: "drain" | "finish") => {
    const { promise, resolve } = Promise.withResolvers<string>();
    out.once(until, () => resolve(text));
    isReading = true;
    takeNext?.();
    return promise.finally(() => isReading = false);
  };
  streamed.start(out);
  return { out, read };
}

async function textOf(answer: StreamAnswer): Promise<string> {
  const { read } = await outOf(answer);
  return await read("finish");
}

const FAILURE = new ApiError("worker_lost", "The worker was lost.");
const FAILURE_EVENT = `data: ${JSON.stringify(FAILURE.toBody())}\n\n`;

Deno.test("StreamAnswer frames lines as events and ends with [DONE]", async () => {
  const { options } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes('{"a":1}\n{"b":2}\n'), 1);
  answer.onEnd();
  assert.equal(
    await textOf(answer),
    'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n',
  );
});

Deno.test("StreamAnswer sends only whole lines", async () => {
  const { options, told } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes('{"a":'), 1);
  assert.equal(answer.hasStarted, false);
  assert.deepEqual(told.delivered, [1]);
  answer.onPayload(bytes("1}\n{"), 2);
  assert.equal(answer.hasStarted, true);
  answer.onError(FAILURE);
  assert.equal(
    await textOf(answer),
    `data: {"a":1}\n\n${FAILURE_EVENT}`,
  );
});

Deno.test("StreamAnswer answers a failure before the first line as an HTTP error", async () => {
  const { options } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes('{"cut'), 1);
  answer.onError(FAILURE);
  await assert.rejects(answer.response, FAILURE);
});

Deno.test("StreamAnswer forgets a cut line when the attempt is repeated", async () => {
  const { options } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes('{"old'), 1);
  answer.onRestart();
  answer.onPayload(bytes('{"new":1}\n'), 1);
  answer.onEnd();
  assert.equal(
    await textOf(answer),
    'data: {"new":1}\n\ndata: [DONE]\n\n',
  );
});

Deno.test("StreamAnswer gives no credit for a cut line behind one that waits", async () => {
  const { options, told } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes(`${"x".repeat(100_000)}\n`), 1);
  answer.onPayload(bytes("y".repeat(50_000)), 2);
  const { read } = await outOf(answer);
  answer.onPayload(bytes("y".repeat(50_000)), 3);
  assert.deepEqual(told.delivered, []);
  await read("drain");
  assert.deepEqual(told.delivered, [3]);
  answer.onPayload(bytes("y"), 4);
  assert.deepEqual(told.delivered, [3, 4]);
});

Deno.test("StreamAnswer gives credit only for what the client takes", async () => {
  const { options, told } = setup();
  const answer = new StreamAnswer(options);
  const line = bytes(`${"x".repeat(40_000)}\n`);
  answer.onPayload(line, 1);
  const { read } = await outOf(answer);
  assert.deepEqual(told.delivered, [1]);
  answer.onPayload(line, 2);
  answer.onPayload(line, 3);
  assert.deepEqual(told.delivered, [1]);
  await read("drain");
  assert.deepEqual(told.delivered, [1, 3]);
});

Deno.test("StreamAnswer sends a keep-alive after silence, not before", async () => {
  const { clock, options } = setup();
  const answer = new StreamAnswer(options);
  answer.onTick(SSE_LIMITS.headMs - 1); // The 200 is still held.
  answer.onPayload(bytes("{}\n"), 1);
  clock.ms = SSE_LIMITS.keepAliveMs - 1;
  answer.onTick(clock.ms);
  clock.ms = SSE_LIMITS.keepAliveMs;
  answer.onTick(clock.ms);
  answer.onTick(clock.ms);
  answer.onEnd();
  assert.equal(
    await textOf(answer),
    "data: {}\n\n: keep-alive\n\ndata: [DONE]\n\n",
  );
});

Deno.test("StreamAnswer opens a stream without a first line with keep-alives, and another attempt may still begin it", async () => {
  const { clock, options } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes('{"cut'), 1);
  clock.ms = SSE_LIMITS.headMs;
  answer.onTick(clock.ms);
  assert.equal((await answer.response).status, 200);
  assert.equal(answer.hasStarted, false);
  clock.ms += SSE_LIMITS.keepAliveMs;
  answer.onTick(clock.ms);
  answer.onRestart();
  answer.onPayload(bytes("{}\n"), 1);
  assert.equal(answer.hasStarted, true);
  answer.onEnd();
  assert.equal(
    await textOf(answer),
    ": keep-alive\n\n: keep-alive\n\ndata: {}\n\ndata: [DONE]\n\n",
  );
});

Deno.test("StreamAnswer ends a stream that was opened early with an error event", async () => {
  const { clock, options } = setup();
  const answer = new StreamAnswer(options);
  clock.ms = SSE_LIMITS.headMs;
  answer.onTick(clock.ms);
  answer.onError(FAILURE);
  assert.equal(
    await textOf(answer),
    `: keep-alive\n\n${FAILURE_EVENT}`,
  );
});

Deno.test("StreamAnswer holds the 200 for any time with a head time of 0", async () => {
  const { options } = setup();
  const answer = new StreamAnswer({ ...options, headMs: 0 });
  answer.onTick(10 * SSE_LIMITS.headMs);
  answer.onError(FAILURE);
  await assert.rejects(answer.response, FAILURE);
});

Deno.test("StreamAnswer cuts off a client that takes nothing", async () => {
  const { clock, told, options } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(bytes(`${"x".repeat(100_000)}\n`), 1);
  const { out } = await outOf(answer);
  clock.ms = SSE_LIMITS.slowClientMs - 1;
  answer.onTick(clock.ms);
  assert.deepEqual(told.abandoned, []);
  clock.ms = SSE_LIMITS.slowClientMs;
  answer.onTick(clock.ms);
  assert.deepEqual(told.abandoned, ["slow_client"]);
  assert.equal(out.destroyed, true);
});

Deno.test("StreamAnswer ends what it has begun when nobody reads it any more", async () => {
  for (const isEarly of [true, false]) {
    const { options } = setup();
    const answer = new StreamAnswer(options);
    answer.onPayload(bytes("{}\n"), 1);
    if (isEarly) answer.onAbandoned();
    const { out } = await outOf(answer);
    if (!isEarly) answer.onAbandoned();
    answer.onPayload(bytes("{}\n"), 2);
    answer.onEnd();
    assert.equal(out.destroyed, true);
  }
});

Deno.test("StreamAnswer refuses a line that is too long", () => {
  const { told, options } = setup();
  const answer = new StreamAnswer(options);
  answer.onPayload(new Uint8Array(STREAM_LIMITS.lineBytesMax).fill(120), 1);
  assert.equal(told.overlong, 0);
  answer.onPayload(new Uint8Array(1).fill(120), 2);
  assert.equal(told.overlong, 1);
});

for (const kind of ["stream", "whole"] as const) {
  Deno.test(`an abandoned ${kind} answer lets the server finish`, async () => {
    const { options } = setup();
    const answer = kind === "stream"
      ? new StreamAnswer(options)
      : new WholeAnswer(options);
    answer.onAbandoned();
    assert.equal((await answer.response).status, 499);
  });
}

Deno.test("WholeAnswer joins its parts, cut anywhere, and keeps no view of them", async () => {
  const { told, options } = setup();
  const answer = new WholeAnswer(options);
  const text = '{"text":"é"}\n';
  const all = bytes(text);
  for (let at = 0; at < all.length; at += 1) {
    const part = all.slice(at, at + 1);
    answer.onPayload(part, at + 1);
    part.fill(0);
  }
  answer.onEnd();
  assert.equal(await (await answer.response).text(), text);
  assert.equal(told.delivered.length, all.length);
  assert.equal(answer.hasStarted, false);
});

Deno.test("WholeAnswer drops what a lost attempt had sent", async () => {
  const { options } = setup();
  const answer = new WholeAnswer(options);
  answer.onPayload(bytes('{"old'), 1);
  answer.onRestart();
  answer.onPayload(bytes('{"new":1}\n'), 1);
  answer.onEnd();
  assert.equal(await (await answer.response).text(), '{"new":1}\n');
});

Deno.test("the end of an answer, an error too, waits until its slot is free, all before it does not", async () => {
  for (const kind of ["end", "error"]) {
    const { options } = setup();
    const freed = Promise.withResolvers<void>();
    const hold = holdUntil(freed.promise, 60_000);
    const answer = new StreamAnswer({ ...options, hold });
    answer.onPayload(bytes("{}\n"), 1);
    const { out } = await outOf(answer);
    if (kind === "end") answer.onEnd();
    else answer.onError(FAILURE);
    await new Promise((resolve) => setTimeout(resolve));
    assert.equal(out.writableEnded, false);
    freed.resolve();
    await freed.promise;
    await new Promise((resolve) => setTimeout(resolve));
    assert.equal(out.writableEnded, true);
  }
});

Deno.test("the end of an answer is said in time when its slot is not given back", async () => {
  const { options } = setup();
  const never = new Promise<void>(() => {});
  const answer = new WholeAnswer({ ...options, hold: holdUntil(never, 20) });
  answer.onPayload(bytes("{}"), 1);
  const startedAtMs = performance.now();
  answer.onEnd();
  assert.equal(await (await answer.response).text(), "{}");
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs >= 19 && tookMs < 1_000, `${tookMs} ms`);
});
