/** The time whose usage is shown, as addresses name it: days of a time zone. */
import { isTimeZone } from "@gateway/shared/keys/budget_calendar";
import {
  USAGE_DAYS_KEPT,
  USAGE_HOURS_KEPT_DAYS,
} from "@gateway/shared/keys/limiter_state";
import { utcDayMs } from "../keys/usage.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** The spans that have a name, with their labels. */
export const PRESETS = {
  "24h": "Last 24 hours",
  today: "Today",
  "7d": "7 days",
  "30d": "30 days",
  "90d": "90 days",
  "this-month": "This month",
  "last-month": "Last month",
} as const;
/** One of the {@link PRESETS}. */
export type Preset = keyof typeof PRESETS;
const PRESET_NAMES = ["24h", "today", "7d", "30d", "90d"] as const;

/** The span in an address, not checked yet; an empty text asks for nothing. */
export interface SpanTexts {
  readonly range: string;
  /** The first day and the last one: `2026-11-28`. They go before `range`. */
  readonly from: string;
  readonly to: string;
  readonly zone: string;
}

/** A span that cannot be read. */
export interface SpanMistake {
  readonly field: "from" | "to" | "zone" | "range";
  /** A sentence without its full stop. */
  readonly message: string;
}

/** A span of days in a time zone, oldest first. */
export interface UsageSpan {
  /** Null if the days were chosen one by one. */
  readonly preset: Preset | null;
  readonly zone: string;
  /** The first day and the last one: `2026-11-28`. */
  readonly from: string;
  readonly to: string;
  /** Whether the last bar is still filling. */
  readonly isOpen: boolean;
  readonly unit: "hour" | "day";
  /** The subject of each bar: the ms at which an hour begins, or a day as in `from`. */
  readonly marks: readonly (number | string)[];
  /** The UTC days whose counters belong to it, as `yyyymmdd`. */
  readonly utcDays: readonly string[];
  /** Returns the place of the mark that an hour of a UTC day belongs to, if any. */
  readonly markOf: (utcDay: string, hour: string) => number | null;
}

/** A span of this many days or fewer is shown by hours. */
const HOURLY_DAYS_MAX = 3;
const DAY = /^(\d{4})-(\d\d)-(\d\d)$/;
const ZONE_CHARS_MAX = 60;

/** The calendar of a time zone. */
class Days {
  readonly #format: Intl.DateTimeFormat;

  constructor(zone: string) {
    this.#format = new Intl.DateTimeFormat("en-CA", {
      timeZone: zone,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
    });
  }

  /** `2026-11-28` */
  at(ms: number): string {
    return this.#format.format(ms);
  }
}

/** The day this many days after another one. */
const plusDays = (day: string, days: number): string =>
  new Date(Date.parse(day) + days * DAY_MS).toISOString().slice(0, 10);

/** All days from the first to the last one. */
function daysBetween(from: string, to: string): string[] {
  const count = (Date.parse(to) - Date.parse(from)) / DAY_MS + 1;
  return Array.from(
    { length: Math.max(0, count) },
    (_, n) => plusDays(from, n),
  );
}

const compact = (day: string): string => day.replaceAll("-", "");

/** Whether a text is a day that there is: the 30th of February is none. */
const isDay = (text: string): boolean =>
  DAY.test(text) && !Number.isNaN(Date.parse(text)) &&
  plusDays(text, 0) === text;

/** Reads a span, or says what is wrong with it. An empty zone is `defaultZone`. */
export function parseSpan(
  texts: SpanTexts,
  { nowMs, defaultZone }: { nowMs: number; defaultZone: string },
): UsageSpan | SpanMistake {
  const zone = texts.zone || defaultZone;
  if (zone.length > ZONE_CHARS_MAX || !isTimeZone(zone)) {
    const message =
      "There is no such time zone: write one such as Europe/Berlin or UTC";
    return { field: "zone", message };
  }
  const days = new Days(zone);
  const today = days.at(nowMs);
  if (texts.from === "" && texts.to === "") {
    const preset = presetOf(texts.range);
    if (preset === null) {
      const message = `One of ${Object.keys(PRESETS).join(", ")}`;
      return { field: "range", message };
    }
    return preset === "24h"
      ? lastDay(zone, days, nowMs)
      : spanOf({ preset, zone, ...daysOf(preset, today) }, { days, nowMs });
  }
  const bounds = { from: texts.from || texts.to, to: texts.to || today };
  return mistakeIn(bounds, today) ??
    spanOf({ preset: null, zone, ...bounds }, { days, nowMs });
}

function presetOf(text: string): Preset | null {
  if (text === "") return "24h";
  if (text === "this-month" || text === "last-month") return text;
  return PRESET_NAMES.find((name) => name === text) ?? null;
}

/** The first and the last day of a span with a name. */
function daysOf(
  preset: Exclude<Preset, "24h">,
  today: string,
): { from: string; to: string } {
  const first = `${today.slice(0, 7)}-01`;
  if (preset === "this-month") return { from: first, to: today };
  if (preset === "last-month") {
    const to = plusDays(first, -1);
    return { from: `${to.slice(0, 7)}-01`, to };
  }
  const count = preset === "today" ? 1 : parseInt(preset);
  return { from: plusDays(today, 1 - count), to: today };
}

function mistakeIn(
  { from, to }: { from: string; to: string },
  today: string,
): SpanMistake | null {
  for (const [field, day] of [["from", from], ["to", to]] as const) {
    if (!isDay(day)) {
      return { field, message: "Not a day: write one such as 2026-11-28" };
    }
  }
  const kept = plusDays(today, 1 - USAGE_DAYS_KEPT);
  if (to < from) {
    return { field: "to", message: "It is before the first day" };
  }
  const count = (Date.parse(to) - Date.parse(from)) / DAY_MS + 1;
  if (count > USAGE_DAYS_KEPT) {
    const message =
      `These are ${count} days, and ${USAGE_DAYS_KEPT} are kept: choose fewer`;
    return { field: "from", message };
  }
  if (from < kept) {
    const message =
      `Usage is kept for ${USAGE_DAYS_KEPT} days: choose ${kept} or a later day`;
    return { field: "from", message };
  }
  return from > today
    ? { field: "from", message: "This day has not begun yet" }
    : null;
}

/** The last 24 hours, as they begin in UTC. */
function lastDay(zone: string, days: Days, nowMs: number): UsageSpan {
  const lastMs = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
  const firstMs = lastMs - 23 * HOUR_MS;
  const from = days.at(firstMs);
  return {
    preset: "24h",
    zone,
    from,
    to: days.at(nowMs),
    isOpen: true,
    ...hourly(Array.from({ length: 24 }, (_, n) => firstMs + n * HOUR_MS)),
  };
}

/** A span by these hours, each of which begins at one of the times. */
function hourly(marks: readonly number[]) {
  const places = new Map(marks.map((ms, at) => [hourName(ms), at]));
  const utcDays = [...new Set(marks.map(utcDayOf))];
  return {
    unit: "hour" as const,
    marks,
    utcDays,
    markOf: (day: string, hour: string) => places.get(day + hour) ?? null,
  };
}

const utcDayOf = (ms: number): string =>
  compact(new Date(ms).toISOString().slice(0, 10));
const hourName = (ms: number): string =>
  utcDayOf(ms) + new Date(ms).toISOString().slice(11, 13);

interface Bounds {
  readonly preset: Preset | null;
  readonly zone: string;
  readonly from: string;
  readonly to: string;
  readonly isOpen: boolean;
}

/** The span of these days, as far as they have begun. */
function spanOf(
  named: Omit<Bounds, "isOpen">,
  { days, nowMs }: { days: Days; nowMs: number },
): UsageSpan {
  const today = days.at(nowMs);
  const bounds = { ...named, isOpen: named.to >= today };
  const { from } = bounds;
  const to = bounds.to < today ? bounds.to : today;
  const marks = daysBetween(from, to);
  // A day of a zone begins or ends on another UTC day; what is kept ends with today's.
  const utcToday = utcDayOf(nowMs);
  const utcDays = daysBetween(plusDays(from, -1), plusDays(to, 1))
    .map(compact).filter((day) => day <= utcToday);
  const hours = hoursOf(utcDays, { days, nowMs });
  const hasHours = from > plusDays(today, 1 - USAGE_HOURS_KEPT_DAYS);
  if (marks.length <= HOURLY_DAYS_MAX && hasHours) {
    const inside = [...hours.values()].filter(({ day, ms }) =>
      day >= from && day <= to && ms <= nowMs
    );
    return { ...bounds, ...hourly(inside.map(({ ms }) => ms)) };
  }
  const places = new Map(marks.map((day, at) => [day, at]));
  const utcPlaces = new Map(marks.map((day, at) => [compact(day), at]));
  return {
    ...bounds,
    unit: "day",
    marks,
    utcDays,
    markOf: (utcDay, hour) => {
      const named = hours.get(utcDay + hour)?.day;
      return (named === undefined
        ? utcPlaces.get(utcDay)
        : places.get(named)) ?? null;
    },
  };
}

const HOURS = 24;

/**
 * The hours that are kept of these UTC days: when each begins, and the day on which
 * this is in the zone. Older days have none, and count for the day of the same name.
 * The calendar is asked as little as possible, because an answer takes it microseconds.
 */
function hoursOf(
  utcDays: readonly string[],
  { days, nowMs }: { days: Days; nowMs: number },
): Map<string, { ms: number; day: string }> {
  const keptMs = nowMs - (USAGE_HOURS_KEPT_DAYS + 1) * DAY_MS;
  const hours = new Map<string, { ms: number; day: string }>();
  for (const utcDay of utcDays) {
    const startMs = utcDayMs(utcDay);
    if (startMs < keptMs) continue;
    const first = days.at(startMs);
    const change = nextDayHour(startMs, days);
    const next = change === HOURS ? first : days.at(startMs + change * HOUR_MS);
    for (let hour = 0; hour < HOURS; hour++) {
      const ms = startMs + hour * HOUR_MS;
      const name = utcDay + String(hour).padStart(2, "0");
      hours.set(name, { ms, day: hour < change ? first : next });
    }
  }
  return hours;
}

/**
 * The first hour of a UTC day that is on another day of the zone than its first one:
 * there is at most one such change. 24: none is.
 */
function nextDayHour(startMs: number, days: Days): number {
  const first = days.at(startMs);
  const isSame = (hour: number) => days.at(startMs + hour * HOUR_MS) === first;
  if (isSame(HOURS - 1)) return HOURS;
  let [same, other] = [0, HOURS - 1];
  while (other - same > 1) {
    const middle = Math.floor((same + other) / 2);
    if (isSame(middle)) same = middle;
    else other = middle;
  }
  return other;
}
