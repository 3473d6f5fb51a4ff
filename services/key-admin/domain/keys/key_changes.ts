import type { KeyRecord } from "@gateway/shared/keys/record";
import type { KeySettings } from "./settings.ts";

/** Pure steps of the key lifecycle: a record in, the next record out. */

/** How long the old key lives on after a rotation. */
export const ROTATION_GRACES_MS: Readonly<Record<string, number>> = {
  now: 0,
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 7 * 86_400_000,
};

/** A record whose expiry has come is refused by every edge, whatever its state. */
export function isExpired(key: KeyRecord, nowMs: number): boolean {
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs;
}

/** The next version with some members replaced. */
export function changed(
  key: KeyRecord,
  members: Partial<Pick<KeyRecord, "state" | keyof KeySettings>>,
): KeyRecord {
  return { ...key, ...members, version: key.version + 1 };
}

/** The old key of a rotation: it ends after the grace, and never later than it would have. */
export function retired(
  key: KeyRecord,
  nowMs: number,
  graceMs: number,
): KeyRecord {
  const endMs = nowMs + graceMs;
  return changed(key, {
    expiresAtMs: Math.min(key.expiresAtMs ?? endMs, endMs),
  });
}

/** What differs, for the audit log: `description "a" → "b", tokens per day 0 → 5000`. */
export function describeChange(before: KeyRecord, after: KeyRecord): string {
  const parts: [name: string, from: string, to: string][] = [
    ["description", quoted(before.description), quoted(after.description)],
    ["scopes", before.scopes.join("+"), after.scopes.join("+")],
    ["models", modelsText(before), modelsText(after)],
    [
      "requests per minute",
      String(before.limits.requestsPerMinute),
      String(after.limits.requestsPerMinute),
    ],
    [
      "tokens per minute",
      String(before.limits.tokensPerMinute),
      String(after.limits.tokensPerMinute),
    ],
    [
      "tokens per day",
      String(before.limits.tokensPerDay),
      String(after.limits.tokensPerDay),
    ],
    [
      "concurrency",
      String(before.limits.concurrency),
      String(after.limits.concurrency),
    ],
    ["expires", expiryText(before), expiryText(after)],
  ];
  return parts.filter(([, from, to]) => from !== to)
    .map(([name, from, to]) => `${name} ${from} → ${to}`).join(", ");
}

const quoted = (text: string): string => JSON.stringify(text);
const modelsText = (key: KeyRecord): string =>
  key.models.length === 0 ? "all" : key.models.join("+");
const expiryText = (key: KeyRecord): string =>
  key.expiresAtMs === null ? "never" : minuteText(key.expiresAtMs);
/** `2026-11-20 13:53 UTC` */
const minuteText = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")} UTC`;
