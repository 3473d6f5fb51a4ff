import type { KeyRecord, Limits } from "@gateway/shared/keys/record";
import { defined } from "@gateway/shared/process/env";
import type { KeyRow } from "../domain/keys/key_page.ts";
import { isExpired } from "../domain/keys/key_record.ts";
import { LIMIT_NAMES, limitWords } from "../domain/keys/settings.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The output of a command: an object with `--json`, otherwise the same as text. */
export interface Answer {
  json: Fields;
  /** The part that the text shows as a table. */
  table?: { rows: readonly Fields[]; columns: readonly string[] };
  note?: string;
}

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
    expires_at: isoTime(key.expiresAtMs),
    ...defined({
      replaces: key.replaces?.[0],
      replaced_by: key.replacedBy?.[0],
    }),
    version: key.version,
  };
}

export const limitsToJson = (limits: Limits) =>
  Object.fromEntries(
    LIMIT_NAMES.map((name) => [limitWords(name, "_"), limits[name]]),
  );

export const rowToJson = (row: KeyRow, nowMs: number) => ({
  ...toJson(row.key, nowMs),
  last_used_at: isoTime(row.lastUsedAtMs),
  requests_today: row.totals.requests,
  tokens_today: row.totals.tokens,
});

/** The answer as text: a table, or one line per member of the object. */
export function textOf({ json, table, note }: Answer): string {
  const lines = table === undefined
    ? Object.entries(json).map(([name, value]) => [name, cellOf(value)])
    : table.rows.map((row) => table.columns.map((name) => cellOf(row[name])));
  if (table && lines.length > 0) {
    lines.unshift(
      table.columns.map((name) => name.toUpperCase().replaceAll("_", " ")),
    );
  }
  const width = (column: number) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0));
  const aligned = lines.map((line) =>
    line.map((cell, at) => cell.padEnd(width(at))).join("  ").trimEnd()
  );
  return [...aligned, ...note ? [note] : []].join("\n");
}

function cellOf(value: unknown): string {
  if (value === null) return "never";
  if (Array.isArray(value)) return value.join(", ") || "all";
  if (typeof value !== "object") return String(value);
  const set = Object.entries(value).filter(([, limit]) => limit !== 0);
  return set.map((entry) => entry.join(" ")).join(", ") || "none";
}

export const isoTime = (timeMs: number | null): string | null =>
  timeMs === null ? null : new Date(timeMs).toISOString();
