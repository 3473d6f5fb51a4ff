/** Frames on the wire, alone and several in a message. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { ApiError } from "../openai/error.ts";
import { BUS_LIMITS, STREAM_LIMITS } from "../limits.ts";
import * as frame from "./frame.ts";

Deno.test("decodeFrame() reads what encodeFrame() writes: the documented 16 bytes, then the payload", () => {
  const payload = Buffer.of(7, 8);
  const numbers = { sequence: 0x01020304, offerNumber: 2, tokens: 0xfffefdfc };
  assert.deepEqual(
    [...frame.encodeFrame({ type: frame.FrameType.DATA, ...numbers }, payload)],
    [1, 3, 0, 0, 1, 2, 3, 4, 0, 0, 0, 2, 0xff, 0xfe, 0xfd, 0xfc, 7, 8],
  );
  for (const type of Object.values(frame.FrameType)) {
    for (const number of [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]) {
      const numbers = { sequence: number, offerNumber: number, tokens: number };
      const sent = { type, ...numbers, payload };
      const message = frame.encodeFrame(sent, payload);
      assert.deepEqual(frame.decodeFrame(message), sent);
    }
  }
});

Deno.test("decodeFrame() returns null for what is no frame of this version", () => {
  const good = frame.encodeFrame(
    { type: frame.FrameType.BEAT, sequence: 1, offerNumber: 1, tokens: 0 },
    new Uint8Array(0),
  );
  const table: Uint8Array[] = [
    new Uint8Array(0),
    good.subarray(0, frame.FRAME_HEADER_BYTES - 1),
    ...[0, 2].map((version) => good.with(0, version)),
    ...[0, 7, 255].map((type) => good.with(1, type)),
  ];
  for (const message of table) assert.equal(frame.decodeFrame(message), null);
  assert.notEqual(frame.decodeFrame(good), null);
  assert.notEqual(frame.decodeFrame(good.with(2, 0xff)), null, "flags");
});

Deno.test("a message carries frames of several requests, and many frames take several", () => {
  const sent = Array.from({ length: 20 }, (_, index) => {
    const { framePayloadBytesMax: most } = STREAM_LIMITS;
    const payload = Buffer.alloc(index % 3 === 0 ? most : 7, index);
    const header = { sequence: index, offerNumber: 1, tokens: 0 };
    const data = { type: frame.FrameType.DATA, ...header, payload };
    return [index.toString(16).padStart(32, "0"), data] as const;
  });
  const encoded = sent.map(([requestId, data]) =>
    [requestId, frame.encodeFrame(data, data.payload)] as const
  );
  assert.equal(frame.encodeFrames(encoded.slice(1, 4)).length, 1);
  const messages = frame.encodeFrames(encoded);
  assert.ok(messages.every(({ length }) => length <= BUS_LIMITS.batchBytesMax));
  assert.deepEqual(
    messages.flatMap((each) => frame.decodeFrames(each) ?? []),
    sent,
  );

  const [good = new Uint8Array()] = frame.encodeFrames(encoded.slice(1, 2));
  assert.equal(frame.decodeFrames(good.with(0, 1)), null, "another version");
  for (const cut of [0, 2, 20, 21, 40, good.length - 1]) {
    assert.equal(frame.decodeFrames(good.subarray(0, cut)), null, `${cut}`);
  }
});

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

const USAGE = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };

const FAILURE: frame.Failure = {
  error: new ApiError("overloaded", "Busy", { retryAfterMs: 1_000.5 }),
  retryable: true,
  usage: USAGE,
};

Deno.test("END carries the usage", () => {
  const table = [null, USAGE, {
    ...USAGE,
    prompt_tokens_details: { cached_tokens: 1 },
    completion_tokens_details: { reasoning_tokens: 2 },
  }];
  for (const usage of table) {
    const payload = frame.encodeJson({ worker: "w1", usage });
    assert.deepEqual(frame.parseEnd(payload), { worker: "w1", usage });
  }
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
    const parsed = frame.parseErr(frame.encodeErr("w1", { ...FAILURE, error }));
    const rest = { worker: "w1", retryable: true, usage: USAGE };
    assert.deepEqual(parsed, { ...rest, error });
    assert.deepEqual(parsed?.error.toBody(), error.toBody());
  }
});

Deno.test("encodeErr() cuts texts so that the frame fits", () => {
  const long = "\u0001".repeat(100_000);
  const options = { type: long, param: long, wireCode: long };
  const error = new ApiError("overloaded", long, options);
  const payload = frame.encodeErr("w1", { ...FAILURE, error });
  assert(payload.length <= STREAM_LIMITS.framePayloadBytesMax);
  assert.notEqual(frame.parseErr(payload), null);
});

const changedErr = (change: object) => {
  const text = new TextDecoder().decode(frame.encodeErr("w1", FAILURE));
  return frame.encodeJson({ ...JSON.parse(text), ...change });
};

Deno.test("parseErr() reads an unknown code as internal_error", () => {
  for (const code of ["brand_new", "toString", "__proto__"]) {
    const parsed = frame.parseErr(changedErr({ code }));
    assert.equal(parsed?.error.code, "internal_error", code);
  }
});

Deno.test("REJECT is a frame without a sequence number; an unknown reason is read as other", () => {
  const reject = { worker: "w1", reason: "full", retryAfterMs: 200 } as const;
  const rejection = frame.decodeFrame(frame.encodeRejectFrame(3, reject));
  assert(rejection !== null);
  const { payload, ...header } = rejection;
  const { REJECT: type } = frame.FrameType;
  assert.deepEqual(header, { type, sequence: 0, offerNumber: 3, tokens: 0 });
  assert.deepEqual(frame.parseReject(payload), reject);
  const newer = frame.encodeJson({ ...reject, reason: "moon" });
  assert.equal(frame.parseReject(newer)?.reason, "other");
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
  const { parseWorker, parseReject, parseEnd, parseErr } = frame;
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
    assert.equal(frame.parseEnd(end), null, `${total_tokens}`);
  }
  for (const [status, isRead] of [[399, 0], [400, 1], [599, 1], [600, 0]]) {
    assert.equal(frame.parseErr(changedErr({ status })) !== null, isRead === 1);
  }
});
