/** What frames say beside the bytes of an answer. */
import assert from "node:assert/strict";
import { ApiError } from "../../openai/error.ts";
import { STREAM_LIMITS } from "../../limits.ts";
import * as frame from "./frame.ts";
import * as payloads from "./payloads.ts";

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

const USAGE = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };

const FAILURE: payloads.Failure = {
  error: new ApiError("overloaded", "Busy", { retryAfterMs: 1_000.5 }),
  retryable: true,
  usage: USAGE,
  backend: "vllm-1",
};

Deno.test("END carries the usage, and names the backend", () => {
  const table = [null, USAGE, {
    ...USAGE,
    prompt_tokens_details: { cached_tokens: 1 },
    completion_tokens_details: { reasoning_tokens: 2 },
  }];
  for (const usage of table) {
    const end = { worker: "w1", usage, backend: "vllm-1" };
    assert.deepEqual(payloads.parseEnd(frame.encodeJson(end)), end);
  }
  // An older worker names none.
  const payload = frame.encodeJson({ worker: "w1", usage: null });
  assert.deepEqual(payloads.parseEnd(payload), { worker: "w1", usage: null });
});

Deno.test("ERR carries an ApiError to the edge", () => {
  const theirs = { status: 422, type: "weird", wireCode: null };
  const errors = [
    new ApiError("overloaded", "Busy", { retryAfterMs: 1_500 }),
    new ApiError("upstream_rate_limited", "Slow down"),
    new ApiError("invalid_value", "Too hot", { param: "temperature" }),
    new ApiError("upstream_error", "No", theirs),
  ];
  for (const error of errors) {
    const parsed = payloads.parseErr(
      payloads.encodeErr("w1", { ...FAILURE, error }),
    );
    assert.deepEqual(parsed, { ...FAILURE, worker: "w1", error });
    assert.deepEqual(parsed?.error.toBody(), error.toBody());
  }
});

Deno.test("parseBackend() finds the backend in END and ERR, and may find none", () => {
  const { parseBackend } = payloads;
  const end = { worker: "w1", usage: null };
  const payload = frame.encodeJson({ ...end, backend: "vllm-1" });
  assert.equal(parseBackend(payload), "vllm-1");
  assert.equal(parseBackend(payloads.encodeErr("w1", FAILURE)), "vllm-1");
  assert.equal(parseBackend(frame.encodeJson(end)), undefined);
  assert.equal(parseBackend(bytesOf("{")), undefined);
});

Deno.test("encodeErr() cuts texts so that the frame fits", () => {
  const long = "\u0001".repeat(100_000);
  const options = { type: long, param: long, wireCode: long };
  const error = new ApiError("overloaded", long, options);
  const payload = payloads.encodeErr("w1", { ...FAILURE, error });
  assert(payload.length <= STREAM_LIMITS.framePayloadBytesMax);
  assert.notEqual(payloads.parseErr(payload), null);
});

const changedErr = (change: object) => {
  const text = new TextDecoder().decode(payloads.encodeErr("w1", FAILURE));
  return frame.encodeJson({ ...JSON.parse(text), ...change });
};

Deno.test("parseErr() reads an unknown code as internal_error", () => {
  for (const code of ["brand_new", "toString", "__proto__"]) {
    const parsed = payloads.parseErr(changedErr({ code }));
    assert.equal(parsed?.error.code, "internal_error", code);
  }
});

Deno.test("REJECT is a frame without a sequence number; an unknown reason is read as other", () => {
  const reject = { worker: "w1", reason: "full", retryAfterMs: 200 } as const;
  const rejection = frame.decodeFrame(payloads.encodeRejectFrame(3, reject));
  assert(rejection !== null);
  const { payload, ...header } = rejection;
  const { REJECT: type } = frame.FrameType;
  assert.deepEqual(header, { type, sequence: 0, offerNumber: 3, tokens: 0 });
  assert.deepEqual(payloads.parseReject(payload), reject);
  const newer = frame.encodeJson({ ...reject, reason: "moon" });
  assert.equal(payloads.parseReject(newer)?.reason, "other");
});

Deno.test("a malformed payload parses to null", () => {
  const table: [name: string, payload: Uint8Array][] = [
    ["nothing", new Uint8Array(0)],
    ["no UTF-8", Uint8Array.of(0x22, 0xff, 0x22)],
    ["no JSON", bytesOf("{")],
    ["no object", bytesOf("1")],
    ["null", bytesOf("null")],
    ["no worker", bytesOf("{}")],
    ["a worker id that could escape its subject", bytesOf('{"worker":"a.>"}')],
    ["an empty worker id", bytesOf('{"worker":""}')],
    ["a long worker id", bytesOf(`{"worker":"${"a".repeat(65)}"}`)],
  ];
  const { parseWorker, parseReject, parseEnd, parseErr } = payloads;
  for (const [name, payload] of table) {
    for (const parse of [parseWorker, parseReject, parseEnd, parseErr]) {
      assert.equal(parse(payload), null, name);
    }
  }
});

Deno.test("parseEnd() and parseErr() refuse impossible numbers", () => {
  for (const total_tokens of [-1, 1.5, "7"]) {
    const usage = { ...USAGE, total_tokens };
    const end = frame.encodeJson({ worker: "w1", usage });
    assert.equal(payloads.parseEnd(end), null, `${total_tokens}`);
  }
  for (const [status, isRead] of [[399, 0], [400, 1], [599, 1], [600, 0]]) {
    assert.equal(
      payloads.parseErr(changedErr({ status })) !== null,
      isRead === 1,
    );
  }
});
