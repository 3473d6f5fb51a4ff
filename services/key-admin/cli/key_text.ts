import type { KeyRecord, Limits } from "@gateway/shared/keys/record";
import type { KeyRow } from "../domain/keys/key_page.ts";
import { isExpired } from "../domain/keys/key_record.ts";

/** A key as `--json` prints it. */
export type KeyJson = ReturnType<typeof toJson>;

/** A key in the form of `--json`, without its hash. Times are ISO 8601 in UTC; a limit of 0 means none. */
export function toJson(key: KeyRecord, nowMs: number) {
  return {
    id: key.id,
    state: key.state,
    expired: isExpired(key, nowMs),
    description: key.description,
    hint: key.hint,
    owner_id: key.ownerId,
    scopes: key.scopes,
    models: key.models,
    limits: limitsToJson(key.limits),
    created_at: isoTime(key.createdAtMs),
    expires_at: isoTimeOrNull(key.expiresAtMs),
    version: key.version,
  };
}

/** Limits of a key or an owner in the form of `--json`. */
export function limitsToJson(limits: Limits) {
  return {
    requests_per_minute: limits.requestsPerMinute,
    tokens_per_minute: limits.tokensPerMinute,
    tokens_per_day: limits.tokensPerDay,
    concurrency: limits.concurrency,
  };
}

/** A key of a list in the form of `--json`. */
export function rowToJson(row: KeyRow, nowMs: number) {
  return {
    ...toJson(row.key, nowMs),
    last_used_at: isoTimeOrNull(row.lastUsedAtMs),
    requests_today: row.requestsToday,
    tokens_today: row.tokensToday,
  };
}

/** One key, one line per property. */
export function describeKey(key: KeyRecord, nowMs: number): string {
  const limits = limitsText(key.limits);
  return Object.entries({ ...toJson(key, nowMs), limits })
    .map(([name, value]) => `${name.padEnd(12)} ${value ?? "never"}`)
    .join("\n");
}

/** A table of keys. */
export function tableOf(rows: readonly KeyRow[], nowMs: number): string {
  const table = [
    ["ID", "STATE", "KEY", "CREATED", "LAST USED", "TODAY", "DESCRIPTION"],
    ...rows.map(({ key, lastUsedAtMs, requestsToday }) => [
      key.id,
      stateText(key, nowMs),
      key.hint,
      isoTime(key.createdAtMs).slice(0, 10),
      isoTimeOrNull(lastUsedAtMs)?.slice(0, 16) ?? "never",
      String(requestsToday),
      key.description,
    ]),
  ];
  const width = (column: number) =>
    Math.max(...table.map((row) => row[column]?.length ?? 0));
  return table.map((row) =>
    row.map((cell, column) => cell.padEnd(width(column))).join("  ").trimEnd()
  ).join("\n");
}

function stateText(key: KeyRecord, nowMs: number): string {
  return isExpired(key, nowMs) ? `${key.state}, expired` : key.state;
}

/** `60 requests/min, 2 at a time`, or `none`. */
export function limitsText(limits: Limits): string {
  const parts: [value: number, unit: string][] = [
    [limits.requestsPerMinute, "requests/min"],
    [limits.tokensPerMinute, "tokens/min"],
    [limits.tokensPerDay, "tokens/day"],
    [limits.concurrency, "at a time"],
  ];
  return parts.filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`).join(", ") || "none";
}

const isoTime = (timeMs: number): string => new Date(timeMs).toISOString();
const isoTimeOrNull = (timeMs: number | null): string | null =>
  timeMs === null ? null : isoTime(timeMs);
