/**
 * Lists of all accounts for operators. docs/evidence/limits.md has the cost of reading
 * them.
 */
import pLimit from "p-limit";
import { isKeyId, isProjectId } from "@gateway/shared/keys/key";
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
import type { Project } from "../projects/project_record.ts";
import type { ProjectStore } from "../projects/project_store.ts";
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

/** The query for a page of a list, with the words to search for. */
export type PeopleQuery = Omit<PageQuery, "filter" | "examinedMax">;

/** An account with its name: the address of an owner, or the name of a project. */
export interface NamedAccount {
  ownerId: string;
  name: string;
}

/** One owner in a list. */
export interface OwnerRow {
  account: Account;
  /** How many keys the owner has. */
  keys: number;
  /** Usage of today, unless the list is about other days. */
  totals: Totals;
}

/** One project in a list. */
export interface ProjectRow {
  project: Project;
  members: number;
  keys: number;
  /** As in {@link OwnerRow}. */
  totals: Totals;
}

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
    return await this.#page(query, ids, async (account) => {
      const row = isFound(account, query) &&
        await this.find(account.ownerId, query.day);
      return { rows: row ? [row] : [], next: null };
    });
  }

  /** One page of projects whose name or id has all of the words. */
  async projects(query: PeopleQuery): Promise<RowPage<ProjectRow>> {
    const ids = await this.#projects.ids();
    return await this.#page(query, ids, async (account) => {
      const row = isFound(account, query) &&
        await this.findProject(account.ownerId, query.day);
      return { rows: row ? [row] : [], next: null };
    });
  }

  /** One project with the usage of a day in UTC; null if there is none. */
  async findProject(id: string, day: string): Promise<ProjectRow | null> {
    const [project, members] = await Promise.all([
      this.#projects.read(id),
      this.#projects.members(id),
    ]);
    if (project === null) return null;
    return { project, members: members.length, ...await this.#use(id, day) };
  }

  /** One owner with the usage of a day in UTC, `yyyymmdd`; null if there is none. */
  async find(ownerId: string, day: string): Promise<OwnerRow | null> {
    const account = await this.#owners.read(ownerId);
    return account && { account, ...await this.#use(ownerId, day) };
  }

  /** The number of keys of an account, and its usage of a day. */
  async #use(
    ownerId: string,
    day: string,
  ): Promise<{ keys: number; totals: Totals }> {
    const keys = await this.#redis.command(["ZCARD", keysKey(ownerId)]);
    const usage = [ownerUsageKey(ownerId, day)];
    const totals = await readTotals(this.#redis, usage);
    return { keys: asNumber(keys), totals };
  }

  /**
   * One page of the keys of all accounts, projects first. Words may also be a part of
   * the owner's address or the project's name, or its id; the search may be the id of a
   * key.
   */
  async keys(query: PeopleQuery): Promise<RowPage<KeyRow & NamedAccount>> {
    const ids = await this.#accountIds();
    return await this.#page(query, ids, async (owner, after) => {
      if (isKeyId(query.search)) {
        const key = await this.#keys.get(owner.ownerId, query.search);
        const row = key && await readRow(this.#redis, key, query.day);
        return { rows: row ? [{ ...row, ...owner }] : [], next: null };
      }
      const words = query.search.split(/\s+/)
        .filter((word) => !has(`${owner.name} ${owner.ownerId}`, word));
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

  /** The account of a key; null if none has a key of this id. */
  async ownerOf(keyId: string): Promise<string | null> {
    if (!isKeyId(keyId)) return null;
    const ids = await this.#accountIds();
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
    const most = await this.#most(await this.#ownerIds(), { by, days });
    const rows = await Promise.all(most.map(async ({ ownerId, totals }) => {
      const row = await this.find(ownerId, "");
      return row && { ...row, totals };
    }));
    return { rows: rows.filter((row) => row !== null), next: null };
  }

  /** The projects that used most, as {@link top}. */
  async topProjects(
    by: keyof Totals,
    days: number,
  ): Promise<RowPage<ProjectRow>> {
    const most = await this.#most(await this.#projects.ids(), { by, days });
    const rows = await Promise.all(most.map(async ({ ownerId, totals }) => {
      const row = await this.findProject(ownerId, "");
      return row && { ...row, totals };
    }));
    return { rows: rows.filter((row) => row !== null), next: null };
  }

  /** The accounts that used most in the last days. */
  async #most(
    ids: readonly string[],
    { by, days }: { by: keyof Totals; days: number },
  ) {
    const dates = lastDays(days, this.#now());
    const atOnce = pLimit(BATCH);
    const used = await atOnce.map(ids, async (ownerId) => {
      const names = dates.map((day) => ownerUsageKey(ownerId, day));
      return { ownerId, totals: await readTotals(this.#redis, names) };
    });
    return used.filter(({ totals }) => totals[by] > 0)
      .sort((a, b) => b.totals[by] - a.totals[by])
      .slice(0, TOP_MAX);
  }

  /** All accounts: projects, then owners, the newest first. */
  async *accounts(): AsyncGenerator<NamedAccount> {
    for (const ownerId of await this.#accountIds()) {
      yield { ownerId, name: await this.name(ownerId) ?? "" };
    }
  }

  /** The name of an account; null if there is none of this id. */
  async name(ownerId: string): Promise<string | null> {
    return isProjectId(ownerId)
      ? (await this.#projects.read(ownerId))?.name ?? null
      : await readEmail(this.#redis, ownerId);
  }

  async #accountIds(): Promise<string[]> {
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

const has = (text: string, word: string): boolean =>
  text.toLowerCase().includes(word.toLowerCase());

/** Whether the name or the id of an account has all of the words. */
const isFound = (
  { ownerId, name }: NamedAccount,
  { search }: PeopleQuery,
): boolean =>
  search.split(/\s+/).every((word) => has(`${name} ${ownerId}`, word));
