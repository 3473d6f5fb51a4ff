/** Names of the bars of a span: weeks, days, or hours in its time zone. */
import type { ShownSpan } from "./shown_report.ts";

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
function dayText({ from, to }: ShownSpan, day: string): string {
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
  /** `Nov 28`, `28 Nov, 13:00`, or `Week of Nov 23`. */
  readonly full: readonly string[];
  /** The same below a chart, where less is enough: `13:00`, `Nov 23`. */
  readonly short: readonly string[];
}

/** Names the subjects of the bars of a span. */
export function markTexts(span: ShownSpan): MarkTexts {
  const dated = hourIn(span.zone, { month: "short", day: "numeric" });
  const plain = hourIn(span.zone, {});
  const textsBy = (hours: Intl.DateTimeFormat) =>
    span.marks.map((mark) =>
      typeof mark === "string" ? dayText(span, mark) : hours.format(mark)
    );
  const full = textsBy(dated);
  if (span.unit === "week") {
    return { full: full.map((text) => `Week of ${text}`), short: full };
  }
  return { full, short: span.unit === "day" ? full : textsBy(plain) };
}
