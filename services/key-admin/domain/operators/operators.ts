import type { Limits } from "@gateway/shared/keys/record";
import { keysOf } from "@gateway/shared/process/env";
import type { Actor, AuditAction, AuditLog } from "../audit/audit_log.ts";
import { describeLimits } from "../keys/key_record.ts";
import type { Account, OwnerStore } from "../owners/owner_store.ts";
import type { Link, LinkStore } from "../sign_in/links.ts";
import type { SessionStore } from "../sign_in/sessions.ts";

/**
 * What operators do to the accounts of owners, in the console and on the command line.
 */

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

const enabled = ({ isDisabled }: Account) => isDisabled ? "is disabled" : "";
/**
 * Operators have to lose the role before they are disabled, so that one is always left.
 */
const ordinary = (one: Account) =>
  one.isOperator ? "is an operator" : enabled(one);

/**
 * What the audit log calls a change, and why an account does not allow it, empty if it
 * does.
 */
const CHANGES = {
  reset_password: ["account.reset_link_made", enabled],
  remove_second_factor: [
    "account.second_factor_removed",
    ({ totpSecret }) => totpSecret === null ? "has no second factor" : "",
  ],
  sign_out_everywhere: ["session.revoked", enabled],
  make_operator: ["owner.role_given", ordinary],
  remove_role_of_operator: [
    "owner.role_removed",
    ({ isOperator }) => isOperator ? "" : "is not an operator",
  ],
  disable: ["owner.disabled", ordinary],
  enable: ["owner.enabled", (one) => enabled(one) ? "" : "is not disabled"],
} satisfies Record<string, [AuditAction, (account: Account) => string]>;
export type OwnerChange = keyof typeof CHANGES;
export const OWNER_CHANGES = keysOf(CHANGES);

const OWN_ACCOUNT =
  "This is your own account. Use the Account page, or ask another operator";
export const changesOf = (account: Account): OwnerChange[] =>
  OWNER_CHANGES.filter((what) => CHANGES[what][1](account) === "");

/**
 * Each change is in the owner's audit log and, with the owner's address, in that of the
 * operator. Of their own accounts, operators can change only the limits here, because
 * the page Account asks for the password each time.
 */
export function createOperators({ owners, sessions, links, audit }: {
  owners: OwnerStore;
  sessions: SessionStore;
  links: LinkStore;
  audit: AuditLog;
}) {
  async function find(ownerId: string): Promise<Account> {
    const account = await owners.read(ownerId);
    if (account === null) throw new OperatorRefused("There is no such owner");
    return account;
  }

  async function note(
    { ownerId: operatorId, by, ip }: Operator,
    { ownerId, email }: Account,
    action: AuditAction,
    detail = "",
  ): Promise<void> {
    await audit.add(ownerId, { action, by, ip, detail });
    if (operatorId === null || operatorId === ownerId) return;
    const whom = detail === "" ? email : `${email}: ${detail}`;
    await audit.add(operatorId, { action, by, ip, detail: whom });
  }

  async function make(what: OwnerChange, ownerId: string, by: string) {
    if (what === "remove_second_factor") await owners.disableTotp(ownerId, by);
    if (what === "make_operator") await owners.giveRole(ownerId);
    if (what === "enable") await owners.setState(ownerId, "enabled");
    if (what === "disable") await owners.setState(ownerId, "disabled");
    if (what === "disable" || what === "sign_out_everywhere") {
      await sessions.endOthers(ownerId, null);
    }
    if (what === "remove_role_of_operator" && !await owners.takeRole(ownerId)) {
      throw new OperatorRefused(
        "There must always be an operator. Give somebody else the role first",
      );
    }
  }

  return {
    /**
     * Changes somebody else's account. Returns the link, if that is what was asked for.
     */
    async change(operator: Operator, ownerId: string, what: OwnerChange) {
      const account = await find(ownerId);
      const { email } = account;
      if (operator.ownerId === ownerId) throw new OperatorRefused(OWN_ACCOUNT);
      const why = CHANGES[what][1](account);
      if (why !== "") throw new OperatorRefused(`${email} ${why}`);
      await make(what, ownerId, operator.by);
      const link = { kind: "reset", ownerId } as const;
      const secret = what === "reset_password" ? await links.make(link) : null;
      await note(operator, account, CHANGES[what][0]);
      return secret === null ? null : { ...link, email, secret };
    },

    /**
     * Makes a link for an owner who cannot sign in yet, and the owner if the address is
     * new.
     */
    async invite(operator: Operator, email: string): Promise<OwnerLink> {
      const account = await find(await owners.ensure(email));
      if (account.passwordHash !== null || account.isDisabled) {
        throw new OperatorRefused(
          `${email} can sign in already or is disabled. For a forgotten password, reset it`,
        );
      }
      const link = { kind: "invite", ownerId: account.ownerId } as const;
      const secret = await links.make(link);
      await note(operator, account, "owner.invited", email);
      return { ...link, email, secret };
    },

    /** Sets the limits over all keys of an owner, from the next request on. */
    async setLimits(operator: Operator, ownerId: string, limits: Limits) {
      const account = await find(ownerId);
      const detail = describeLimits(await owners.limits(ownerId), limits);
      await owners.setLimits(ownerId, limits);
      await note(operator, account, "owner.limits_changed", detail);
    },
  };
}
