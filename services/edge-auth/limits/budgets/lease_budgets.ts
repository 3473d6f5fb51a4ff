/** What leases say that their requests hold of budgets (`lua/budget.lua`). */
import type { Principal } from "@gateway/shared/keys/record";
import { remember } from "@gateway/shared/process/maps";

/** What a lease says that its request holds, and nothing else does. */
export interface LeaseHold {
  /** In billionths of the currency. */
  readonly nanos: number;
  /** Whose budgets, of which windows: ` key:m202611:5000000000 owner:total:90000000`. */
  readonly budgets: string;
}

/** Keys whose budgets an edge remembers; for others, Redis keeps what is held. */
const KEYS_MAX = 10_000;

/**
 * The budgets that leases name, as the script that admits has told them. They change
 * with each window and each limit: where a lease names others, the script keeps what
 * its request holds beside it, and tells them again.
 */
export class LeaseBudgets {
  readonly #budgets = new Map<string, string>();

  /** The budgets of a key, with those of its end users or without; empty: none. */
  namesOf(principal: Principal, hasEndUser: boolean): string {
    return this.#budgets.get(nameOf(principal, hasEndUser)) ?? "";
  }

  /** Keeps the budgets of a key; empty: it has none. */
  keep(principal: Principal, hasEndUser: boolean, budgets: string): void {
    const key = nameOf(principal, hasEndUser);
    if (budgets === "") this.#budgets.delete(key);
    else {
      remember(this.#budgets, { key, value: budgets, sizeMax: KEYS_MAX });
    }
  }
}

const nameOf = ({ keyId }: Principal, hasEndUser: boolean): string =>
  hasEndUser ? `${keyId} user` : keyId;
