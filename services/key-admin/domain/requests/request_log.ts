/**
 * The request logs of all accounts. They are read from Redis once, then only what is
 * new, and searched in memory: docs/evidence/limits.md has the figures.
 */
import pLimit from "p-limit";
import { REQUEST_LOGS_KEY, requestLogKey } from "@gateway/shared/keys/record";
import { decodeRow, type RequestRow } from "@gateway/shared/keys/request_row";
import type { WallNow } from "@gateway/shared/process/clock";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, BadCursor, type RowPage } from "../store/redis.ts";
import {
  isBefore,
  RequestTable,
  type RowFilter,
  type RowPlace,
  Texts,
} from "./request_table.ts";

/**
 * Rows in memory, of 96 bytes each. Beyond them, the oldest rows of the largest logs
 * are dropped.
 */
const ROWS_MAX = 1_200_000;
/**
 * Texts in memory, for each row and beside. Beyond them, most texts belong to rows that
 * have been dropped.
 */
const TEXTS_PER_ROW = 9;
const TEXTS_MORE = 100_000;
const BATCH = 1_000;
/** Options for reads of a batch: no request waits for one of them alone. */
const PATIENT = { deadlineMs: 10_000 };
const READS = 4;
/** How often rows that are too old are dropped from logs without new ones. */
const TIDY_MS = 600_000;
const CURSOR = /^(\d{1,15})-(\d{1,10})-((?:own|prj)_\w{1,64})$/;
const STREAM_ID = /^(\d{1,15})-(\d{1,10})$/;

/** A search for requests, of one account or of all. */
export interface RequestQuery extends RowFilter {
  /** Null for all accounts. */
  ownerId: string | null;
  /** A cursor that came with an earlier page; empty: the first page. */
  after: string;
  rows: number;
}

/** A row of the log of an account. */
export interface FoundRequest extends RequestRow {
  ownerId: string;
}

/** A page of rows that were found, newest first. */
export interface RequestPage extends RowPage<FoundRequest> {
  /**
   * Rows before this time may be missing, for want of memory; null if all are there.
   */
  missingBeforeMs: number | null;
}

/** Dependencies of {@link RequestLog}. */
export interface RequestLogDeps {
  redis: Pick<RedisLink, "command">;
  now: WallNow;
  /** Rows in memory. Default: `ROWS_MAX`. */
  rowsMax?: number;
}

/** A row with its account, and its place in the log of that account. */
interface PlacedRow {
  readonly ownerId: string;
  readonly place: RowPlace;
  /** Its index in the table of the account. */
  readonly at: number;
}

/** Finds requests that were refused, that failed or that were slow. */
export class RequestLog {
  readonly #redis: RequestLogDeps["redis"];
  readonly #now: WallNow;
  readonly #rowsMax: number;
  #texts = new Texts();
  #tables = new Map<string, RequestTable>();
  /** The last entry that was read of each log. */
  #lastIds = new Map<string, string>();
  /** The read of each log that is under way. */
  readonly #reads = new Map<string, Promise<void>>();
  /** The time of the newest row of all that has been seen, by Redis' clock. */
  #seenMs = "-inf";
  #tidiedAtMs = -Infinity;
  #missingBeforeMs: number | null = null;

  constructor({ redis, now, rowsMax = ROWS_MAX }: RequestLogDeps) {
    this.#redis = redis;
    this.#now = now;
    this.#rowsMax = rowsMax;
  }

  /** Finds one page. Throws {@link BadCursor}. */
  async search(query: RequestQuery): Promise<RequestPage> {
    const { ownerId, after, rows: max } = query;
    const before = placesBefore(after);
    if (ownerId === null) await this.readAll();
    else await this.#read(ownerId);
    const tables = ownerId === null
      ? [...this.#tables]
      : [...this.#tables].filter(([id]) => id === ownerId);
    const found = tables.flatMap(([ownerId, table]): PlacedRow[] =>
      table.find(query, {
        max: max + 1,
        before: (place) => before({ ownerId, place }),
      }).map((each) => ({ ...each, ownerId }))
    ).sort(newestFirst);
    const page = found.slice(0, max);
    const last = page.at(-1);
    const { fromMs } = query;
    const missing = this.#missingBeforeMs;
    return {
      rows: page.flatMap(({ ownerId, at }) => {
        const row = this.#tables.get(ownerId)?.rowAt(at);
        return row === undefined ? [] : [{ ...row, ownerId }];
      }),
      next: found.length > max && last !== undefined ? cursorOf(last) : null,
      missingBeforeMs: missing !== null && (fromMs ?? 0) < missing
        ? missing
        : null,
    };
  }

  /** The ids of the keys that the rows of an account name. */
  async keyIds(ownerId: string): Promise<ReadonlySet<string>> {
    await this.#read(ownerId);
    return this.#tables.get(ownerId)?.keyIds() ?? new Set();
  }

  /** Reads the new rows of all logs. */
  async readAll(): Promise<void> {
    const isDue = this.#now() - this.#tidiedAtMs >= TIDY_MS;
    const range = [isDue ? "-inf" : this.#seenMs, "+inf", "WITHSCORES"];
    const reply = await this.#redis.command([
      "ZRANGEBYSCORE",
      REQUEST_LOGS_KEY,
      ...range,
    ]);
    const times = Object.entries(asFields(reply));
    if (isDue) this.#keepOnly(new Set(times.map(([ownerId]) => ownerId)));
    const place = pLimit(READS);
    const reads = times.map(([ownerId]) => place(() => this.#read(ownerId)));
    await Promise.all(reads);
    this.#seenMs = times.at(-1)?.[1] ?? this.#seenMs;
    if (isDue) this.#tidiedAtMs = this.#now();
  }

  /** Forgets the accounts whose logs have expired. */
  #keepOnly(ownerIds: ReadonlySet<string>): void {
    for (const ownerId of this.#tables.keys()) {
      if (!ownerIds.has(ownerId)) this.#forget(ownerId);
    }
  }

  #forget(ownerId: string): void {
    this.#tables.delete(ownerId);
    this.#lastIds.delete(ownerId);
  }

  /** Reads the new rows of a log, once for all that ask at the same time. */
  #read(ownerId: string): Promise<void> {
    const read = this.#reads.get(ownerId) ??
      this.#readNew(ownerId).finally(() => this.#reads.delete(ownerId));
    this.#reads.set(ownerId, read);
    return read;
  }

  async #readNew(ownerId: string): Promise<void> {
    const log = requestLogKey(ownerId);
    for (let count = BATCH; count === BATCH;) {
      const last = this.#lastIds.get(ownerId);
      const from = last === undefined ? "-" : `(${last}`;
      const range = ["XRANGE", log, from, "+", "COUNT", String(BATCH)];
      const reply = await this.#redis.command(range, PATIENT);
      const entries = asList(reply);
      for (const entry of entries) this.#add(ownerId, entry);
      count = entries.length;
    }
    const oldest = ["XRANGE", log, "-", "+", "COUNT", "1"];
    const [first] = asList(await this.#redis.command(oldest));
    if (first === undefined) this.#forget(ownerId);
    else this.#tables.get(ownerId)?.dropBefore(placeOf(asEntry(first).id));
    this.#bound();
  }

  #add(ownerId: string, reply: unknown): void {
    const { id, text } = asEntry(reply);
    const table = this.#tables.get(ownerId) ?? new RequestTable(this.#texts);
    this.#tables.set(ownerId, table);
    table.add(placeOf(id), decodeRow(text));
    this.#lastIds.set(ownerId, id);
  }

  /** Keeps the rows and texts in memory within their bounds. */
  #bound(): void {
    const tables = [...this.#tables.values()];
    let rows = tables.reduce((sum, { size }) => sum + size, 0);
    if (this.#texts.size > TEXTS_PER_ROW * rows + TEXTS_MORE) {
      // Drops everything: it is read again.
      this.#texts = new Texts();
      this.#tables = new Map();
      this.#lastIds = new Map();
      this.#seenMs = "-inf";
      return;
    }
    while (rows > this.#rowsMax) {
      const [largest] = tables.sort((a, b) => b.size - a.size);
      const count = Math.ceil((largest?.size ?? rows) / 2);
      const lastMs = largest?.dropOldest(count) ?? 0;
      this.#missingBeforeMs = Math.max(this.#missingBeforeMs ?? 0, lastMs);
      rows -= count;
    }
  }
}

/** An entry of a stream, which has one field. By hand: there may be a million. */
function asEntry(reply: unknown): { id: string; text: string } {
  const [id, fields] = Array.isArray(reply) ? reply : [];
  const text = Array.isArray(fields) ? fields[1] : undefined;
  if (typeof id === "string" && typeof text === "string") return { id, text };
  throw new Error("Malformed entry of a request log in Redis");
}

function placeOf(id: string): RowPlace {
  const [, ms = "", sequence = ""] = STREAM_ID.exec(id) ?? [];
  return { ms: Number(ms), sequence: Number(sequence) };
}

/** Newest first; rows of the same moment by their account. */
function newestFirst(a: PlacedRow, b: PlacedRow): number {
  if (isBefore(b.place, a.place)) return -1;
  if (isBefore(a.place, b.place)) return 1;
  return a.ownerId < b.ownerId ? -1 : 1;
}

const cursorOf = ({ ownerId, place }: PlacedRow): string =>
  `${place.ms}-${place.sequence}-${ownerId}`;

/** Whether a row comes after a cursor in the order of pages. */
function placesBefore(
  cursor: string,
): (row: Pick<PlacedRow, "ownerId" | "place">) => boolean {
  if (cursor === "") return () => true;
  const [, ms = "", sequence = "", owner = ""] = CURSOR.exec(cursor) ?? [];
  if (owner === "") throw new BadCursor();
  const last = { ms: Number(ms), sequence: Number(sequence) };
  return ({ ownerId, place }) =>
    isBefore(place, last) || (!isBefore(last, place) && ownerId > owner);
}
