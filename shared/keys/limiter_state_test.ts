import assert from "node:assert/strict";
import {
  type Counter,
  FAILURE_REASONS,
  LIMITER_EPOCH_MS,
  limiterDay,
  parseUsageField,
  USAGE_KINDS,
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

Deno.test("usage is counted by UTC day and hour, limits by days since a midnight", () => {
  for (const [iso, day, hour, number] of TABLE) {
    const atMs = Date.parse(iso);
    const counted = [
      usageDay(atMs),
      usageHour(atMs),
      limiterDay(atMs),
    ];
    assert.deepEqual(counted, [day, hour, number]);
  }
  assert.equal(LIMITER_EPOCH_MS % 86_400_000, 0);
});

const FIELDS: [hour: string, Counter, model: string, field: string][] = [
  ["09", USAGE_KINDS.completionTokens, "", "09:out"],
  ["09", USAGE_KINDS.refused, "small-1", "09:ref:small-1"],
  ["23", USAGE_KINDS.requests, "llama3.2:70b", "23:req:llama3.2:70b"],
  ["00", "tokens_per_day.owner", "m", "00:tokens_per_day.owner:m"],
  ["00", "unknown_model", "", "00:unknown_model"],
];

Deno.test("fields of usage name hour, counter and model", () => {
  for (const [hour, counter, model, field] of FIELDS) {
    assert.equal(usageField(hour, counter, model), field);
    assert.deepEqual(parseUsageField(field), { hour, counter, model });
  }
});

Deno.test("no reason has the name of a counter", () => {
  const names = new Set<string>(Object.values(USAGE_KINDS));
  assert.deepEqual(FAILURE_REASONS.filter((each) => names.has(each)), []);
  assert.equal(
    new Set(FAILURE_REASONS).size,
    FAILURE_REASONS.length,
  );
});
