/** Names of the bars of a span: days, or hours in its time zone. */
import type { UsageSpan } from "../../../domain/usage/span.ts";

const DAY = new Intl.DateTimeFormat("en", {
  month: "short",
  day: "numeric",
  timeZone: "UTC",
});
const DAY_OF_YEAR = new Intl.DateTimeFormat("en", {
  month: "short",
  day: "numeric",
  year: "numeric",
  timeZone: "UTC",
});

/** `Nov 28`, and with the year where the span has two. */
function dayText({ from, to }: UsageSpan, day: string): string {
  const isOneYear = from.slice(0, 4) === to.slice(0, 4);
  return (isOneYear ? DAY : DAY_OF_YEAR).format(Date.parse(day));
}

const hourIn = (zone: string, options: Intl.DateTimeFormatOptions) =>
  new Intl.DateTimeFormat("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    timeZone: zone,
    ...options,
  });

/** The names of the subjects of all bars of a span. */
export interface MarkTexts {
  /** `Nov 28`, or `28 Nov, 13:00`. */
  readonly full: readonly string[];
  /** The same below a chart, where the day of an hour is left out: `13:00`. */
  readonly short: readonly string[];
}

/** Names the subjects of the bars of a span. */
export function markTexts(span: UsageSpan): MarkTexts {
  const dated = hourIn(span.zone, { month: "short", day: "numeric" });
  const plain = hourIn(span.zone, {});
  const textsBy = (hours: Intl.DateTimeFormat) =>
    span.marks.map((mark) =>
      typeof mark === "string" ? dayText(span, mark) : hours.format(mark)
    );
  const full = textsBy(dated);
  return { full, short: span.unit === "day" ? full : textsBy(plain) };
}
