import { auditKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, asText } from "../store/reply.ts";

/** About this many entries are kept per owner; the oldest are dropped. */
export const AUDIT_ENTRIES_MAX = 500_000;

const BATCH = 500;
/** Entries scanned for one page. With a filter that matches rarely, the page is short and has a cursor. */
const SCAN_MAX = 5_000;
/** Redis refuses a range that ends before 0-0. */
const STREAM_ID = /^(?!0+-0+$)\d{1,15}-\d{1,10}$/;

/** What can happen, as `thing.happened`. Lists are filtered by the part before the dot. */
export type AuditAction =
  | `key.${"created" | "edited" | "disabled" | "enabled" | "deleted"}`
  | `key.${"rotated" | "stop_requested"}`
  | `owner.${"invited" | "limits_changed"}`
  | `session.${"signed_in" | "confirmed" | "refused" | "signed_out"}`
  | "session.revoked"
  | `account.${"created" | "reset_link_made" | "password_changed"}`
  | `account.${"second_factor_on" | "second_factor_off"}`
  | "account.recovery_code_used";

/** Who did it and from where. */
export interface Actor {
  /** An e-mail address, or `command line`. */
  by: string;
  /** Address of the client, empty for the command line. */
  ip: string;
}

/** The members of an entry and their fields in Redis. */
const FIELDS = [
  ["action", "action"],
  ["by", "by"],
  ["ip", "ip"],
  ["keyId", "key"],
  ["hint", "hint"],
  ["description", "description"],
  // What changed, for people: `requests per minute 0 → 60`.
  ["detail", "detail"],
] as const;
type Member = typeof FIELDS[number][0];

/** An entry to write. It never has a key value or its hash. */
export type AuditEntry =
  & Actor
  & { action: AuditAction }
  & Partial<Record<Member, string>>;

/** An entry from the log. Missing fields are empty; an older version may have had other actions. */
export interface AuditRow extends Record<Member, string> {
  /** Id in the stream, which is a cursor. */
  id: string;
  timeMs: number;
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

/** Some entries, newest first. */
export interface AuditPage {
  rows: AuditRow[];
  /** The cursor of the next page; null at the end. */
  next: string | null;
}

/** Whether text has the form of a cursor. */
export const isAuditCursor = (text: string): boolean => STREAM_ID.test(text);

/** The fields of an entry, flat as XADD wants them. Empty ones are left out. */
export function encodeAudit(entry: AuditEntry): string[] {
  return FIELDS.flatMap(([member, field]) => {
    const value = entry[member];
    return value ? [field, value] : [];
  });
}

/** An owner's audit log: a stream that only grows, with times by the clock of Redis. */
export class AuditLog {
  readonly #redis: RedisLink;

  constructor(redis: RedisLink) {
    this.#redis = redis;
  }

  /** Adds an entry. Those about keys are written together with the key instead. */
  async add(ownerId: string, entry: AuditEntry): Promise<void> {
    await this.#redis.command([
      ...["XADD", auditKey(ownerId), "MAXLEN", "~"],
      ...[String(AUDIT_ENTRIES_MAX), "*", ...encodeAudit(entry)],
    ]);
  }

  /** Reads one page in bounded time. */
  async read(ownerId: string, query: AuditQuery): Promise<AuditPage> {
    const rows: AuditRow[] = [];
    let from = query.before === null ? "+" : `(${query.before}`;
    for (let scanned = 0; scanned < SCAN_MAX; scanned += BATCH) {
      const command = ["XREVRANGE", auditKey(ownerId), from, "-"];
      const reply = await this.#redis.command(
        [...command, "COUNT", String(BATCH)],
      );
      const batch = asList(reply).map(decode);
      for (const row of batch) {
        if (rows.length === query.rows) {
          return { rows, next: rows.at(-1)?.id ?? null };
        }
        if (matches(row, query)) rows.push(row);
      }
      const last = batch.at(-1);
      if (batch.length < BATCH || last === undefined) {
        return { rows, next: null };
      }
      from = `(${last.id}`;
    }
    return { rows, next: from.slice(1) };
  }
}

function matches(row: AuditRow, { action, keyId }: AuditQuery): boolean {
  return row.action.startsWith(action) && (keyId === "" || row.keyId === keyId);
}

function decode(reply: unknown): AuditRow {
  const [idReply, flat] = asList(reply);
  const id = asText(idReply);
  const fields = asFields(flat);
  const text = (field: string) => fields.get(field) ?? "";
  return {
    id,
    timeMs: Number(id.split("-")[0]),
    action: text("action"),
    by: text("by"),
    ip: text("ip"),
    keyId: text("key"),
    hint: text("hint"),
    description: text("description"),
    detail: text("detail"),
  };
}

const COLUMNS: readonly (readonly [string, (row: AuditRow) => string])[] = [
  ["time", (row) => new Date(row.timeMs).toISOString()],
  ["action", (row) => row.action],
  ["by", (row) => row.by],
  ["ip", (row) => row.ip],
  ["key_id", (row) => row.keyId],
  ["key", (row) => row.hint],
  ["description", (row) => row.description],
  ["detail", (row) => row.detail],
];

/** How the CSV file begins. Without the byte order mark spreadsheets take UTF-8 for an older encoding. */
export const CSV_HEAD: string = "\uFEFF" +
  line(COLUMNS.map(([name]) => name));

/** One entry as a line of RFC 4180 CSV. */
export function csvLine(row: AuditRow): string {
  return line(COLUMNS.map(([, cellOf]) => cellOf(row)));
}

function line(cells: string[]): string {
  return cells.map(cell).join(",") + "\r\n";
}

/** A cell that is text in every spreadsheet: `=1+1` becomes `"'=1+1"` (ASVS 1.2.10). */
function cell(text: string): string {
  const inert = /^[=+\-@\t\r\n\0|%＝＋－＠]/.test(text) ? `'${text}` : text;
  return /[",\r\n']/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}
