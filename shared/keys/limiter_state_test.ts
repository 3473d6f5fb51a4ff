import assert from "node:assert/strict";
import {
  LIMITER_EPOCH_MS,
  limiterDay,
  usageDay,
  usageField,
  usageHour,
} from "./limiter_state.ts";

const TABLE: [iso: string, day: string, hour: string, number: number][] = [
  ["2025-01-01T00:00:00.000Z", "20250101", "00", 0],
  ["2025-01-01T23:59:59.999Z", "20250101", "23", 0],
  ["2025-01-02T00:00:00.000Z", "20250102", "00", 1],
  ["2026-11-20T09:05:00.000Z", "20261120", "09", 688],
];

for (const [iso, day, hour, number] of TABLE) {
  Deno.test(`usage of ${iso} is counted under ${day} ${hour}`, () => {
    const atMs = Date.parse(iso);
    assert.equal(usageDay(atMs), day);
    assert.equal(usageHour(atMs), hour);
    assert.equal(limiterDay(atMs), number);
  });
}

Deno.test("the limiter's epoch is a midnight UTC", () => {
  assert.equal(LIMITER_EPOCH_MS % 86_400_000, 0);
  assert.equal(usageField("09", "completionTokens"), "09:out");
});
