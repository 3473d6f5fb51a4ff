/** The parts of usage: keys of an account, accounts of the gateway, and their tables. */

import {
  type Counts,
  isUsed,
  withoutCounts,
} from "../../../domain/keys/usage.ts";
import { GATEWAY } from "../../../domain/usage/day_sums.ts";
import type { UsageSpan } from "../../../domain/usage/span.ts";
import {
  keyParts,
  type KeyUse,
  readTopKeys,
  readUsageByKey,
  useByMember,
} from "../../../domain/usage/usage_by_key.ts";
import {
  accountParts,
  sizeOf,
  type UsagePart,
} from "../../../domain/usage/usage_reports.ts";
import type { ConsoleDeps } from "../../context.ts";
import { KEYS_OF_OWNER, operatorPath } from "../../request/key_scope.ts";
import { Table } from "../../view/parts.tsx";
import { Email, keyName } from "../../view/texts.tsx";
import type { UsageChoice } from "./usage_choice.tsx";
import { countColumns, type Row } from "./usage_tables.tsx";

/** The usage whose parts are shown. */
export interface PartsQuery {
  /** {@link GATEWAY} for all accounts together. */
  ownerId: string;
  choice: UsageChoice;
  /** Only keys that this owner created have names; undefined if all have. */
  createdBy?: string | undefined;
  /** The address of the pages of keys; undefined if keys have no table. */
  keys?: string | undefined;
  isProject?: boolean;
}

/** A key, with the address of its page. */
interface ListedKey extends KeyUse {
  /** The address of the pages of its account's keys. */
  readonly base: string | undefined;
}

/** The usage of the parts of an account or of the gateway. */
export interface Parts {
  /**
   * The keys of an account; for the gateway, those that are used most, if bars are
   * stacked by key.
   */
  readonly keys: readonly ListedKey[];
  /** What each account of the gateway used. */
  readonly used: ReadonlyMap<string, Counts>;
  /** The names of the accounts of the gateway that are used most. */
  readonly accounts: ReadonlyMap<string, string>;
}

type PartsDeps = Pick<ConsoleDeps, "redis" | "people" | "usage">;

/** Rows of a table of keys or accounts; the file has all. */
const ROWS_MAX = 100;

/** Keys of the account or accounts of the gateway; null where there are no parts. */
export async function readParts(
  deps: PartsDeps,
  query: PartsQuery,
  span: UsageSpan,
): Promise<Parts | null> {
  const { ownerId, keys: base, createdBy } = query;
  if (ownerId === GATEWAY) return await readAccounts(deps, query, span);
  if (base === undefined) return null;
  const found = await readUsageByKey(deps, { ownerId, createdBy }, span);
  return {
    keys: found.map((key) => ({ ...key, base })),
    used: new Map(),
    accounts: new Map(),
  };
}

async function readAccounts(
  deps: PartsDeps,
  { ownerId, choice: { by } }: PartsQuery,
  span: UsageSpan,
): Promise<Parts> {
  const { people, usage } = deps;
  const ids = await people.accountIds();
  const used = await usage.parts({ ownerId }, span, ids);
  const shown = [...used].sort(([, a], [, b]) => sizeOf(b) - sizeOf(a))
    .slice(0, ROWS_MAX);
  const names = await Promise.all(
    shown.map(async ([id]) =>
      [id, await people.name(id) || "First owner"] as const
    ),
  );
  const top = by === "key" ? await readTopKeys(deps, used, span) : [];
  return {
    keys: top.map((key) => ({
      ...key,
      base: KEYS_OF_OWNER.replace(":owner", key.ownerId),
    })),
    used,
    accounts: new Map(names),
  };
}

/** The parts that have a place of their own in bars. */
export const partsFor = (
  by: "key" | "account",
  { used, keys }: Parts,
): UsagePart[] => by === "key" ? keyParts(keys) : accountParts(used);

/** The names of keys and accounts, by id. */
export const partNames = (
  { keys, accounts }: Parts,
): ReadonlyMap<string, string> =>
  new Map([
    ...accounts,
    ...keys.map(({ id, description, hint }) =>
      [id, `${description} ${hint}`] as const
    ),
  ]);

/** The rows of parts, and the rest of the total as the last row. */
function partRows(rows: readonly Row[], total: Counts, others: string): Row[] {
  const shown = rows.slice(0, ROWS_MAX);
  const rest = shown.reduce(
    (rest, [, counts]) => withoutCounts(rest, counts),
    total,
  );
  const name = rows.length > shown.length ? "All others" : others;
  const restRows: Row[] = isUsed(rest)
    ? [[<span key="" class="faint">{name}</span>, rest]]
    : [];
  return [...shown, ...restRows];
}

/** What all tables of parts need. */
interface Shown {
  readonly parts: Parts;
  readonly total: Counts;
  readonly currency: string;
}

/** Tables of keys and members, or of accounts, the most used first. */
export async function partTables(
  { people }: Pick<ConsoleDeps, "people">,
  { ownerId, createdBy, isProject }: PartsQuery,
  shown: Shown,
) {
  if (ownerId === GATEWAY) {
    return (
      <>
        {shown.parts.keys.length > 0 && keyTable(shown, "Other keys")}
        {accountTable(shown)}
      </>
    );
  }
  const { parts, total, currency } = shown;
  const others = createdBy === undefined
    ? "Deleted keys and Try it"
    : "Other keys";
  const members = await Promise.all(
    [...useByMember(parts.keys)].map(async ([id, counts]): Promise<Row> => [
      id === ""
        ? <span key="" class="faint">Not recorded</span>
        : <Email key="">{await people.name(id) ?? id}</Email>,
      counts,
    ]),
  );
  return (
    <>
      {keyTable(shown, others)}
      {isProject && createdBy === undefined && (
        <Table
          caption="Usage by the members who created the keys"
          title={<strong>By member</strong>}
          rows={partRows(members, total, others)}
          columns={countColumns("Member", total, currency)}
        />
      )}
    </>
  );
}

function keyTable({ parts, total, currency }: Shown, others: string) {
  const rows = parts.keys.map((key): Row => [
    keyName(key, key.base),
    key.counts,
  ]);
  return (
    <Table
      caption="Usage by key, the most used first"
      title={<strong>By key</strong>}
      rows={partRows(rows, total, others)}
      columns={countColumns("Key", total, currency)}
    />
  );
}

function accountTable({ parts, total, currency }: Shown) {
  const rows = [...parts.accounts].map(([id, name]): Row => [
    <a key="" href={operatorPath(id)}>
      <Email>{name}</Email>
    </a>,
    parts.used.get(id) ?? {},
  ]);
  return (
    <Table
      caption="Usage by account, the most used first"
      title={<strong>By account</strong>}
      rows={partRows(rows, total, "Others")}
      columns={countColumns("Account", total, currency)}
    />
  );
}
