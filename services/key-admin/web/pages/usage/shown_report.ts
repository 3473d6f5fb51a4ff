/** What pages show of a report: its bars, or weeks where it has very many days. */
import { addCounts, type Counts } from "../../../domain/keys/usage.ts";
import type { UsageSpan } from "../../../domain/usage/span.ts";
import type {
  UsageGroup,
  UsageReport,
} from "../../../domain/usage/usage_reports.ts";

/** A report with the groups that its bars are stacked by. */
export type GroupedReport = UsageReport & {
  readonly groups: readonly UsageGroup[];
};

/** A span whose bars may be weeks, named by their first day in the span. */
export type ShownSpan = Omit<UsageSpan, "unit"> & {
  readonly unit: UsageSpan["unit"] | "week";
};

/** A report as it is shown. */
export type ShownReport = Omit<GroupedReport, "span"> & {
  readonly span: ShownSpan;
};

/** Half a year. More bars are narrower than a pixel on a phone, and slow to draw. */
const DAYS_MAX = 184;
const MONDAY = 1;

/** The same, by weeks from Monday on if it has more than half a year of days. */
export function shownReport(report: GroupedReport): ShownReport {
  const { span, buckets, groups } = report;
  if (span.unit === "hour" || span.marks.length <= DAYS_MAX) return report;
  const marks: (number | string)[] = [];
  const places = span.marks.map((mark) => {
    const isFirst = new Date(mark).getUTCDay() === MONDAY;
    if (isFirst || marks.length === 0) marks.push(mark);
    return marks.length - 1;
  });
  const inWeeks = (days: readonly Counts[]): Counts[] => {
    const weeks = marks.map((): Counts => ({}));
    for (const [at, counts] of days.entries()) {
      addCounts(weeks[places[at] ?? 0] ?? {}, counts);
    }
    return weeks;
  };
  return {
    ...report,
    span: { ...span, unit: "week", marks },
    buckets: inWeeks(buckets),
    groups: groups.map((group) => ({
      ...group,
      buckets: inWeeks(group.buckets),
    })),
  };
}
