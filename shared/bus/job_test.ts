/** Jobs on the wire, whole and in pieces. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { BUS_LIMITS } from "../limits.ts";
import {
  decodeJob,
  decodePiece,
  encodeLargeRequest,
  encodePiece,
  encodeUploadEnd,
  JOB_VERSION,
  UploadAssembly,
  type UploadEnd,
} from "./job.ts";

const PIECE = BUS_LIMITS.pieceBytes;

const encode = (text: string) => new TextEncoder().encode(text);
const REQUEST = { model: "m", stream: true, input: "any" };
const pieceOf = (bytes: Uint8Array, index: number) =>
  decodePiece(encodePiece(bytes, 2, index)) ?? assert.fail();
const endOf = (end: UploadEnd) =>
  decodePiece(encodeUploadEnd(end, 2)) ?? assert.fail();

Deno.test("a large request and an upload come back from their pieces", () => {
  for (const length of [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 17]) {
    const request = { ...REQUEST, input: "x".repeat(length) };
    const text = encode(JSON.stringify(request));
    const large = new UploadAssembly();
    const files = new UploadAssembly();
    for (let at = 0; at * PIECE < text.length; at += 1) {
      const bytes = text.subarray(at * PIECE, (at + 1) * PIECE);
      assert.equal(pieceOf(bytes, at).offerNumber, 2);
      assert.equal(large.add(pieceOf(bytes, at)), "more");
      assert.equal(files.add(pieceOf(bytes, at)), "more");
    }
    const whole = large.add(endOf({ files: [] }));
    assert.ok(typeof whole === "object" && whole.isJson);
    assert.deepEqual(whole.read(), { request, files: [] });
    const [one, two] = ["one", "two"].map((field) => (
      { field, name: "f", type: "t", bytes: 1 }
    ));
    assert.ok(one && two);
    two.bytes = text.length - 1;
    const end = { request: REQUEST, files: [one, two] };
    const complete = files.add(endOf(end));
    assert.ok(typeof complete === "object" && !complete.isJson);
    const upload = complete.read();
    assert.deepEqual(upload.request, REQUEST);
    const contents = upload.files.map(({ content }) => content);
    assert.deepEqual(Buffer.concat(contents), Buffer.from(text));
  }
});

Deno.test("a request that is too large for the last piece follows the files in pieces", () => {
  const request = { ...REQUEST, input: "x".repeat(BUS_LIMITS.jobBytesMax) };
  const file = { field: "f", name: "n", type: "t", bytes: 3 };
  assert.equal(encodeLargeRequest({ request: REQUEST, files: [file] }), null);
  const large = encodeLargeRequest({ request, files: [file] });
  const bytes = Buffer.concat([encode("abc"), large ?? assert.fail()]);
  const assembly = new UploadAssembly();
  for (let at = 0; at * PIECE < bytes.length; at += 1) {
    const piece = pieceOf(bytes.subarray(at * PIECE, (at + 1) * PIECE), at);
    assert.equal(assembly.add(piece), "more");
  }
  const upload = assembly.add(endOf({ files: [file] }));
  assert.ok(typeof upload === "object");
  const read = upload.read();
  assert.deepEqual(read.request, request);
  assert.deepEqual(
    read.files.map(({ content }) => String(Buffer.from(content))),
    ["abc"],
  );
});

Deno.test("add() refuses a piece out of order and files of another size; a damaged request is null", () => {
  const bytes = encode("no request");
  const file = { field: "f", name: "n", type: "t", bytes: bytes.length + 1 };
  const assembly = new UploadAssembly();
  assert.equal(assembly.add(pieceOf(bytes, 1)), "invalid");
  assert.equal(assembly.add(pieceOf(bytes, 0)), "more");
  assert.equal(assembly.add(pieceOf(bytes, 0)), "invalid");
  const end = endOf({ request: REQUEST, files: [file] });
  assert.equal(assembly.add(end), "invalid");
  const damaged = new UploadAssembly();
  assert.equal(damaged.add(pieceOf(bytes, 0)), "more");
  const upload = damaged.add(endOf({ files: [] }));
  assert.ok(typeof upload === "object");
  assert.deepEqual(upload.read(), { request: null, files: [] });
  assert.equal(decodePiece(new Uint8Array(7)), null, "shorter than its header");
});

Deno.test("decodeJob() reads jobs and uploads, and names the offer of a job it does not understand", () => {
  const bytesOf = (value: unknown) => encode(JSON.stringify(value));
  const envelope = { version: JOB_VERSION, attempt: 7, deadlineMs: 1 };
  const [request, upload] = [REQUEST, true];
  for (const job of [{ ...envelope, request }, { ...envelope, upload }]) {
    assert.deepEqual(decodeJob(bytesOf(job)), job);
  }
  const newer = { ...envelope, version: JOB_VERSION + 1, request: "other" };
  assert.deepEqual(decodeJob(bytesOf(newer)), { mismatchedOffer: 7 });
  const damaged = [
    "no job",
    { ...envelope, deadlineMs: 0, request },
    { ...envelope, request: { ...request, stream: "yes" } },
    { ...envelope, request, upload },
    envelope,
  ];
  for (const job of damaged) assert.equal(decodeJob(bytesOf(job)), null);
});
