// Promise: WaitingBytes gives the bytes that were added, each once and in order.
import assert from "node:assert/strict";
import { WaitingBytes } from "./waiting_bytes.ts";

const KIB = 1_024;

Deno.test("WaitingBytes gives what was added, in order, whatever is taken at a time", () => {
  for (const taken of [1, 7, 300, 100 * KIB]) {
    const waiting = new WaitingBytes();
    const added: number[] = [];
    const output: number[] = [];
    const take = () => {
      const first = waiting.first(taken);
      assert.equal(first.length, Math.min(taken, added.length - output.length));
      output.push(...first);
      waiting.drop(first.length);
      assert.equal(waiting.length, added.length - output.length);
    };
    for (let n = 0; n < 200; n += 1) {
      const piece = Uint8Array.from({ length: n % 40 }, (_, at) => n + at);
      waiting.add(piece);
      added.push(...piece);
      // What is added is a copy.
      piece.fill(0);
      if (n % 3 === 0) take();
    }
    while (waiting.length > 0) take();
    assert.deepEqual(output, added);
  }
});

Deno.test("WaitingBytes takes large pieces, and begins anew after them", () => {
  const waiting = new WaitingBytes();
  waiting.add(new Uint8Array(300 * KIB).fill(1));
  waiting.add(Uint8Array.of(2));
  assert.equal(waiting.first(256 * KIB).length, 256 * KIB);
  waiting.drop(300 * KIB);
  assert.deepEqual(waiting.first(10), Uint8Array.of(2));
  waiting.drop(1);
  waiting.add(Uint8Array.of(3));
  assert.deepEqual(waiting.first(10), Uint8Array.of(3));
  waiting.clear();
  assert.equal(waiting.length, 0);
});
