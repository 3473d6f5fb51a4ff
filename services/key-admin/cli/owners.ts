import type { AuditAction } from "../domain/audit/audit_log.ts";
import { describeLimits } from "../domain/keys/key_record.ts";
import type { Account } from "../domain/owners/account.ts";
import { type Link, linkPath } from "../domain/sign_in/links.ts";
import { type Answer, limitsToJson } from "./answer.ts";
import {
  type Area,
  type Call,
  type Command,
  COMMAND_LINE,
  type CommandDeps,
  CommandRefused,
  LIMIT_OPTIONS,
  limitsFrom,
  noOwner,
  type OptionName,
} from "./command_line.ts";

/** The most owners that `list` shows. */
const LISTED_MAX = 1_000;

/** A command on an existing owner. */
const onOwner = (
  help: string,
  options: readonly OptionName[],
  run: (call: Call, account: Account) => Promise<Answer>,
): Command => ({
  help,
  takes: "EMAIL",
  options,
  run: async (call) => {
    const { deps: { owners, accounts }, word: email } = call;
    const ownerId = await owners.find(email);
    const account = ownerId === null ? null : await accounts.read(ownerId);
    if (account === null) throw noOwner(email);
    return await run(call, account);
  },
});

/** `owners …` */
export const OWNERS: Area = {
  title: "Manage the owners of API keys.",
  commands: {
    "set-up": {
      help: "print a link for the first owner (15 minutes)",
      options: [],
      run: setUp,
    },
    invite: {
      help: "print a link for another owner (3 days)",
      takes: "EMAIL",
      options: [],
      run: invite,
    },
    reset: onOwner(
      "print a link to choose a new password (1 hour)",
      [],
      async ({ deps }, { ownerId, email }) => {
        await log(deps, ownerId, "account.reset_link_made", "");
        const link = { kind: "reset", ownerId, email } as const;
        return await linkAnswer(deps, link, "1 hour");
      },
    ),
    list: { help: "list all owners", options: [], run: list },
    limits: onOwner(
      "show or change the limits on all keys of an owner",
      LIMIT_OPTIONS,
      limits,
    ),
    "sign-out": onOwner(
      "end all sessions of an owner",
      [],
      async ({ deps }, { ownerId, email }) => {
        const ended = await deps.sessions.endOthers(ownerId, null);
        await log(deps, ownerId, "session.revoked", "all");
        const note = `${email} is signed out everywhere.`;
        return { json: { owner_id: ownerId, ended }, note };
      },
    ),
  },
  notes: "A link works once. Give it only to the owner it is for.",
};

/** Makes a link for the first owner, who cannot sign in yet. */
async function setUp({ deps }: Call): Promise<Answer> {
  const ownerId = await deps.owners.first();
  const account = await deps.accounts.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `The console is set up: its first owner is ${account.email}. "owners invite" adds others, "owners reset" replaces a forgotten password`,
    );
  }
  return await linkAnswer(deps, { kind: "set_up", ownerId }, "15 minutes");
}

/** Makes a link for an owner who cannot sign in yet, and the owner if the address is new. */
async function invite({ deps, word: email }: Call): Promise<Answer> {
  const ownerId = await deps.owners.ensure(email);
  const account = await deps.accounts.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `${email} can sign in already; "owners reset" replaces a forgotten password`,
    );
  }
  await log(deps, ownerId, "owner.invited", email);
  return await linkAnswer(deps, { kind: "invite", ownerId, email }, "3 days");
}

async function linkAnswer(
  { links, consoleUrl }: CommandDeps,
  link: Link,
  time: string,
): Promise<Answer> {
  const url = new URL(linkPath(await links.make(link)), consoleUrl).href;
  return {
    json: { owner_id: link.ownerId, url },
    note: `\nThe link works once, within ${time}.`,
  };
}

async function list({ deps: { owners, accounts } }: Call): Promise<Answer> {
  const ids = await owners.list(LISTED_MAX);
  const found = await Promise.all(ids.map((id) => accounts.read(id)));
  const rows = found.filter((account) => account !== null).map((account) => ({
    id: account.ownerId,
    email: account.email,
    created_at: new Date(account.createdAtMs).toISOString(),
    has_password: account.passwordHash !== null,
    two_step: account.totpSecret !== null,
  }));
  const columns = ["id", "email", "created_at", "has_password", "two_step"];
  return { json: { owners: rows }, table: { rows, columns } };
}

async function limits(
  { deps, options }: Call,
  { ownerId, email }: Account,
): Promise<Answer> {
  const before = await deps.owners.limits(ownerId);
  const after = limitsFrom(options, before);
  if (LIMIT_OPTIONS.some((name) => options[name] !== undefined)) {
    await deps.owners.setLimits(ownerId, after);
    const detail = describeLimits(before, after);
    await log(deps, ownerId, "owner.limits_changed", detail);
  }
  return { json: { owner_id: ownerId, email, limits: limitsToJson(after) } };
}

async function log(
  { audit }: CommandDeps,
  ownerId: string,
  action: AuditAction,
  detail: string,
): Promise<void> {
  await audit.add(ownerId, { action, ...COMMAND_LINE, detail });
}
