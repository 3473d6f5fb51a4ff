/** The content of notices: a budget has reached a threshold, or a key expires. */
import {
  type BudgetDays,
  TOTAL_WINDOW,
} from "@gateway/shared/keys/budget_calendar";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { formatAmount } from "@gateway/shared/money/amount";

/** An account, as notices name it. */
export interface NoticedAccount {
  readonly id: string;
  /** An e-mail address, or the name of a project. */
  readonly name: string;
}

/** A key, as notices name it. */
export type NoticedKey = Pick<KeyRecord, "id" | "description" | "hint">;

/** A threshold that a budget has reached. */
export interface BudgetReached {
  readonly account: NoticedAccount;
  /** Null for the budget of the whole account. */
  readonly key: NoticedKey | null;
  /** `d20261128`, `m202611` or `total`. */
  readonly window: string;
  readonly percent: number;
  /** In billionths. */
  readonly spent: number;
  readonly allowed: number;
  readonly currency: string;
  /** When it is reset, in Unix ms; null if it never is, or if that time has passed. */
  readonly resetMs: number | null;
}

/** A key that is about to expire. */
export interface KeyExpires {
  readonly account: NoticedAccount;
  readonly key: NoticedKey;
  /** The id of the owner who created it; null if unknown. */
  readonly createdBy: string | null;
  readonly days: number;
  readonly expiresAtMs: number;
}

/** The JSON that is delivered. Slack and the like show `text`. */
export interface NoticeBody {
  readonly id: string;
  readonly type: "budget_reached" | "key_expires";
  readonly text: string;
  readonly [member: string]: unknown;
}

const WINDOW = /^(?:\{(\w+)\}(?::(\w+))?):(\w+) (\d+) (\d+)$/;

/** The message that an edge leaves when a budget has reached a threshold. */
export interface DueNotice {
  readonly ownerId: string;
  /** Null for the budget of the owner. */
  readonly keyId: string | null;
  readonly window: string;
  readonly allowed: number;
  readonly percent: number;
}

/** Reads the message of an edge. Returns null if it has another form. */
export function parseDue(text: string): DueNotice | null {
  const [, ownerId, keyId, window, allowed, percent] = WINDOW.exec(text) ?? [];
  if (ownerId === undefined || window === undefined) return null;
  return {
    ownerId,
    keyId: keyId ?? null,
    window,
    allowed: Number(allowed),
    percent: Number(percent),
  };
}

/** Returns when a window ends, in Unix ms; null if it is not the current one. */
export function resetOf(
  window: string,
  days: BudgetDays,
  nowMs: number,
): number | null {
  const { day, month } = days.at(nowMs);
  return [day, month].find(({ name }) => name === window)?.endMs ?? null;
}

/** The name of a budget, as in records: `budget_month`. */
export const budgetNameOf = (window: string): string =>
  window === TOTAL_WINDOW
    ? "budget_total"
    : window.startsWith("d")
    ? "budget_day"
    : "budget_month";

/** The body that tells of a threshold. */
export function budgetBody(id: string, reached: BudgetReached): NoticeBody {
  const { account, key, window, percent, currency, resetMs } = reached;
  const [spent, allowed] = [reached.spent, reached.allowed].map(formatAmount);
  return {
    id,
    type: "budget_reached",
    text: escaped(
      `${percent} % of the budget of ${whose(account, key)} ${
        forWindow(window)
      }` +
        ` is spent, by now ${spent} of ${allowed} ${currency}.${
          ending(reached)
        }`,
    ),
    account,
    key: key && named(key),
    budget: {
      name: budgetNameOf(window),
      window,
      percent,
      spent,
      allowed,
      currency,
      resets_at: isoOrNull(resetMs),
    },
  };
}

/** The body that tells that a key expires. */
export function expiryBody(
  id: string,
  { account, key, createdBy, days, expiresAtMs }: KeyExpires,
): NoticeBody {
  const expires_at = isoOf(expiresAtMs);
  const when = days === 1 ? "within a day" : `within ${days} days`;
  return {
    id,
    type: "key_expires",
    text: escaped(`The ${whose(account, key)} expires ${when}: ${expires_at}.`),
    account,
    key: { ...named(key), created_by: createdBy, expires_at },
  };
}

/** Describes a threshold for the audit log. */
export const budgetDetail = (
  { window, percent, spent, allowed, currency }: BudgetReached,
): string =>
  `${percent} % of the budget ${forWindow(window)}: ${
    formatAmount(spent)
  } of ` +
  `${formatAmount(allowed)} ${currency}`;

function ending({ percent, resetMs, window }: BudgetReached): string {
  if (percent < 100) return "";
  if (window === TOTAL_WINDOW) {
    return " Requests are refused until it is raised.";
  }
  if (resetMs === null) return "";
  return ` Requests are refused until ${
    isoOf(resetMs)
  }, or until it is raised.`;
}

function whose({ name, id }: NoticedAccount, key: NoticedKey | null): string {
  const account = name || id;
  return key === null
    ? account
    : `key "${key.description}" (${key.hint}) of ${account}`;
}

function forWindow(window: string): string {
  if (window === TOTAL_WINDOW) return "in total";
  const date = window.slice(1).match(/^\d{4}|\d\d/g) ?? [];
  return `for ${date.join("-")}`;
}

const named = ({ id, description, hint }: NoticedKey) => ({
  id,
  description,
  hint,
});
const isoOf = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, -5)}Z`;
const isoOrNull = (ms: number | null): string | null =>
  ms === null ? null : isoOf(ms);

/** Escapes the characters with which Slack marks `<!channel>` and links. */
const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
