import assert from "node:assert/strict";
import { STREAM_LIMITS } from "../limits.ts";
import { stallMs } from "./stall.ts";

Deno.test("stallMs() is what a late tick is late by", () => {
  const limits = { ...STREAM_LIMITS, tickMs: 50, tickLateMs: 200 };
  const table: [gapMs: number, stall: number][] = [
    [0, 0],
    [50, 0],
    [200, 0],
    [201, 151],
    [5_000, 4_950],
  ];
  for (const [gapMs, stall] of table) {
    assert.equal(stallMs(1_000, 1_000 + gapMs, limits), stall, `${gapMs}`);
  }
});
