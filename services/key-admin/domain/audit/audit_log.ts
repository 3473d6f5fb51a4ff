/** The audit log of each owner: who did what to which key or account, and when. */
import { auditKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { csvHead, csvLine } from "../store/csv.ts";
import {
  asFields,
  asList,
  asText,
  BadCursor,
  type RowPage,
} from "../store/redis.ts";

/** The longest reason that an operator may give for a change, in UTF-16 units. */
export const REASON_CHARS_MAX = 200;

/** About this many entries are kept per owner; the oldest are dropped. */
export const AUDIT_ENTRIES_MAX = 500_000;

const BATCH = 500;
/**
 * Entries scanned for one page. With a filter that matches rarely, the page is short
 * and has a cursor.
 */
const SCAN_MAX = 5_000;
/** Not 0-0: Redis refuses a range that ends before it. */
const STREAM_ID = /^(?!0+-0+$)\d{1,15}-\d{1,10}$/;

/** Lists are filtered by the part before the dot. */
export type AuditAction =
  | `key.${"created" | "edited" | "disabled" | "enabled" | "deleted"}`
  | `key.${"rotated" | "stop_requested" | "request_stopped"}`
  | "key.expires_soon"
  | "budget.reached"
  | `admin_key.${"created" | "deleted"}`
  | `owner.${"invited" | "limits_changed" | "disabled" | "enabled"}`
  | `owner.${"role_given" | "role_removed"}`
  | `project.${"created" | "renamed" | "limits_changed"}`
  | `project.${"disabled" | "enabled"}`
  | `project.${"member_added" | "member_removed" | "role_changed"}`
  | `model.${"changed" | "change_undone"}`
  | `session.${"signed_in" | "confirmed" | "refused" | "signed_out"}`
  | "session.revoked"
  | `account.${"created" | "reset_link_made" | "password_changed"}`
  | `account.second_factor_${"on" | "off" | "removed"}`
  | `account.${"recovery_code_used" | "key_defaults_changed"}`;

/** Who did something, as the audit log records it. */
export interface Actor {
  /**
   * An e-mail address, `command line`, `admin key adm_…`, or `gateway` for what it does
   * by itself.
   */
  by: string;
  /** Address of the client, empty for the command line. */
  ip: string;
}

const text = z.string().default("");
/**
 * The fields of an entry in Redis. Missing ones are empty; an older version may have
 * had other actions.
 */
const storedEntry = z.object({
  action: text,
  by: text,
  ip: text,
  key: text,
  hint: text,
  description: text,
  /** The changes as text: `requests per minute 0 → 60`. */
  detail: text,
}).transform(({ key, ...fields }) => ({ ...fields, keyId: key }));

/** An entry to write. It never has a key value or its hash. */
export type AuditEntry =
  & Actor
  & { action: AuditAction }
  & Partial<z.output<typeof storedEntry>>;

/** An entry as it is read. */
export interface AuditRow extends z.output<typeof storedEntry> {
  /** Id of the entry in the stream, which is its cursor as well. */
  id: string;
  /** In ms since 1970 by the clock of Redis. */
  timeMs: number;
}

interface AuditQuery {
  /** Only actions that begin with this: `key.`, `session.refused`; empty for all. */
  action: string;
  /** Only entries about this key; empty for all. */
  keyId: string;
  /** A cursor that came with an earlier page; empty: from the newest on. */
  before: string;
  rows: number;
  /** Whether the reader may see an entry; undefined if all may be seen. */
  isShown?: (row: AuditRow) => boolean;
}

/** The fields of an entry, flat as XADD takes them. Empty ones are left out. */
export const encodeAudit = ({ keyId, ...entry }: AuditEntry): string[] =>
  Object.entries({ ...entry, key: keyId })
    .flatMap(([field, value]) => value ? [field, value] : []);

/** An owner's audit log: a stream that only grows, with times by the clock of Redis. */
export class AuditLog {
  readonly #redis: RedisLink;

  constructor(redis: RedisLink) {
    this.#redis = redis;
  }

  /** Adds an entry. Those about keys are written together with the key instead. */
  async add(ownerId: string, entry: AuditEntry): Promise<void> {
    const entriesMax = String(AUDIT_ENTRIES_MAX);
    const stream = ["XADD", auditKey(ownerId), "MAXLEN", "~", entriesMax, "*"];
    await this.#redis.command([...stream, ...encodeAudit(entry)]);
  }

  /**
   * Reads one page, newest first, in bounded time. `next` is the cursor of the next
   * page; null at the end. Throws {@link BadCursor}.
   */
  async read(
    ownerId: string,
    { action, keyId, before, rows: rowsMax, isShown = () => true }: AuditQuery,
  ): Promise<RowPage<AuditRow>> {
    // Cursors come from URLs.
    if (before !== "" && !STREAM_ID.test(before)) throw new BadCursor();
    const rows: AuditRow[] = [];
    let from = before === "" ? "+" : `(${before}`;
    for (let scanned = 0; scanned < SCAN_MAX; scanned += BATCH) {
      const range = ["XREVRANGE", auditKey(ownerId), from, "-", "COUNT"];
      const reply = await this.#redis.command([...range, String(BATCH)]);
      const entries = asList(reply).map(decode);
      for (const row of entries) {
        if (rows.length === rowsMax) {
          return { rows, next: rows.at(-1)?.id ?? null };
        }
        const isWanted = row.action.startsWith(action) &&
          (keyId === "" || row.keyId === keyId) && isShown(row);
        if (isWanted) rows.push(row);
        from = `(${row.id}`;
      }
      if (entries.length < BATCH) return { rows, next: null };
    }
    return { rows, next: from.slice(1) };
  }

  /** The whole log as a CSV file, in parts of one page to bound memory. */
  async *csv(
    ownerId: string,
    wanted: Pick<AuditQuery, "action" | "isShown">,
  ): AsyncGenerator<string> {
    yield csvHead(CSV_COLUMNS);
    const query = { ...wanted, keyId: "", rows: BATCH };
    let before: string | null = "";
    while (before !== null) {
      const page: RowPage<AuditRow> = await this.read(ownerId, {
        ...query,
        before,
      });
      yield page.rows.map(csvLineOf).join("");
      before = page.next;
    }
  }
}

const CSV_COLUMNS = [
  "time",
  "action",
  "by",
  "ip",
  "key_id",
  "key",
  "description",
  "detail",
];

const csvLineOf = (row: AuditRow): string =>
  csvLine([
    new Date(row.timeMs).toISOString(),
    row.action,
    row.by,
    row.ip,
    row.keyId,
    row.hint,
    row.description,
    row.detail,
  ]);

function decode(reply: unknown): AuditRow {
  const [idReply, flat] = asList(reply);
  const id = asText(idReply);
  const fields = storedEntry.parse(asFields(flat));
  return { id, timeMs: Number(id.split("-")[0]), ...fields };
}
