/**
 * What operators see of all owners. docs/evidence/limits.md has what it takes to read.
 */
import pLimit from "p-limit";
import { isKeyId } from "@gateway/shared/keys/key";
import { keysKey, ownerUsageKey } from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  type KeyRow,
  type PageQuery,
  readPage,
  readRow,
} from "../keys/key_page.ts";
import type { KeyStore } from "../keys/key_store.ts";
import { lastDays, readTotals, type Totals } from "../keys/usage.ts";
import {
  type Account,
  OWNERS_KEY,
  type OwnerStore,
  readEmail,
} from "../owners/owner_store.ts";
import {
  asNumber,
  asTexts,
  BadCursor,
  type RowPage,
  type StoreDeps,
} from "../store/redis.ts";

/** The newest owners, who are searched and compared. */
const OWNERS_MAX = 10_000;
const BATCH = 100;
/**
 * Keys of one owner that a search examines before it goes on to the next page, which
 * has the others.
 */
const KEYS_MAX = 500;
/** A search ends after this time; its next page continues from there. */
const SEARCH_MS = 2_000;
const TOP_MAX = 50;

/** Which page of a list to read, and the words to search for. */
export type PeopleQuery = Omit<PageQuery, "filter" | "examinedMax">;

type Owner = Pick<Account, "ownerId" | "email">;

/** One owner in a list. */
export interface OwnerRow {
  account: Account;
  /** How many keys the owner has. */
  keys: number;
  /** What was used today, unless the list is about other days. */
  totals: Totals;
}

/** What {@link People} works with. */
export interface PeopleDeps extends Pick<StoreDeps, "redis" | "now"> {
  owners: Pick<OwnerStore, "read">;
  keys: Pick<KeyStore, "get">;
}

/** The lists of all owners and of all keys, newest first. */
export class People {
  readonly #redis: RedisLink;
  readonly #now: WallNow;
  readonly #owners: PeopleDeps["owners"];
  readonly #keys: PeopleDeps["keys"];

  constructor({ redis, now, owners, keys }: PeopleDeps) {
    this.#redis = redis;
    this.#now = now;
    this.#owners = owners;
    this.#keys = keys;
  }

  /** One page of owners whose address or id has all of the words. */
  list(query: PeopleQuery): Promise<RowPage<OwnerRow>> {
    const words = query.search.toLowerCase().split(/\s+/);
    return this.#page(query, async ({ email, ownerId }) => {
      const text = `${email} ${ownerId.toLowerCase()}`;
      const row = words.every((word) => text.includes(word)) &&
        await this.find(ownerId, query.day);
      return { rows: row ? [row] : [], next: null };
    });
  }

  /** One owner with the usage of a day in UTC, `yyyymmdd`; null if there is none. */
  async find(ownerId: string, day: string): Promise<OwnerRow | null> {
    const account = await this.#owners.read(ownerId);
    const keys = await this.#redis.command(["ZCARD", keysKey(ownerId)]);
    const usage = [ownerUsageKey(ownerId, day)];
    const totals = await readTotals(this.#redis, usage);
    return account && { account, keys: asNumber(keys), totals };
  }

  /**
   * One page of the keys of all owners. Words may also be a part of the owner's
   * address; the search may be the id of a key.
   */
  keys(query: PeopleQuery): Promise<RowPage<KeyRow & Owner>> {
    return this.#page(query, async (owner, after) => {
      if (isKeyId(query.search)) {
        const key = await this.#keys.get(owner.ownerId, query.search);
        const row = key && await readRow(this.#redis, key, query.day);
        return { rows: row ? [{ ...row, ...owner }] : [], next: null };
      }
      const words = query.search.split(/\s+/)
        .filter((word) => !owner.email.includes(word.toLowerCase()));
      const { rows, next } = await readPage(this.#redis, owner.ownerId, {
        ...query,
        search: words.join(" "),
        after,
        filter: "all",
        examinedMax: KEYS_MAX,
      });
      return { rows: rows.map((row) => ({ ...row, ...owner })), next };
    });
  }

  /** The account of a key; null if no owner has a key of this id. */
  async ownerOf(keyId: string): Promise<string | null> {
    if (!isKeyId(keyId)) return null;
    const ids = await this.#ownerIds();
    for (let at = 0; at < ids.length; at += BATCH) {
      const found = await Promise.all(
        ids.slice(at, at + BATCH).map((id) => this.#keys.get(id, keyId)),
      );
      const key = found.find((key) => key !== null);
      if (key) return key.ownerId;
    }
    return null;
  }

  /** The owners who used most in the last days in UTC, today included. */
  async top(by: keyof Totals, days: number): Promise<RowPage<OwnerRow>> {
    const dates = lastDays(days, this.#now());
    const atOnce = pLimit(BATCH);
    const used = await atOnce.map(await this.#ownerIds(), async (ownerId) => {
      const names = dates.map((day) => ownerUsageKey(ownerId, day));
      return { ownerId, totals: await readTotals(this.#redis, names) };
    });
    const most = used.filter(({ totals }) => totals[by] > 0)
      .sort((a, b) => b.totals[by] - a.totals[by])
      .slice(0, TOP_MAX);
    const rows = await Promise.all(most.map(async ({ ownerId, totals }) => {
      const row = await this.find(ownerId, "");
      return row && { ...row, totals };
    }));
    return { rows: rows.filter((row) => row !== null), next: null };
  }

  /** All accounts, the newest first. */
  async *accounts(): AsyncGenerator<Owner> {
    for (const ownerId of await this.#ownerIds()) {
      yield { ownerId, email: await readEmail(this.#redis, ownerId) };
    }
  }

  async #ownerIds(): Promise<string[]> {
    const newest = ["ZREVRANGE", OWNERS_KEY, "0", String(OWNERS_MAX - 1)];
    return asTexts(await this.#redis.command(newest));
  }

  /**
   * A page of what `read` finds for each owner, newest first. A cursor is an owner's id
   * and, behind a dot, a cursor of `read`.
   */
  async #page<T>(
    { after, rows: rowsMax }: PeopleQuery,
    read: (owner: Owner, after: string) => Promise<RowPage<T>>,
  ): Promise<RowPage<T>> {
    const ids = await this.#ownerIds();
    const [from = "", within = ""] = after.split(".");
    const found = ids.indexOf(from);
    if (from !== "" && found < 0) throw new BadCursor();
    const first = within === "" ? found + 1 : found;
    const rows: T[] = [];
    const endMs = this.#now() + SEARCH_MS;
    for (let at = first; at < ids.length; at += BATCH) {
      const batch = ids.slice(at, at + BATCH);
      const pages = await Promise.all(batch.map(async (id, n) => {
        const email = await readEmail(this.#redis, id);
        const owner = { ownerId: id, email };
        return await read(owner, at + n === first ? within : "");
      }));
      for (const [n, page] of pages.entries()) {
        rows.push(...page.rows);
        const next = page.next ?? "";
        const isEnd = next === "" && at + n === ids.length - 1;
        const isFull = next !== "" || rows.length >= rowsMax ||
          this.#now() > endMs;
        if (!isEnd && isFull) return { rows, next: `${batch[n]}.${next}` };
      }
    }
    return { rows, next: null };
  }
}
