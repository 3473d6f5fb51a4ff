/** Answers of the API that are read whole. */
import assert from "node:assert/strict";
import { wholeBody } from "./edge.ts";

const BYTES = new TextEncoder().encode("a form in pieces");
const TOO_LARGE = new Error("Too large");

/** The bytes one by one, in one buffer that is used again for each. */
function inPieces(bytes: Uint8Array): ReadableStream<Uint8Array> {
  const piece = new Uint8Array(1);
  let at = 0;
  return new ReadableStream({
    pull: (controller) => {
      if (at === bytes.length) return controller.close();
      piece.set(bytes.subarray(at, at + 1));
      at += 1;
      controller.enqueue(piece);
    },
  }, { highWaterMark: 0 });
}

Deno.test("API4: wholeBody() keeps what it has read, and not its pieces, which take more memory than they hold", async () => {
  const body = await wholeBody(inPieces(BYTES), {
    bytesMax: BYTES.length,
    tooLarge: TOO_LARGE,
  });
  assert.deepEqual(new Uint8Array(body), BYTES);
  assert.equal((await wholeBody(null, NO_BYTES)).length, 0);
});

Deno.test("wholeBody() rejects a body of one byte too many", async () => {
  const bytesMax = BYTES.length - 1;
  const whole = wholeBody(inPieces(BYTES), { bytesMax, tooLarge: TOO_LARGE });
  await assert.rejects(whole, TOO_LARGE);
});

const NO_BYTES = { bytesMax: 0, tooLarge: TOO_LARGE };
