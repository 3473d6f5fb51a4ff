/**
 * Actions of operators on the accounts of owners, in the console and on the command
 * line.
 */
import type { KeyRecord, KeyState, Limits } from "@gateway/shared/keys/record";
import { defined, keysOf } from "@gateway/shared/process/env";
import type { Actor, AuditAction, AuditLog } from "../audit/audit_log.ts";
import { describeLimits } from "../keys/key_record.ts";
import { AccountChanged } from "../audit/record_change.ts";
import type { Account, OwnerStore } from "../owners/owner_store.ts";
import type { Link, LinkStore } from "../sign_in/links.ts";
import type { SessionStore } from "../sign_in/sessions.ts";

/** Who acts; `ownerId` is null for the command line. */
export interface Operator extends Actor {
  ownerId: string | null;
}

/**
 * An operator may not do this, and nothing was changed. The message is a sentence
 * without its full stop.
 */
export class OperatorRefused extends Error {
  override name = "OperatorRefused";
}

/** A link that was made for an owner. Its secret exists nowhere else. */
export interface OwnerLink extends Link {
  email: string;
  secret: string;
}

/** An action of an operator on a key, and its reason. */
export interface KeyNote {
  action: AuditAction;
  key: Pick<KeyRecord, "id" | "hint" | "description">;
  /** May be empty. */
  reason: string;
}

/** What an owner is to be like, and the version that this is based on. */
export interface OwnerUpdate {
  /** Those that are not stated stay as they are. */
  readonly limits?: Partial<Limits> | undefined;
  readonly state?: KeyState | undefined;
  /** Null or none: any. */
  readonly version?: number | null;
}

/** What the audit log says of a change, without who made it. */
interface Note {
  action: AuditAction;
  detail?: string;
}

const enabled = ({ isDisabled }: Account): string =>
  isDisabled ? "is disabled" : "";
/**
 * Operators have to lose the role before they are disabled, so that one is always left.
 */
const ordinary = (account: Account): string =>
  account.isOperator ? "is an operator" : enabled(account);

/** A change to an account. */
interface Change {
  /** Its action in the audit log. */
  action: AuditAction;
  /**
   * Returns why an account does not allow it, as in "… is disabled"; empty if it does.
   */
  refusal: (account: Account) => string;
}

const CHANGES = {
  reset_password: { action: "account.reset_link_made", refusal: enabled },
  remove_second_factor: {
    action: "account.second_factor_removed",
    refusal: ({ totpSecret }) =>
      totpSecret === null ? "has no second factor" : "",
  },
  sign_out_everywhere: { action: "session.revoked", refusal: enabled },
  make_operator: { action: "owner.role_given", refusal: ordinary },
  remove_role_of_operator: {
    action: "owner.role_removed",
    refusal: ({ isOperator }) => isOperator ? "" : "is not an operator",
  },
  disable: { action: "owner.disabled", refusal: ordinary },
  enable: {
    action: "owner.enabled",
    refusal: ({ isDisabled }) => isDisabled ? "" : "is not disabled",
  },
} satisfies Record<string, Change>;

/** The actions of an operator on somebody else's account. */
export type OwnerChange = keyof typeof CHANGES;
/** All changes, in the order in which they are offered. */
export const OWNER_CHANGES = keysOf(CHANGES);
/** The changes that an account allows now. */
export const changesOf = (account: Account): OwnerChange[] =>
  OWNER_CHANGES.filter((what) => CHANGES[what].refusal(account) === "");

const OWN_ACCOUNT =
  "This is your own account. Use the Account page, or ask another operator";

/** Dependencies of {@link Operators}. */
export interface OperatorsDeps {
  owners: Pick<
    OwnerStore,
    | "ensure"
    | "standing"
    | "change"
    | "read"
    | "disableTotp"
    | "giveRole"
    | "takeRole"
  >;
  sessions: Pick<SessionStore, "endOthers">;
  links: Pick<LinkStore, "make">;
  audit: Pick<AuditLog, "add">;
  /** Takes back the orders to stop the requests of an owner's keys. */
  dropStopOrders: (ownerId: string) => Promise<void>;
}

/**
 * Each change is in the owner's audit log and, with the owner's address, in that of the
 * operator. Of their own accounts, operators can change only the limits here, because
 * the page Account asks for the password each time.
 */
export class Operators {
  readonly #owners: OperatorsDeps["owners"];
  readonly #sessions: OperatorsDeps["sessions"];
  readonly #links: OperatorsDeps["links"];
  readonly #audit: OperatorsDeps["audit"];
  readonly #dropStopOrders: OperatorsDeps["dropStopOrders"];

  constructor(
    { owners, sessions, links, audit, dropStopOrders }: OperatorsDeps,
  ) {
    this.#dropStopOrders = dropStopOrders;
    this.#owners = owners;
    this.#sessions = sessions;
    this.#links = links;
    this.#audit = audit;
  }

  /**
   * Changes somebody else's account. Returns the link if the change is to make one, for
   * a new password; null otherwise. Throws {@link OperatorRefused}.
   */
  async change(
    operator: Operator,
    ownerId: string,
    what: OwnerChange,
  ): Promise<OwnerLink | null> {
    const account = await this.#find(ownerId);
    const { email } = account;
    if (operator.ownerId === ownerId) throw new OperatorRefused(OWN_ACCOUNT);
    const { action, refusal } = CHANGES[what];
    const why = refusal(account);
    if (why !== "") throw new OperatorRefused(`${email} ${why}`);
    if (what === "disable" || what === "enable") {
      await this.update(operator, ownerId, { state: `${what}d` });
      return null;
    }
    await this.#make(what, ownerId, operator.by);
    const link = { kind: "reset", ownerId } as const;
    const secret = what === "reset_password"
      ? await this.#links.make(link)
      : null;
    await this.#note(operator, account, { action });
    return secret === null ? null : { ...link, email, secret };
  }

  /**
   * Makes a link for an owner who cannot sign in yet, and the owner if the address is
   * new. Throws {@link OperatorRefused}.
   */
  async invite(operator: Operator, email: string): Promise<OwnerLink> {
    const account = await this.#find(await this.#owners.ensure(email));
    if (account.passwordHash !== null || account.isDisabled) {
      throw new OperatorRefused(
        `${email} can sign in already or is disabled. For a forgotten password, reset it`,
      );
    }
    const link = { kind: "invite", ownerId: account.ownerId } as const;
    const secret = await this.#links.make(link);
    const entry = { action: "owner.invited", detail: email } as const;
    await this.#note(operator, account, entry);
    return { ...link, email, secret };
  }

  /** Sets the limits over all keys of an owner, from the next request on. */
  async setLimits(
    operator: Operator,
    ownerId: string,
    limits: Limits,
  ): Promise<void> {
    await this.update(operator, ownerId, { limits });
  }

  /**
   * Makes limits and state of an owner what is stated, all or nothing; what is so
   * already is no change. Throws {@link OperatorRefused}, and `AccountChanged` if the
   * account has another version than the one that is stated.
   */
  async update(
    operator: Operator,
    ownerId: string,
    { version = null, limits, state }: OwnerUpdate,
  ): Promise<void> {
    const account = await this.#find(ownerId);
    const before = await this.#owners.standing(ownerId);
    const notes: Note[] = [];
    const merged = { ...before.limits, ...limits };
    const detail = describeLimits(before.limits, merged);
    if (detail !== "") notes.push({ action: "owner.limits_changed", detail });
    const isOther = state !== undefined && state !== before.state;
    if (isOther) {
      const { action, refusal } =
        CHANGES[state === "disabled" ? "disable" : "enable"];
      const why = refusal(account);
      if (why !== "") throw new OperatorRefused(`${account.email} ${why}`);
      if (operator.ownerId === ownerId) throw new OperatorRefused(OWN_ACCOUNT);
      notes.push({ action });
    }
    if (notes.length === 0) {
      if (version === null || version === before.version) return;
      throw new AccountChanged();
    }
    if (isOther && state === "enabled") await this.#dropStopOrders(ownerId);
    const { by, ip } = operator;
    const entries = notes.map((note) => ({ by, ip, ...note }));
    const wanted = defined({ limits, state });
    await this.#owners.change(ownerId, wanted, { version, entries });
    if (isOther && state === "disabled") {
      await this.#sessions.endOthers(ownerId, null);
    }
    for (const note of notes) await this.#noteOwn(operator, account, note);
  }

  /**
   * Writes an action on a key to the operator's audit log, with the name of the
   * account, whose own log has the action already.
   */
  async noteKey(
    { ownerId: operatorId, by, ip }: Operator,
    { name }: { name: string },
    { action, key: { id: keyId, hint, description }, reason }: KeyNote,
  ): Promise<void> {
    if (operatorId === null) return;
    const about = { keyId, hint, description };
    const detail = reason === "" ? name : `${name}: ${reason}`;
    await this.#audit.add(operatorId, { action, by, ip, ...about, detail });
  }

  async #find(ownerId: string): Promise<Account> {
    const account = await this.#owners.read(ownerId);
    if (account === null) throw new OperatorRefused("There is no such owner");
    return account;
  }

  async #make(what: OwnerChange, ownerId: string, by: string): Promise<void> {
    const owners = this.#owners;
    if (what === "remove_second_factor") await owners.disableTotp(ownerId, by);
    if (what === "make_operator") await owners.giveRole(ownerId);
    if (what === "sign_out_everywhere") {
      await this.#sessions.endOthers(ownerId, null);
    }
    if (what === "remove_role_of_operator" && !await owners.takeRole(ownerId)) {
      throw new OperatorRefused(
        "There must always be an operator. Give somebody else the role first",
      );
    }
  }

  async #note(
    operator: Operator,
    account: Account,
    { action, detail = "" }: Note,
  ): Promise<void> {
    const { by, ip } = operator;
    await this.#audit.add(account.ownerId, { action, by, ip, detail });
    await this.#noteOwn(operator, account, { action, detail });
  }

  /** Notes a change in the log of the operator who made it. */
  async #noteOwn(
    { ownerId: operatorId, by, ip }: Operator,
    { ownerId, email }: Account,
    { action, detail = "" }: Note,
  ): Promise<void> {
    if (operatorId === null || operatorId === ownerId) return;
    const whom = detail === "" ? email : `${email}: ${detail}`;
    await this.#audit.add(operatorId, { action, by, ip, detail: whom });
  }
}
