// Promise: a budget of a day or a month is one of the calendar, in any time zone, and
// all times of it have the same window.
import assert from "node:assert/strict";
import { BudgetDays, calendarText, isTimeZone } from "./budget_calendar.ts";

const HOUR_MS = 3_600_000;

const DAYS: readonly {
  name: string;
  zone: string;
  at: string;
  day: string;
  starts: string;
  hours: number;
}[] = [
  {
    name: "in UTC",
    zone: "UTC",
    at: "2026-11-28T23:59:59.999Z",
    day: "d20261128",
    starts: "2026-11-28T00:00:00Z",
    hours: 24,
  },
  {
    name: "its first ms",
    zone: "UTC",
    at: "2026-11-29T00:00:00Z",
    day: "d20261129",
    starts: "2026-11-29T00:00:00Z",
    hours: 24,
  },
  {
    name: "east of UTC",
    zone: "Asia/Kolkata",
    at: "2026-11-28T18:30:00Z",
    day: "d20261129",
    starts: "2026-11-28T18:30:00Z",
    hours: 24,
  },
  {
    name: "when clocks go forward",
    zone: "Europe/Berlin",
    at: "2026-03-29T12:00:00Z",
    day: "d20260329",
    starts: "2026-03-28T23:00:00Z",
    hours: 23,
  },
  {
    name: "when clocks go back",
    zone: "Europe/Berlin",
    at: "2026-10-25T00:30:00Z",
    day: "d20261025",
    starts: "2026-10-24T22:00:00Z",
    hours: 25,
  },
  {
    name: "that does not begin at midnight",
    zone: "America/Santiago",
    at: "2026-09-06T12:00:00Z",
    day: "d20260906",
    starts: "2026-09-06T04:00:00Z",
    hours: 23,
  },
];

Deno.test("a day begins and ends with the calendar of the zone", () => {
  for (const { name, zone, at, day, starts, hours } of DAYS) {
    const window = new BudgetDays(zone).at(Date.parse(at)).day;
    assert.equal(window.name, day, name);
    assert.equal(window.startMs, Date.parse(starts), name);
    assert.equal(window.endMs - window.startMs, hours * HOUR_MS, name);
  }
});

Deno.test("a month has all of its days, and the next begins where it ends", () => {
  const days = new BudgetDays("Europe/Berlin");
  const march = days.at(Date.parse("2028-03-15T00:00:00Z")).month;
  assert.equal(march.name, "m202803");
  assert.equal(march.startMs, Date.parse("2028-02-29T23:00:00Z"));
  assert.equal(march.endMs, Date.parse("2028-03-31T22:00:00Z"));
  const april = days.at(march.endMs).month;
  assert.deepEqual([april.name, april.startMs], ["m202804", march.endMs]);
  const february = days.at(march.startMs - 1).month;
  assert.deepEqual(
    [february.name, february.endMs],
    ["m202802", march.startMs],
  );
});

Deno.test("each hour of two years is in one day and one month, whatever the zone", () => {
  for (const zone of ["UTC", "America/New_York", "Australia/Lord_Howe"]) {
    const days = new BudgetDays(zone);
    let timeMs = Date.parse("2026-01-01T00:00:00Z");
    const endMs = timeMs + 2 * 365 * 24 * HOUR_MS;
    let before = days.at(timeMs);
    while (timeMs < endMs) {
      timeMs = before.day.endMs;
      const { day, month } = days.at(timeMs);
      assert.equal(day.startMs, before.day.endMs, zone);
      assert.ok(day.name > before.day.name, zone);
      const isSame = month.name === before.month.name;
      assert.equal(month.startMs, before.month[isSame ? "startMs" : "endMs"]);
      before = { day, month };
    }
  }
});

Deno.test("the calendar is told as names and times", () => {
  const text = calendarText(new BudgetDays("UTC").at(Date.UTC(2026, 10, 28)));
  const parts = [
    "d20261128",
    Date.UTC(2026, 10, 28),
    Date.UTC(2026, 10, 29),
    "m202611",
    Date.UTC(2026, 11, 1),
  ];
  assert.equal(text, parts.join(":"));
});

Deno.test("isTimeZone() knows the names of the operating system", () => {
  for (const zone of ["UTC", "Europe/Berlin", "America/New_York"]) {
    assert.ok(isTimeZone(zone), zone);
  }
  for (const zone of ["", "Berlin", "Europe/Nowhere", "25:00"]) {
    assert.ok(!isTimeZone(zone), zone);
  }
});
