import assert from "node:assert/strict";
import { BUS_LIMITS } from "../limits.ts";
import {
  BodyAssembly,
  decodeJob,
  decodePiece,
  encodePiece,
  JOB_VERSION,
  pieceCount,
} from "./job.ts";

const PIECE = BUS_LIMITS.pieceBytes;

function bodyOf(bytes: number): Uint8Array {
  return Uint8Array.from(
    { length: bytes },
    (_, i) => (i * 31 + (i >> 8)) & 255,
  );
}

for (
  const bytes of [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 17]
) {
  Deno.test(`a body of ${bytes} bytes comes back from its pieces in any order, each twice`, () => {
    const body = bodyOf(bytes);
    const assembly = new BodyAssembly(bytes);
    for (let index = pieceCount(bytes) - 1; index >= 0; index -= 1) {
      const piece = decodePiece(encodePiece(body, 2, index));
      assert.ok(piece);
      assert.equal(piece.attempt, 2);
      const expected = index === 0 ? "complete" : "more";
      assert.equal(assembly.add(piece), expected);
      assert.equal(assembly.add(piece), expected);
    }
    assert.deepEqual(assembly.body, body);
  });
}

Deno.test("add() refuses a piece of the wrong size or beyond the end", () => {
  const assembly = new BodyAssembly(PIECE + 1);
  for (
    const piece of [
      { attempt: 1, index: 0, bytes: new Uint8Array(PIECE - 1) },
      { attempt: 1, index: 1, bytes: new Uint8Array(2) },
      { attempt: 1, index: 2, bytes: new Uint8Array(1) },
      { attempt: 1, index: 4_000_000_000, bytes: new Uint8Array(0) },
    ]
  ) assert.equal(assembly.add(piece), "invalid");
  assert.equal(decodePiece(new Uint8Array(7)), null, "shorter than its header");
});

Deno.test("decodeJob() reads a job with its request or its body, and names the attempt of one it does not understand", () => {
  const bytesOf = (value: unknown) =>
    new TextEncoder().encode(JSON.stringify(value));
  const envelope = { version: JOB_VERSION, attempt: 7, deadlineMs: 1 };
  const request = { model: "m", stream: true, input: "any" };
  const body = { bytes: PIECE + 1, pieces: 2 };
  for (const job of [{ ...envelope, request }, { ...envelope, body }]) {
    assert.deepEqual(decodeJob(bytesOf(job)), job);
  }
  const mismatches = [
    { ...envelope, version: JOB_VERSION + 1, request: "of another form" },
    { ...envelope, body: { ...body, pieces: 3 } },
  ];
  for (const job of mismatches) {
    assert.deepEqual(decodeJob(bytesOf(job)), { mismatchedAttempt: 7 });
  }
  const damaged = [
    "no job",
    { ...envelope, deadlineMs: 0, request },
    { ...envelope, request: { ...request, stream: "yes" } },
    envelope,
  ];
  for (const job of damaged) assert.equal(decodeJob(bytesOf(job)), null);
});
