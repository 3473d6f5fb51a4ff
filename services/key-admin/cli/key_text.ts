import type { KeyRecord, Limits } from "@gateway/shared/keys/record";
import { isExpired } from "../domain/keys/key_record.ts";
import type { KeyRow } from "../domain/keys/key_page.ts";

/** A key as `--json` prints it. Times are ISO 8601 in UTC; a limit of 0 means none. */
export interface KeyJson {
  id: string;
  /** The full value: only when it was just made. */
  key?: string;
  state: "enabled" | "disabled" | "deleted";
  expired: boolean;
  description: string;
  hint: string;
  owner_id: string;
  scopes: readonly string[];
  models: readonly string[];
  limits: LimitsJson;
  created_at: string;
  expires_at: string | null;
  version: number;
}

/** Limits as `--json` prints them, 0 for none. */
export interface LimitsJson {
  requests_per_minute: number;
  tokens_per_minute: number;
  tokens_per_day: number;
  concurrency: number;
}

/** Limits of a key or an owner in the form of `--json`. */
export function limitsToJson(limits: Limits): LimitsJson {
  return {
    requests_per_minute: limits.requestsPerMinute,
    tokens_per_minute: limits.tokensPerMinute,
    tokens_per_day: limits.tokensPerDay,
    concurrency: limits.concurrency,
  };
}

/** A record in the form of `--json`, without what nobody needs (its hash). */
export function toJson(key: KeyRecord, nowMs: number): KeyJson {
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
    expires_at: key.expiresAtMs === null ? null : isoTime(key.expiresAtMs),
    version: key.version,
  };
}

/** One key, one line per property. */
export function describeKey(key: KeyRecord, nowMs: number): string {
  const lines: [name: string, value: string][] = [
    ["id", key.id],
    ["state", stateText(key, nowMs)],
    ["description", key.description],
    ["key", key.hint],
    ["owner", key.ownerId],
    ["scopes", key.scopes.join(", ")],
    ["models", key.models.length === 0 ? "all" : key.models.join(", ")],
    ["limits", limitsText(key.limits)],
    ["created", isoTime(key.createdAtMs)],
    ["expires", key.expiresAtMs === null ? "never" : isoTime(key.expiresAtMs)],
  ];
  return lines.map(([name, value]) => `${name.padEnd(12)} ${value}`).join("\n");
}

/** A table of keys. */
export function tableOf(rows: readonly KeyRow[], nowMs: number): string {
  const cells = rows.map(({ key, lastUsedAtMs, requestsToday }) => [
    key.id,
    stateText(key, nowMs),
    key.hint,
    isoTime(key.createdAtMs).slice(0, 10),
    lastUsedAtMs === null ? "never" : isoTime(lastUsedAtMs).slice(0, 16),
    String(requestsToday),
    key.description,
  ]);
  const table = [
    ["ID", "STATE", "KEY", "CREATED", "LAST USED", "TODAY", "DESCRIPTION"],
    ...cells,
  ];
  const widths =
    table[0]?.map((_, column) =>
      Math.max(...table.map((row) => row[column]?.length ?? 0))
    ) ?? [];
  return table.map((row) =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")
      .trimEnd()
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
  const set = parts.filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`);
  return set.length === 0 ? "none" : set.join(", ");
}

const isoTime = (timeMs: number): string => new Date(timeMs).toISOString();
