import type { AuditLog } from "../domain/audit/audit_log.ts";
import type { Account, AccountStore } from "../domain/owners/account.ts";
import type { OwnerDirectory } from "../domain/owners/directory.ts";
import {
  type Link,
  linkPath,
  type LinkStore,
} from "../domain/sign_in/links.ts";
import { type Answer, COMMAND_LINE, CommandRefused } from "./answer.ts";

/** Commands that print a link: each works once and opens an account. */

/** What links are made with. */
export interface LinkCommandDeps {
  owners: OwnerDirectory;
  accounts: AccountStore;
  links: LinkStore;
  audit: AuditLog;
  /** Origin of the console, for links. */
  consoleUrl: string;
}

/** `owners set-up`: for the first owner, as long as he cannot sign in. */
export async function setUp(deps: LinkCommandDeps): Promise<Answer> {
  const ownerId = await deps.owners.first();
  const account = await deps.accounts.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `The console is set up: its first owner is ${account.email}. "owners invite" makes others, "owners reset" replaces a forgotten password`,
    );
  }
  return await linkAnswer(deps, { kind: "set_up", ownerId }, "15 minutes");
}

/** `owners invite`: for an owner who cannot sign in yet, made if need be. */
export async function invite(
  deps: LinkCommandDeps,
  email: string,
): Promise<Answer> {
  const ownerId = await deps.owners.ensure(email);
  const account = await deps.accounts.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `${email} can sign in already; "owners reset" replaces a forgotten password`,
    );
  }
  await deps.audit.add(ownerId, {
    action: "owner.invited",
    ...COMMAND_LINE,
    detail: email,
  });
  return await linkAnswer(deps, { kind: "invite", ownerId, email }, "3 days");
}

/** `owners reset`: for an owner who forgot his password. */
export async function reset(
  deps: LinkCommandDeps,
  { ownerId, email }: Account,
): Promise<Answer> {
  await deps.audit.add(ownerId, {
    action: "account.reset_link_made",
    ...COMMAND_LINE,
    detail: "",
  });
  return await linkAnswer(deps, { kind: "reset", ownerId, email }, "1 hour");
}

async function linkAnswer(
  { links, consoleUrl }: LinkCommandDeps,
  link: Link,
  time: string,
): Promise<Answer> {
  const url = new URL(linkPath(await links.make(link)), consoleUrl).href;
  return {
    json: { owner_id: link.ownerId, url },
    text: `${url}\n\nWorks once, within ${time}.`,
  };
}
