import { auditKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, asText } from "../store/reply.ts";
import { AUDIT_ENTRIES_MAX, type AuditEntry, encodeAudit } from "./audit.ts";

/** An entry as it is read: with its time, and an action that an older version may have written. */
export interface AuditRow extends Omit<AuditEntry, "action"> {
  /** Id in the stream: a cursor. */
  id: string;
  timeMs: number;
  action: string;
}

/** Which entries. */
export interface AuditQuery {
  /** Only actions that begin with this: `key.`, `session.refused`; empty for all. */
  action: string;
  /** Only entries about this key; empty for all. */
  keyId: string;
  /** Entries older than this id; null: from the newest on. */
  before: string | null;
  rows: number;
}

/** Some entries and where to go on. */
export interface AuditPage {
  /** Newest first. */
  rows: AuditRow[];
  /** Where to go on; null at the end. */
  next: string | null;
}

/** Reads an owner's audit log, and adds what is no change of a key. */
export interface AuditLog {
  add(
    ownerId: string,
    entry:
      & Pick<AuditEntry, "action" | "by" | "ip" | "detail">
      & Partial<AuditEntry>,
  ): Promise<void>;
  read(ownerId: string, query: AuditQuery): Promise<AuditPage>;
}

const BATCH = 500;
/** Entries one page looks at. A filter that matches less often gives a short page and the place to go on. */
const SCAN_MAX = 5_000;
/** Nothing comes before 0-0, and Redis refuses to look. */
const STREAM_ID = /^(?!0+-0+$)\d{1,15}-\d{1,10}$/;

/** Whether text has the form of an id, so that it may be a cursor. */
export const isAuditCursor = (text: string): boolean => STREAM_ID.test(text);

/** The log on Redis. */
export function createAuditLog(redis: RedisLink): AuditLog {
  return {
    add: async (ownerId, entry) => {
      const complete = { keyId: "", hint: "", description: "", ...entry };
      await redis.command([
        ...["XADD", auditKey(ownerId), "MAXLEN", "~"],
        ...[String(AUDIT_ENTRIES_MAX), "*", ...encodeAudit(complete)],
      ]);
    },
    read: (ownerId, query) => read(redis, ownerId, query),
  };
}

async function read(
  redis: RedisLink,
  ownerId: string,
  query: AuditQuery,
): Promise<AuditPage> {
  const rows: AuditRow[] = [];
  let from = query.before === null ? "+" : `(${query.before}`;
  for (let scanned = 0; scanned < SCAN_MAX;) {
    const batch = asList(
      await redis.command([
        ...["XREVRANGE", auditKey(ownerId), from, "-"],
        ...["COUNT", String(BATCH)],
      ]),
    ).map(decode);
    for (const row of batch) {
      if (rows.length === query.rows) {
        return { rows, next: rows.at(-1)?.id ?? null };
      }
      if (matches(row, query)) rows.push(row);
    }
    scanned += batch.length;
    const last = batch.at(-1);
    if (batch.length < BATCH || last === undefined) return { rows, next: null };
    from = `(${last.id}`;
  }
  return { rows, next: from.slice(1) };
}

function matches(row: AuditRow, { action, keyId }: AuditQuery): boolean {
  return row.action.startsWith(action) && (keyId === "" || row.keyId === keyId);
}

function decode(reply: unknown): AuditRow {
  const [id, flat] = asList(reply);
  const fields = asFields(flat);
  const idText = asText(id);
  const text = (name: string) => fields.get(name) ?? "";
  return {
    id: idText,
    timeMs: Number(idText.split("-")[0]),
    action: text("action"),
    by: text("by"),
    ip: text("ip"),
    keyId: text("key"),
    hint: text("hint"),
    description: text("description"),
    detail: text("detail"),
  };
}
