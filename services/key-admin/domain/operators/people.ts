/**
 * Lists of all accounts for operators. docs/evidence/limits.md has the cost of reading
 * them.
 */
import { isKeyId, isProjectId } from "@gateway/shared/keys/key";
import { keysKey, ownerUsageKey } from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  type KeyRow,
  readPage,
  readRow,
  readRowsOf,
} from "../keys/key_page.ts";
import type { KeyStore } from "../keys/key_store.ts";
import { plusUtcDays, readTotals, type Totals } from "../keys/usage.ts";
import {
  OWNERS_KEY,
  type OwnerStore,
  readEmail,
} from "../owners/owner_store.ts";
import {
  ALL_KEY_SORTS,
  type NamedAccount,
  OWNER_SORTS,
  type OwnerRow,
  type PeopleQuery,
  PROJECT_SORTS,
  type ProjectRow,
} from "./people_rows.ts";
import type { ProjectStore } from "../projects/project_store.ts";
import {
  asNumber,
  asTexts,
  BadCursor,
  type RowPage,
  type StoreDeps,
} from "../store/redis.ts";
import {
  allOf,
  type Compared,
  SORTED_MAX,
  sortedPage,
  type SortValues,
} from "../store/sorted.ts";

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

/** Dependencies of {@link People}. */
export interface PeopleDeps extends Pick<StoreDeps, "redis" | "now"> {
  owners: Pick<OwnerStore, "read">;
  keys: Pick<KeyStore, "get">;
  projects: Pick<ProjectStore, "ids" | "read" | "members">;
}

/** The lists of all owners, projects and keys, newest first. */
export class People {
  readonly #redis: RedisLink;
  readonly #now: WallNow;
  readonly #owners: PeopleDeps["owners"];
  readonly #keys: PeopleDeps["keys"];
  readonly #projects: PeopleDeps["projects"];

  constructor({ redis, now, owners, keys, projects }: PeopleDeps) {
    this.#projects = projects;
    this.#redis = redis;
    this.#now = now;
    this.#owners = owners;
    this.#keys = keys;
  }

  /** One page of owners whose address or id has all of the words. */
  async list(query: PeopleQuery): Promise<RowPage<OwnerRow>> {
    const ids = await this.#ownerIds();
    return await this.#list(query, ids, {
      sorts: OWNER_SORTS,
      read: async (account) => {
        const row = isFound(account, query) &&
          await this.#owner(account.ownerId, daysOf(query));
        return row ? [row] : [];
      },
    });
  }

  /** One page of projects whose name or id has all of the words. */
  async projects(query: PeopleQuery): Promise<RowPage<ProjectRow>> {
    const ids = await this.#projects.ids();
    return await this.#list(query, ids, {
      sorts: PROJECT_SORTS,
      read: async (account) => {
        const row = isFound(account, query) &&
          await this.#project(account.ownerId, daysOf(query));
        return row ? [row] : [];
      },
    });
  }

  /** A page of a list of accounts, in the order that is asked for. */
  async #list<T>(
    query: PeopleQuery,
    ids: readonly string[],
    { sorts, read }: {
      sorts: SortValues<T>;
      read: (account: NamedAccount) => Promise<T[]>;
    },
  ): Promise<RowPage<T>> {
    const { sort } = query;
    if (sort !== undefined) {
      const compared = await this.#all(
        ids,
        async (account) => allOf(await read(account)),
      );
      return sortedPage(compared, sorts, { ...query, sort });
    }
    return await this.#page(query, ids, async (account) => ({
      rows: await read(account),
      next: null,
    }));
  }

  /** All rows of these accounts, as many as can be compared. */
  async #all<T>(
    ids: readonly string[],
    read: (account: NamedAccount) => Promise<Compared<T>>,
  ): Promise<Compared<T>> {
    const found: T[] = [];
    let isPartial = ids.length >= OWNERS_MAX;
    for (let at = 0; at < ids.length; at += BATCH) {
      const batch = ids.slice(at, at + BATCH);
      const parts = await Promise.all(
        batch.map(async (ownerId) =>
          await read({ ownerId, name: await this.name(ownerId) ?? "" })
        ),
      );
      for (const part of parts) {
        found.push(...part.rows);
        isPartial ||= part.isPartial;
      }
      if (found.length > SORTED_MAX) {
        return { rows: found.slice(0, SORTED_MAX), isPartial: true };
      }
    }
    return { rows: found, isPartial };
  }

  /** One project with the usage of a day in UTC; null if there is none. */
  findProject(id: string, day: string): Promise<ProjectRow | null> {
    return this.#project(id, [day]);
  }

  async #project(
    id: string,
    days: readonly string[],
  ): Promise<ProjectRow | null> {
    const [project, members] = await Promise.all([
      this.#projects.read(id),
      this.#projects.members(id),
    ]);
    if (project === null) return null;
    return { project, members: members.length, ...await this.#use(id, days) };
  }

  /** One owner with the usage of a day in UTC, `yyyymmdd`; null if there is none. */
  find(ownerId: string, day: string): Promise<OwnerRow | null> {
    return this.#owner(ownerId, [day]);
  }

  async #owner(
    ownerId: string,
    days: readonly string[],
  ): Promise<OwnerRow | null> {
    const account = await this.#owners.read(ownerId);
    return account && { account, ...await this.#use(ownerId, days) };
  }

  /** The number of keys of an account, and its usage of some days. */
  async #use(
    ownerId: string,
    days: readonly string[],
  ): Promise<{ keys: number; totals: Totals }> {
    const keys = await this.#redis.command(["ZCARD", keysKey(ownerId)]);
    const usage = days.map((day) => ownerUsageKey(ownerId, day));
    const totals = await readTotals(this.#redis, usage);
    return { keys: asNumber(keys), totals };
  }

  /**
   * One page of the keys of all accounts, projects first. Words may also be a part of
   * the owner's address or the project's name, or its id; the search may be the id of a
   * key.
   */
  async keys(query: PeopleQuery): Promise<RowPage<KeyRow & NamedAccount>> {
    const ids = await this.accountIds();
    const { sort, filter = "all" } = query;
    const named = (owner: NamedAccount, rows: readonly KeyRow[]) =>
      rows.map((row) => ({ ...row, ...owner }));
    if (sort !== undefined && !isKeyId(query.search)) {
      const compared = await this.#all(ids, async (owner) => {
        const wanted = { ...query, filter, search: restOf(owner, query) };
        const part = await readRowsOf(this.#redis, owner.ownerId, wanted);
        return { ...part, rows: named(owner, part.rows) };
      });
      return sortedPage(compared, ALL_KEY_SORTS, { ...query, sort });
    }
    return await this.#page(query, ids, async (owner, after) => {
      if (isKeyId(query.search)) {
        const key = await this.#keys.get(owner.ownerId, query.search);
        const row = key && await readRow(this.#redis, key, query.day);
        return { rows: row ? named(owner, [row]) : [], next: null };
      }
      const { rows, next } = await readPage(this.#redis, owner.ownerId, {
        ...query,
        sort: undefined,
        search: restOf(owner, query),
        after,
        filter,
        examinedMax: KEYS_MAX,
      });
      return { rows: named(owner, rows), next };
    });
  }

  /** The account of a key; null if none has a key of this id. */
  async ownerOf(keyId: string): Promise<string | null> {
    if (!isKeyId(keyId)) return null;
    const ids = await this.accountIds();
    for (let at = 0; at < ids.length; at += BATCH) {
      const found = await Promise.all(
        ids.slice(at, at + BATCH).map((id) => this.#keys.get(id, keyId)),
      );
      const key = found.find((key) => key !== null);
      if (key) return key.ownerId;
    }
    return null;
  }

  /** The accounts of keys, by the ids of those that there are. */
  async ownersOf(keyIds: readonly string[]): Promise<Map<string, string>> {
    const owners = new Map<string, string>();
    const wanted = new Set(keyIds);
    const ids = await this.accountIds();
    for (
      let at = 0;
      at < ids.length && owners.size < wanted.size;
      at += BATCH
    ) {
      await Promise.all(
        ids.slice(at, at + BATCH).map(async (ownerId) => {
          const list = ["ZREVRANGE", keysKey(ownerId), "0", "-1"];
          for (const keyId of asTexts(await this.#redis.command(list))) {
            if (wanted.has(keyId)) owners.set(keyId, ownerId);
          }
        }),
      );
    }
    return owners;
  }

  /** All accounts: projects, then owners, the newest first. */
  async *accounts(): AsyncGenerator<NamedAccount> {
    for (const ownerId of await this.accountIds()) {
      yield { ownerId, name: await this.name(ownerId) ?? "" };
    }
  }

  /** The name of an account; null if there is none of this id. */
  async name(ownerId: string): Promise<string | null> {
    return isProjectId(ownerId)
      ? (await this.#projects.read(ownerId))?.name ?? null
      : await readEmail(this.#redis, ownerId);
  }

  /** The ids of all accounts, in the same order. */
  async accountIds(): Promise<string[]> {
    return [...await this.#projects.ids(), ...await this.#ownerIds()];
  }

  async #ownerIds(): Promise<string[]> {
    const newest = ["ZREVRANGE", OWNERS_KEY, "0", String(OWNERS_MAX - 1)];
    return asTexts(await this.#redis.command(newest));
  }

  /**
   * A page of what `read` finds for each account, in their order. A cursor is an id of
   * an account and, behind a dot, a cursor of `read`.
   */
  async #page<T>(
    { after, rows: rowsMax }: PeopleQuery,
    ids: readonly string[],
    read: (account: NamedAccount, after: string) => Promise<RowPage<T>>,
  ): Promise<RowPage<T>> {
    const [from = "", within = ""] = after.split(".");
    const found = ids.indexOf(from);
    if (from !== "" && found < 0) throw new BadCursor();
    const first = within === "" ? found + 1 : found;
    const rows: T[] = [];
    const endMs = this.#now() + SEARCH_MS;
    for (let at = first; at < ids.length; at += BATCH) {
      const batch = ids.slice(at, at + BATCH);
      const pages = await Promise.all(batch.map(async (id, n) => {
        const account = { ownerId: id, name: await this.name(id) ?? "" };
        return await read(account, at + n === first ? within : "");
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

/** The UTC days whose use is added up. */
const daysOf = ({ day, days = 1 }: PeopleQuery): string[] =>
  Array.from({ length: days }, (_, at) => plusUtcDays(day, -at));

/** The words that are not already in the name or the id of an account. */
const restOf = (
  { name, ownerId }: NamedAccount,
  { search }: PeopleQuery,
): string =>
  search.split(/\s+/).filter((word) => !has(`${name} ${ownerId}`, word))
    .join(" ");

const has = (text: string, word: string): boolean =>
  text.toLowerCase().includes(word.toLowerCase());

/** Whether the name or the id of an account has all of the words. */
const isFound = (
  { ownerId, name }: NamedAccount,
  { search }: PeopleQuery,
): boolean =>
  search.split(/\s+/).every((word) => has(`${name} ${ownerId}`, word));
