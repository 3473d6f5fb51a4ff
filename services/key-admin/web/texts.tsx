import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import { minuteText } from "../domain/keys/key_record.ts";
import { limitWords } from "../domain/keys/settings.ts";

/** Names, numbers and times for people. */

/** Labels of names that are not clear enough. */
const LABELS: Readonly<Record<string, string>> = {
  concurrency: "Requests at the same time",
  "video jobs": "Videos at the same time",
};

/** `Tokens per day` for `tokensPerDay`, `tokens_per_day` or `tokens.per.day` */
export function labelOf(name: string): string {
  const words = limitWords(name, " ").replaceAll(/[._]/g, " ");
  return LABELS[words] ?? words.slice(0, 1).toUpperCase() + words.slice(1);
}

const PERMISSIONS: Readonly<Record<string, string>> = {
  models: "List of models",
  speech: "Speech and transcription",
};

/** What a scope of a key allows. */
export const permissionOf = (scope: string): string =>
  PERMISSIONS[scope] ?? labelOf(scope);

const NUMBER = new Intl.NumberFormat("en-US");

/** `1,234,567` */
export const number = (value: number): string => NUMBER.format(value);

/** `3,400 characters`, `1 audio second` */
export const unitsText = (count: number, unit: UsageUnit): string =>
  `${number(count)} ${
    limitWords(unit, " ").slice(0, count === 1 ? -1 : undefined)
  }`;

/** A time for people. The script shows it in the reader's zone. */
export function Time(
  { ms, as }: { ms: number; as: "day" | "minute" | "relative" },
) {
  const iso = new Date(ms).toISOString();
  return (
    <time datetime={iso} data-time={iso} data-as={as}>
      {as === "day" ? iso.slice(0, 10) : minuteText(ms)}
    </time>
  );
}

/** `3 hours ago`, `in 2 days`, a date further away, or `Never`. */
export function Moment({ ms, nowMs }: { ms: number | null; nowMs: number }) {
  if (ms === null) return <span class="faint">Never</span>;
  return <Time ms={ms} as={ms - nowMs < SOON_MS ? "relative" : "day"} />;
}

/** A time before now or within this period is shown relative to now. */
export const SOON_MS = 7 * 86_400_000;
