import type { KeyRecord, KeyScope } from "@gateway/shared/keys/record";
import { isExpired } from "../domain/keys/key_record.ts";

/** How values are shown. The script turns times into the reader's zone; without it they are UTC and say so. */

/** What a key may be used for, in words. */
export const SCOPE_LABELS: Record<KeyScope, string> = {
  chat: "Chat",
  models: "List models",
  image: "Images",
  video: "Video",
  speech: "Speech",
};

/** Larger numbers are shortened; the exact one is in reach. */
const SHORT_FROM = 10_000;
const NUMBER = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", {
  notation: "compact",
  maximumFractionDigits: 1,
});

/** `1,234,567` */
export const number = (value: number): string => NUMBER.format(value);

/** `1.2M` */
export const shortNumber = (value: number): string => SHORT.format(value);

/** `1.2M` from ten thousand on, with the exact number in reach. */
export function Count({ value }: { value: number }) {
  if (value < SHORT_FROM) return <span>{number(value)}</span>;
  return <span title={number(value)}>{shortNumber(value)}</span>;
}

type TimeStyle = "day" | "minute" | "relative";

/** A time for people. */
export function Time(
  { ms, as }: { ms: number; as: TimeStyle },
) {
  const iso = new Date(ms).toISOString();
  return (
    <time datetime={iso} data-as={as}>
      {as === "day"
        ? iso.slice(0, 10)
        : `${iso.slice(0, 16).replace("T", " ")} UTC`}
    </time>
  );
}

/** `Enabled`, `Disabled`, `Expired`: a word and a colour, never a colour alone. */
export function Status(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  if (isExpired(keyRecord, nowMs)) {
    return <span class="badge">Expired</span>;
  }
  return keyRecord.state === "enabled"
    ? <span class="badge good">Enabled</span>
    : <span class="badge">Disabled</span>;
}

/** `3 hours ago`, or `Never`. */
export function LastUse({ ms }: { ms: number | null }) {
  return ms === null
    ? <span class="faint">Never</span>
    : <Time ms={ms} as="relative" />;
}

/** From here on an expiry counts as near. */
const SOON_MS = 7 * 86_400_000;

/** `Never`, a date ahead, or a date gone by. */
export function Expiry(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  const { expiresAtMs } = keyRecord;
  if (expiresAtMs === null) return <span class="faint">Never</span>;
  const isSoon = expiresAtMs - nowMs < SOON_MS;
  return (
    <span class={isSoon && expiresAtMs > nowMs ? "soon" : ""}>
      <Time ms={expiresAtMs} as={isSoon ? "relative" : "day"} />
    </span>
  );
}
