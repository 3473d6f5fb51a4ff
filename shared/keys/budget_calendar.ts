/**
 * The days and months of budgets, in the time zone of the installation. They are
 * computed from the clock and named in Redis keys, so nothing has to reset them. A day
 * on which clocks change has 23 or 25 hours.
 */

/** A day or a month. */
export interface BudgetWindow {
  /** As in Redis keys: `d20261128`, `m202611`. */
  readonly name: string;
  /** When it begins, and when the next one does, in Unix ms. */
  readonly startMs: number;
  readonly endMs: number;
}

/** The day and the month of a time. */
export interface BudgetCalendar {
  readonly day: BudgetWindow;
  readonly month: BudgetWindow;
}

/** The window of a budget that is never reset. */
export const TOTAL_WINDOW = "total";

const HOUR_MS = 3_600_000;
/** No day is longer, and no month. */
const DAY_MAX_MS = 50 * HOUR_MS;
const MONTH_MAX_MS = 33 * 24 * HOUR_MS;
const MONTH_CHARS = "202611".length;

/** Whether a text names a time zone: `Europe/Berlin`, `UTC`. */
export function isTimeZone(text: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: text }).format() !== "";
  } catch {
    return false;
  }
}

/** The calendar of a time zone. Example: `new BudgetDays("UTC").at(0).day.name`. */
export class BudgetDays {
  readonly #format: Intl.DateTimeFormat;

  constructor(readonly zone: string) {
    this.#format = new Intl.DateTimeFormat("en-CA", {
      timeZone: zone,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
    });
  }

  /** The day and the month of a time in Unix ms. */
  at(timeMs: number): BudgetCalendar {
    const date = this.#dateOf(timeMs);
    const month = date.slice(0, MONTH_CHARS);
    return {
      day: {
        name: `d${date}`,
        ...bounds(timeMs, DAY_MAX_MS, (ms) => this.#dateOf(ms) === date),
      },
      month: {
        name: `m${month}`,
        ...bounds(
          timeMs,
          MONTH_MAX_MS,
          (ms) => this.#dateOf(ms).startsWith(month),
        ),
      },
    };
  }

  /** `20261128` */
  #dateOf(timeMs: number): string {
    return this.#format.format(timeMs).replaceAll("-", "");
  }
}

/** The first ms of the times around `timeMs` that are inside, and the first behind. */
function bounds(
  timeMs: number,
  longestMs: number,
  isInside: (ms: number) => boolean,
): { startMs: number; endMs: number } {
  return {
    startMs: firstMs(timeMs - longestMs, timeMs, isInside),
    endMs: firstMs(timeMs, timeMs + longestMs, (ms) => !isInside(ms)),
  };
}

/** The first ms with a property that `toMs` has and `fromMs` has not. */
function firstMs(
  fromMs: number,
  toMs: number,
  has: (ms: number) => boolean,
): number {
  let [before, first] = [fromMs, toMs];
  while (first - before > 1) {
    const middle = Math.floor((before + first) / 2);
    if (has(middle)) first = middle;
    else before = middle;
  }
  return first;
}

/**
 * The calendar as the admission script takes it: `d20261128:<starts>:<ends>` of the day
 * and `m202611:<ends>` of its month, which has begun when the day has.
 */
export function calendarText({ day, month }: BudgetCalendar): string {
  return [day.name, day.startMs, day.endMs, month.name, month.endMs].join(":");
}
