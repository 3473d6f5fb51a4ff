/** Shows names, numbers, times, and the state of a key. */

import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import type { KeyName, KeyRecord } from "@gateway/shared/keys/record";
import { isExact, type Named } from "@gateway/shared/models/aliases";
import type { Catalog } from "@gateway/shared/models/catalog";
import { NANOS_PER_UNIT } from "@gateway/shared/money/amount";
import { isExpired, minuteText } from "../../domain/keys/key_record.ts";
import { limitWords } from "../../domain/keys/settings.ts";

/** Labels of names that are not clear enough. */
const LABELS: Readonly<Record<string, string>> = {
  "cached tokens": "Tokens read from caches",
  "cache write tokens": "Tokens written to caches",
  "budget day": "Budget per day",
  "budget month": "Budget per month",
  "budget total": "Budget in total",
  concurrency: "Requests at the same time",
  "video jobs": "Videos at the same time",
  "estimated cost": "Estimated of that",
  estimated: "Estimated requests",
  unpriced: "Requests without a price",
};

/** `Tokens per day` for `tokensPerDay`, `tokens_per_day` or `tokens.per.day` */
export function labelOf(name: string): string {
  const words = limitWords(name, " ").replaceAll(/[._]/g, " ");
  return LABELS[words] ?? words.slice(0, 1).toUpperCase() + words.slice(1);
}

const PERMISSIONS: Readonly<Record<string, string>> = {
  models: "List of models",
  speech: "Speech and transcription",
  embedding: "Embeddings and reranking",
};

/** What a scope of a key allows. */
export const permissionOf = (scope: string): string =>
  PERMISSIONS[scope] ?? labelOf(scope);

/** `qwen3-32b (also gpt-4o, gpt-4)`: the id of a model, with its first aliases. */
export function namesText({ id, aliases }: Named): string {
  const names = aliases.filter(isExact);
  const firstNames = names.slice(0, ALIASES_SHOWN_MAX).join(", ");
  const more = names.length > ALIASES_SHOWN_MAX ? " …" : "";
  return names.length === 0 ? id : `${id} (also ${firstNames}${more})`;
}
/** The most aliases that are shown: an installation may have dozens. */
const ALIASES_SHOWN_MAX = 3;

/** Marks a model that a key names and the list of models does not have. */
export const absenceOf = ({ isPending }: Pick<Catalog, "isPending">): string =>
  isPending ? "not listed yet" : "no longer configured";

const NUMBER = new Intl.NumberFormat("en-US");
/** Where whole numbers have a comma. */
const THOUSANDS = /\B(?=(?:\d{3})+$)/g;

/** Writes a number with separators: `1,234,567`. */
export const number = (value: number): string =>
  // A table of a year has thousands of numbers, which the format takes its time for.
  Number.isSafeInteger(value)
    ? String(value).replace(THOUSANDS, ",")
    : NUMBER.format(value);

/**
 * Writes amounts of billionths for people: `$1,234.56`, and below a tenth with more
 * decimals, `$0.001234`. What is left off is not lost: files have all of it. For many
 * amounts, since to make a format takes as long as to write a hundred.
 */
export function moneyIn(currency: string): (nanos: number) => string {
  const formats = new Map<number, Intl.NumberFormat>();
  return (nanos) => {
    const units = nanos / NANOS_PER_UNIT;
    const size = Math.abs(units);
    const decimals = size === 0 || size >= 0.1 ? 2 : size >= 0.001 ? 6 : 9;
    const format = formats.get(decimals) ?? new Intl.NumberFormat("en-US", {
      style: "currency",
      currency,
      maximumFractionDigits: decimals,
      minimumFractionDigits: 2,
    });
    formats.set(decimals, format);
    return format.format(units);
  };
}

/** Writes one amount, as {@link moneyIn} does. */
export const money = (nanos: number, currency: string): string =>
  moneyIn(currency)(nanos);

/** Says what was spent, and whether all or some requests had no price. */
export function Spent(
  { counts: { cost = 0, unpriced = 0 }, amount }: {
    counts: { cost?: number; unpriced?: number };
    /** Writes an amount, see {@link moneyIn}. */
    amount: (nanos: number) => string;
  },
) {
  if (unpriced > 0 && cost === 0) return <>No price</>;
  return (
    <>
      <span class="num">{amount(cost)}</span>
      {unpriced > 0 && <span class="help">some without price</span>}
    </>
  );
}

/** `3,400 characters`, `1 audio second` */
export const unitsText = (count: number, unit: string): string =>
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
const SOON_MS = 7 * 86_400_000;

/** A text that may break where one part ends and the next begins, and nowhere else. */
const breakable = (parts: readonly string[]) => (
  <>
    {parts.flatMap((part, at) => at === 0 ? [part] : [<wbr key={at} />, part])}
  </>
);

/** An address that breaks before its dots and its `@`, and not inside words. */
export const Email = ({ children }: { children: string }) =>
  breakable(children.split(/(?=[@.])/));

/** A code of an error, which breaks after its underscores. */
export const ErrorCode = ({ children }: { children: string }) => (
  <code>{breakable(children.split(/(?<=_)/))}</code>
);

/** The description of a key, with a link to its page below `base`, if given. */
export const keyName = (
  { id, description, hint }: Pick<KeyRecord, "id" | "description" | "hint">,
  base?: string,
) => (
  <>
    {base !== undefined
      ? <a href={`${base}/${id}`} dir="auto">{description}</a>
      : <bdi>{description}</bdi>} <code class="hint">{hint}</code>
  </>
);

/**
 * `Enabled`, `Expires soon`, `Disabled`, `Expired`: words and a colour, never a colour
 * alone.
 */
export function statusOf(key: KeyRecord, nowMs: number) {
  if (isExpired(key, nowMs)) return <span class="badge">Expired</span>;
  if (key.state === "disabled") return <span class="badge">Disabled</span>;
  return (key.expiresAtMs ?? Infinity) - nowMs < SOON_MS
    ? <span class="badge warn">Expires soon</span>
    : <span class="badge good">Enabled</span>;
}

/**
 * The other key of a rotation, with a link to its page below `base` if it is one of
 * those `present`.
 */
export function rotationOf(
  { replaces, replacedBy }: KeyRecord,
  { base, present }: { base: string; present: ReadonlySet<string> },
) {
  const linkTo = ([id, hint]: KeyName) =>
    present.has(id) ? <a href={`${base}/${id}`}>{hint}</a> : hint;
  return (
    <>
      {replaces && <p class="help">Replaces {linkTo(replaces)}</p>}
      {replacedBy && <p class="help">Replaced by {linkTo(replacedBy)}</p>}
    </>
  );
}

/** Says when a key was last used, as far as that is still known. */
export function lastUseOf(
  key: KeyRecord,
  { ms, nowMs }: { ms: number | null; nowMs: number },
) {
  const keptSinceMs = nowMs - LAST_USE_DAYS_KEPT * 86_400_000;
  return ms === null && key.createdAtMs < keptSinceMs
    ? <span class="faint">Not in {LAST_USE_DAYS_KEPT} days</span>
    : <Moment ms={ms} nowMs={nowMs} />;
}
