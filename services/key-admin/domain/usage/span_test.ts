// Guarantee: a span has each hour of its days once, in any time zone, and a text that
// means no span is refused with what is wrong.
import assert from "node:assert/strict";
import { parseSpan, type SpanTexts, type UsageSpan } from "./span.ts";

const NONE: SpanTexts = { range: "", from: "", to: "", zone: "" };
const NOW_MS = Date.parse("2026-11-29T10:30:00Z");

const read = (texts: Partial<SpanTexts>, nowMs = NOW_MS) =>
  parseSpan({ ...NONE, ...texts }, { nowMs, defaultZone: "UTC" });

function spanOf(texts: Partial<SpanTexts>, nowMs = NOW_MS): UsageSpan {
  const span = read(texts, nowMs);
  assert.ok(!("message" in span), JSON.stringify(span));
  return span;
}

/** How many UTC hours belong to each mark. */
function hoursIn(span: UsageSpan): number[] {
  const hours = span.marks.map(() => 0);
  for (const day of span.utcDays) {
    for (let hour = 0; hour < 24; hour++) {
      const at = span.markOf(day, String(hour).padStart(2, "0"));
      if (at !== null) hours[at] = (hours[at] ?? 0) + 1;
    }
  }
  return hours;
}

Deno.test("spans with a name have their days", () => {
  const cases: [range: string, shown: unknown[]][] = [
    ["today", ["2026-11-29", "2026-11-29", 11]],
    ["7d", ["2026-11-23", "2026-11-29", 7]],
    ["30d", ["2026-10-31", "2026-11-29", 30]],
    ["90d", ["2026-09-01", "2026-11-29", 90]],
    ["this-month", ["2026-11-01", "2026-11-29", 29]],
    ["last-month", ["2026-10-01", "2026-10-31", 31]],
    ["", ["2026-11-28", "2026-11-29", 24]],
  ];
  for (const [range, shown] of cases) {
    const { from, to, marks, isOpen } = spanOf({ range });
    assert.deepEqual([from, to, marks.length], shown, range);
    assert.equal(isOpen, range !== "last-month");
  }
  assert.equal(spanOf({ range: "7d" }).unit, "day");
  assert.equal(spanOf({ from: "2026-11-01", to: "2026-11-03" }).unit, "hour");
  assert.equal(spanOf({ from: "2026-11-01", to: "2026-11-04" }).unit, "day");
});

Deno.test("the days of a time zone have their hours, also when clocks change", () => {
  const days = { from: "2026-10-24", to: "2026-10-27" };
  assert.deepEqual(hoursIn(spanOf(days)), [24, 24, 24, 24]);
  const berlin = spanOf({ ...days, zone: "Europe/Berlin" });
  assert.deepEqual(hoursIn(berlin), [24, 25, 24, 24]);
  assert.equal(berlin.markOf("20261023", "22"), 0);
  assert.equal(berlin.markOf("20261023", "21"), null);
  const kolkata = spanOf({ ...days, zone: "Asia/Kolkata" });
  assert.deepEqual(hoursIn(kolkata), [24, 24, 24, 24]);
  const day = spanOf({
    from: "2026-10-25",
    zone: "Europe/Berlin",
    to: "2026-10-25",
  });
  assert.equal(day.marks.length, 25);
});

Deno.test("days without hours count for the day of the same name", () => {
  const span = spanOf({
    from: "2026-01-01",
    to: "2026-11-29",
    zone: "Pacific/Auckland",
  });
  assert.equal(span.markOf("20260101", ""), 0);
  assert.equal(span.markOf("20251231", ""), null);
  // Hours of the last 40 days are exact: this one is tomorrow there.
  assert.equal(span.marks[span.markOf("20261127", "12") ?? -1], "2026-11-28");
  assert.equal(spanOf({ from: "2026-03-01", to: "2026-03-01" }).unit, "day");
});

Deno.test("a span that is none is refused with what is wrong", () => {
  const cases: [Partial<SpanTexts>, RegExp][] = [
    [{ zone: "Mars/Base" }, /^zone: .*no such time zone/],
    [{ zone: "x".repeat(61) }, /^zone: .*no such time zone/],
    [{ range: "forever" }, /^range: .*One of 24h/],
    [{ from: "yesterday" }, /^from: .*Not a day/],
    [{ from: "2026-02-30" }, /^from: .*Not a day/],
    [{ from: "2026-11-01", to: "29.11.2026" }, /^to: .*Not a day/],
    [{ from: "2026-11-05", to: "2026-11-04" }, /^to: .*before the first day/],
    [{ from: "1999-07-15", to: "2026-11-29" }, /^from: .*These are 10000 days/],
    [{ from: "2025-01-01", to: "2025-01-05" }, /^from: .*kept for 400 days/],
    [{ from: "2026-11-30", to: "2026-12-01" }, /^from: .*not begun/],
  ];
  for (const [texts, mistake] of cases) {
    const found = read(texts);
    assert.ok("message" in found, JSON.stringify(texts));
    assert.match(`${found.field}: ${found.message}`, mistake);
  }
  assert.equal(spanOf({ from: "2025-10-26" }).marks.length, 400);
  assert.equal(
    spanOf({ from: "2026-11-01", to: "2027-01-01" }).to,
    "2027-01-01",
  );
});
