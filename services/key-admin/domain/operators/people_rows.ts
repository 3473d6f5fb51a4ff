/** The rows of the lists of owners, projects and all keys, and their orders. */
import {
  KEY_SORTS,
  type KeyFilter,
  type KeyRow,
  type PageQuery,
} from "../keys/key_page.ts";
import type { Totals } from "../keys/usage.ts";
import type { Account } from "../owners/owner_store.ts";
import type { Project } from "../projects/project_record.ts";
import type { SortValues } from "../store/sorted.ts";

/** The query for a page of a list, with the words to search for. */
export interface PeopleQuery
  extends Omit<PageQuery, "filter" | "examinedMax" | "createdBy"> {
  /** The days up to `day` whose usage is added up; undefined for one. */
  days?: number;
  /** The filter of the list of keys; undefined for all. */
  filter?: KeyFilter;
}

/** The orders of the list of owners. */
export const OWNER_SORTS: SortValues<OwnerRow> = {
  name: ({ account }) => account.email,
  status: ({ account: { isDisabled, hasSignedIn, isOperator } }) =>
    [isDisabled, !hasSignedIn, !isOperator].map(Number).join(""),
  second_factor: ({ account }) => Number(account.totpSecret !== null),
  created: ({ account }) => account.createdAtMs,
  signed_in: ({ account }) => account.signedInAtMs,
  keys: ({ keys }) => keys,
  requests: ({ totals }) => totals.requests,
  tokens: ({ totals }) => totals.tokens,
  cost: ({ totals }) => totals.cost,
};

/** The orders of the list of projects. */
export const PROJECT_SORTS: SortValues<ProjectRow> = {
  name: ({ project }) => project.name,
  status: ({ project }) => Number(project.isDisabled),
  created: ({ project }) => project.createdAtMs,
  members: ({ members }) => members,
  keys: ({ keys }) => keys,
  requests: ({ totals }) => totals.requests,
  tokens: ({ totals }) => totals.tokens,
  cost: ({ totals }) => totals.cost,
};

/** The orders of the list of the keys of all accounts. */
export const ALL_KEY_SORTS: SortValues<KeyRow & NamedAccount> = {
  ...KEY_SORTS,
  account: ({ name }) => name,
};

/** An account with its name: the address of an owner, or the name of a project. */
export interface NamedAccount {
  ownerId: string;
  name: string;
}

/** An owner as the lists of operators show one. */
export interface OwnerRow {
  account: Account;
  /** How many keys the owner has. */
  keys: number;
  /** Usage of today, unless the list is about other days. */
  totals: Totals;
}

/** A project as the lists of operators show one. */
export interface ProjectRow {
  project: Project;
  members: number;
  keys: number;
  /** As in {@link OwnerRow}. */
  totals: Totals;
}
