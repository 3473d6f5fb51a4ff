/** How forms are read while they arrive, and which are refused. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import * as limits from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { openExchange, testBudget } from "./body_fixture.ts";
import { Form } from "./read_form.ts";

const BOUNDARY = "----b0und4ry";
const FILE_BYTES_MAX = 1_000_000;

/** A part of a form. */
interface Part {
  readonly name: string;
  readonly value: string;
  /** The name of the file, if it is one. */
  readonly file?: string;
}

function encode(parts: readonly Part[], end = `--${BOUNDARY}--\r\n`): Buffer {
  const text = parts.map(({ name, value, file }) => {
    const ofFile = `; filename="${file}"\r\ncontent-type: audio/wav`;
    return `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"` +
      `${file === undefined ? "" : ofFile}\r\n\r\n${value}\r\n`;
  }).join("");
  return Buffer.from(text + end, "latin1");
}

function setup(
  more: Record<string, string> = {},
  source?: PassThrough,
  room: { bodiesBytesMax?: number } = {},
) {
  const type = `multipart/form-data; boundary=${BOUNDARY}`;
  const { pass, assertIdle, ...budget } = testBudget(room);
  const headers = { "content-type": type, ...more };
  const { body, exchange } = openExchange(headers, source);
  const files = { file: [1, 1], image: [0, 9] } as const;
  const bounds = { files, fileBytesMax: () => FILE_BYTES_MAX };
  const form = new Form(exchange, { keyId: "key_a", bounds, budget });
  const codeOf = () =>
    form.failed.catch((error: unknown) =>
      error instanceof ApiError ? error.code : String(error)
    );
  /** The bytes of all files. */
  const drain = async () => {
    const pieces: Uint8Array[] = [];
    for (;;) {
      const piece = await form.next();
      if (piece === null) return Buffer.concat(pieces);
      assert.ok(piece.length <= limits.BUS_LIMITS.pieceBytes);
      pieces.push(piece);
    }
  };
  const finish = () => {
    form.stop();
    assertIdle();
  };
  const heldBytes = () => budget.bodyBudget.bytes;
  return { body, form, pass, codeOf, drain, finish, heldBytes };
}

const SOUND = "\0\x01RIFF\r\n--\r\n".repeat(5_000);
const WAV = "a.wav";
const MODEL: Part = { name: "model", value: "m" };
const RECORDING: Part = { name: "file", value: SOUND, file: WAV };
const SILENCE: Part = { ...RECORDING, value: "" };

Deno.test("a form in too many pieces is refused", async () => {
  const { body, codeOf, finish } = setup();
  body.write(encode([SILENCE], ""));
  for (let at = 0; at < 2 * limits.BODY_PIECES.free; at += 1) body.write("a");
  assert.equal(await codeOf(), "invalid_request");
  finish();
});

Deno.test("a form is read with its fields before or after the file, however it is cut", async () => {
  const include: Part[] = [
    { name: "include[]", value: "a" },
    { name: "include[]", value: "b" },
  ];
  const orders: Part[][] = [
    [MODEL, RECORDING, ...include],
    [RECORDING, ...include, MODEL],
  ];
  for (const parts of orders) {
    for (const size of [1, 777, 1e9]) {
      const { form, body, drain, finish } = setup();
      const bytes = encode(size === 1 ? parts.map(short) : parts);
      for (let at = 0; at < bytes.length; at += size) {
        body.write(bytes.subarray(at, at + size));
      }
      body.end();
      assert.equal(await form.beginning, "file");
      const sound = await drain();
      const expected = size === 1 ? short(RECORDING).value : SOUND;
      assert.ok(sound.equals(Buffer.from(expected, "latin1")));
      const fields = { model: "m", "include[]": ["a", "b"] };
      assert.deepEqual({ ...form.fields }, fields);
      const file = { field: "file", name: "a.wav", type: "audio/wav" };
      assert.deepEqual(form.files, [{ ...file, bytes: sound.length }]);
      finish();
    }
  }
});

/** The same part with the beginning of its value. */
const short = ({ value, ...part }: Part): Part => ({
  ...part,
  value: value.slice(0, 40),
});

Deno.test("a client is read only as fast as its pieces are taken", async () => {
  const { form, body, drain, finish } = setup();
  const file = "x".repeat(FILE_BYTES_MAX);
  const bytes = encode([{ ...RECORDING, value: file }]);
  let isFull = false;
  for (let at = 0; at < bytes.length && !isFull; at += 64_000) {
    isFull = !body.write(bytes.subarray(at, at + 64_000));
    await new Promise((resolve) => setTimeout(resolve));
    if (isFull) {
      const arrived = form.files[0]?.bytes ?? 0;
      assert.ok(arrived < 2 * limits.BUS_LIMITS.pieceBytes, `${arrived}`);
      body.end(bytes.subarray(at + 64_000));
    }
  }
  assert.ok(isFull, "the client was never held back");
  assert.equal((await drain()).length, FILE_BYTES_MAX);
  finish();
});

const many = (count: number, part: (index: number) => Part): Part[] =>
  Array.from({ length: count }, (_, index) => part(index));
const {
  fieldsMax,
  filesMax,
  fieldBytesMax,
  fieldsBytesMax,
  bytesMax,
} = limits.UPLOAD_LIMITS;
const fields = (count: number) =>
  many(count, (i) => ({ name: `f${i}`, value: "v" }));
const files = (count: number) =>
  many(count, () => ({ name: "image[]", value: "v", file: WAV }));
const large = "x".repeat(FILE_BYTES_MAX + 1);
const long = "x".repeat(fieldBytesMax + 1);
const manyLong = many(
  fieldsBytesMax / fieldBytesMax + 1,
  (index) => ({ name: `f${index}`, value: "x".repeat(fieldBytesMax) }),
);
const cut = String(encode([RECORDING], ""));
const REFUSED: { name: string; code: string; parts: Part[] | string }[] = [
  {
    name: "a file over its bound",
    code: "request_too_large",
    parts: [{
      ...RECORDING,
      value: large,
    }],
  },
  {
    name: "too many fields",
    code: "invalid_request",
    parts: fields(fieldsMax + 1),
  },
  {
    name: "too many files",
    code: "invalid_request",
    parts: files(filesMax + 1),
  },
  {
    name: "ten thousand parts",
    code: "invalid_request",
    parts: fields(10_000),
  },
  {
    name: "a field over its bound",
    code: "string_above_max_length",
    parts: [{
      name: "prompt",
      value: long,
    }],
  },
  {
    name: "fields over their bound",
    code: "request_too_large",
    parts: manyLong,
  },
  {
    name: "a text instead of a file",
    code: "invalid_type",
    parts: [{
      name: "file",
      value: "path/to/file",
    }],
  },
  { name: "a form without its end", code: "invalid_request", parts: cut },
  { name: "no form at all", code: "invalid_request", parts: '{"model":"m"}' },
];

for (const { name, code, parts } of REFUSED) {
  Deno.test(`a form is refused: ${name}`, async () => {
    const { body, codeOf, drain, finish } = setup();
    body.end(typeof parts === "string" ? parts : encode(parts));
    const [found] = await Promise.all([codeOf(), drain()]);
    assert.equal(found, code);
    finish();
  });
}

Deno.test("a form on its bounds is accepted", async () => {
  const { form, body, drain, finish } = setup();
  const others = fieldsMax - 1;
  const value = "x".repeat(fieldBytesMax);
  const longest = { name: "prompt", value };
  body.end(encode([longest, ...fields(others), ...files(filesMax)]));
  assert.equal((await drain()).length, filesMax);
  assert.equal(Object.keys(form.fields).length, fieldsMax);
  finish();
});

Deno.test("a form is refused before it is read if it says that it is too large, or has no boundary", () => {
  const rows: [headers: Record<string, string>, code: string][] = [
    [{ "content-length": `${bytesMax + 1}` }, "request_too_large"],
    [{ "content-type": "multipart/form-data" }, "invalid_request"],
    [{ "content-type": "multipart/form-database" }, "unsupported_media_type"],
    [{ "content-type": "application/json" }, "unsupported_media_type"],
    [{ "content-type": "" }, "unsupported_media_type"],
  ];
  for (const [headers, code] of rows) {
    const isRight = (error: unknown) =>
      error instanceof ApiError && error.code === code;
    assert.throws(() => setup(headers), isRight);
  }
  setup({ "content-length": `${bytesMax}` }).finish();
});

Deno.test("a form that stalls is refused, and a client that leaves is noticed", async () => {
  const stalled = setup();
  stalled.body.write(encode([MODEL], ""));
  await new Promise((resolve) => setTimeout(resolve));
  stalled.pass(limits.BODY_DEADLINES.progressMs);
  assert.equal(await stalled.codeOf(), "request_timeout");
  stalled.finish();
  const left = setup();
  left.body.write(encode([MODEL], ""));
  left.body.destroy();
  const gone = new PassThrough().destroy();
  await once(gone, "close");
  for (const { form, finish } of [left, setup({}, gone)]) {
    assert.equal(await form.beginning, "left");
    assert.equal(await form.next(), null);
    finish();
  }
});

Deno.test("a file of any name passes, and names cannot break a line", async () => {
  const { form, body, drain, finish } = setup();
  body.end(encode([
    { name: "extra[]", value: "ab", file: "n.txt" },
    { name: "file", value: "s", file: "a\tb.wav" },
  ]));
  assert.equal((await drain()).length, 3);
  assert.deepEqual(form.files.map(({ field, name }) => [field, name]), [
    ["extra[]", "n.txt"],
    ["file", "ab.wav"],
  ]);
  finish();
});

Deno.test("fields take room of the edge while they arrive, which there may not be", async () => {
  const value = "x".repeat(fieldBytesMax);
  const field = { name: "f", value };
  const { form, body, drain, finish, heldBytes } = setup();
  body.end(encode([field, RECORDING]));
  const drained = drain();
  await form.filled;
  assert.ok(heldBytes() >= fieldBytesMax, `${heldBytes()}`);
  await drained;
  finish();
  const small = setup({}, undefined, { bodiesBytesMax: 2_000_000 });
  small.body.end(encode([field]));
  assert.equal(await small.codeOf(), "concurrency_limit_exceeded");
  small.finish();
});

Deno.test("fields keep their names, their order and each of their values", async () => {
  const { form, body, drain, finish } = setup();
  body.end(encode([
    { name: "z", value: "1" },
    { name: "names[]", value: "Ann" },
    { name: "a", value: "" },
    { name: "names[]", value: "Bob" },
    { name: "b", value: "1" },
    { name: "b", value: "2" },
    { name: "__proto__", value: "x" },
  ]));
  await drain();
  assert.deepEqual(Object.entries(form.fields), [
    ["z", "1"],
    ["names[]", ["Ann", "Bob"]],
    ["a", ""],
    ["b", ["1", "2"]],
    ["__proto__", "x"],
  ]);
  finish();
});
