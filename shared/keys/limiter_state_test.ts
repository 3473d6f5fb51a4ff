/** How limits and usage are kept in Redis. */
import assert from "node:assert/strict";
import {
  type Counter,
  FAILURE_REASONS,
  LIMITER_EPOCH_MS,
  limiterDay,
  parseUsageField,
  USAGE_KINDS,
  usageDay,
  type UsageEndpoint,
  usageField,
  usageHour,
} from "./limiter_state.ts";

const TABLE = [
  { iso: "2025-01-01T00:00:00.000Z", day: "20250101", hour: "00", number: 0 },
  { iso: "2025-01-01T23:59:59.999Z", day: "20250101", hour: "23", number: 0 },
  { iso: "2025-01-02T00:00:00.000Z", day: "20250102", hour: "00", number: 1 },
  { iso: "2026-11-20T09:05:00.000Z", day: "20261120", hour: "09", number: 688 },
  {
    iso: "2028-02-29T10:00:00.000Z",
    day: "20280229",
    hour: "10",
    number: 1154,
  },
  {
    iso: "2028-03-01T00:00:00.000Z",
    day: "20280301",
    hour: "00",
    number: 1155,
  },
];

Deno.test("usage is counted by UTC day and hour, limits by days since a midnight", () => {
  for (const { iso, day, hour, number } of TABLE) {
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

interface UsageField {
  hour: string;
  counter: Counter;
  /** Missing: counted by an earlier version. */
  endpoint?: UsageEndpoint;
  /** Empty: of no model. */
  model: string;
  /** How all of it is written. */
  field: string;
}

const FIELDS: UsageField[] = [
  {
    hour: "09",
    counter: USAGE_KINDS.completionTokens,
    model: "",
    field: "09:out",
  },
  {
    hour: "09",
    counter: USAGE_KINDS.refused,
    model: "small-1",
    field: "09:ref:small-1",
  },
  {
    hour: "09",
    counter: USAGE_KINDS.cachedTokens,
    endpoint: "messages",
    model: "llama3.2:70b",
    field: "09:cin@messages:llama3.2:70b",
  },
  {
    hour: "09",
    counter: "invalid_request",
    endpoint: "chat",
    model: "",
    field: "09:invalid_request@chat",
  },
  {
    hour: "23",
    counter: USAGE_KINDS.requests,
    model: "llama3.2:70b",
    field: "23:req:llama3.2:70b",
  },
  {
    hour: "00",
    counter: "tokens_per_day.owner",
    model: "m",
    field: "00:tokens_per_day.owner:m",
  },
  {
    hour: "00",
    counter: "unknown_model",
    model: "",
    field: "00:unknown_model",
  },
];

Deno.test("fields of usage name hour, counter, endpoint and model", () => {
  for (const { hour, counter, endpoint, model, field } of FIELDS) {
    assert.equal(usageField(hour, counter, { model, endpoint }), field);
    assert.deepEqual(parseUsageField(field), {
      hour,
      counter,
      endpoint: endpoint ?? "",
      model,
    });
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
