import type { AuditAction, AuditLog } from "../domain/audit/audit_log.ts";
import { limitsSchema } from "../domain/keys/settings.ts";
import type { Account, AccountStore } from "../domain/owners/account.ts";
import { type OwnerDirectory, parseEmail } from "../domain/owners/directory.ts";
import {
  type Link,
  linkPath,
  type LinkStore,
} from "../domain/sign_in/links.ts";
import type { SessionStore } from "../domain/sign_in/sessions.ts";
import {
  type Answer,
  type Call,
  check,
  type Command,
  COMMAND_LINE,
  type CommandLine,
  CommandRefused,
  LIMIT_OPTIONS,
  limitsFrom,
  noOwner,
  type OptionName,
  runCommand,
  UsageError,
} from "./command_line.ts";
import { limitsText, limitsToJson } from "./key_text.ts";

/** What `owners …` works with. */
export interface OwnerCommandDeps {
  owners: OwnerDirectory;
  accounts: AccountStore;
  sessions: SessionStore;
  links: LinkStore;
  audit: AuditLog;
  /** Origin of the console, for links. */
  consoleUrl: string;
}

/** `owners --help` */
export const OWNERS_HELP = `Manage the owners of API keys.

  owners set-up             a new link to make the first owner (15 minutes)
  owners invite EMAIL       a link to make another owner (3 days)
  owners reset EMAIL        a link to choose a new password (1 hour)
  owners list
  owners limits EMAIL [--rpm N] [--tpm N] [--tokens-per-day N] [--concurrency N]
                            limits over all keys of an owner, 0 for none
  owners sign-out EMAIL     ends all sessions of an owner
--json                      prints one object

A link works once. Give it to nobody but the owner it is for.`;

/** Owners that `list` shows. */
const LISTED_MAX = 1_000;
const WHICH_OWNER = "Give the owner's e-mail address";

type OwnerCall = Call<OwnerCommandDeps>;

/** A command on an existing owner. */
function onOwner(
  options: readonly OptionName[],
  run: (call: OwnerCall, account: Account) => Promise<Answer>,
): Command<OwnerCommandDeps> {
  return {
    options,
    missing: WHICH_OWNER,
    run: async (call) => {
      const { deps: { owners, accounts } } = call;
      const email = emailOf(call);
      const ownerId = await owners.find(email);
      const account = ownerId === null ? null : await accounts.read(ownerId);
      if (account === null) throw noOwner(email);
      return await run(call, account);
    },
  };
}

const COMMANDS: Readonly<Record<string, Command<OwnerCommandDeps>>> = {
  "set-up": { options: [], run: setUp },
  invite: { options: [], missing: WHICH_OWNER, run: invite },
  reset: onOwner([], async ({ deps }, { ownerId, email }) => {
    await note(deps, ownerId, "account.reset_link_made", "");
    return await linkAnswer(deps, { kind: "reset", ownerId, email }, "1 hour");
  }),
  list: { options: [], run: list },
  limits: onOwner(LIMIT_OPTIONS, limits),
  "sign-out": onOwner([], async ({ deps }, { ownerId, email }) => {
    const ended = await deps.sessions.endOthers(ownerId, null);
    await note(deps, ownerId, "session.revoked", "all");
    return {
      json: { owner_id: ownerId, ended },
      text: `${email} is signed out everywhere.`,
    };
  }),
};

/** Runs `owners …`. */
export const runOwnersCommand = (
  deps: OwnerCommandDeps,
  line: CommandLine,
): Promise<Answer> => runCommand(COMMANDS, deps, line);

/** For the first owner, until they can sign in. */
async function setUp({ deps }: OwnerCall): Promise<Answer> {
  const ownerId = await deps.owners.first();
  const account = await deps.accounts.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `The console is set up: its first owner is ${account.email}. "owners invite" adds others, "owners reset" replaces a forgotten password`,
    );
  }
  return await linkAnswer(deps, { kind: "set_up", ownerId }, "15 minutes");
}

/** For an owner who cannot sign in yet, added if need be. */
async function invite(call: OwnerCall): Promise<Answer> {
  const { deps } = call;
  const email = emailOf(call);
  const ownerId = await deps.owners.ensure(email);
  const account = await deps.accounts.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `${email} can sign in already; "owners reset" replaces a forgotten password`,
    );
  }
  await note(deps, ownerId, "owner.invited", email);
  return await linkAnswer(deps, { kind: "invite", ownerId, email }, "3 days");
}

async function linkAnswer(
  { links, consoleUrl }: OwnerCommandDeps,
  link: Link,
  time: string,
): Promise<Answer> {
  const url = new URL(linkPath(await links.make(link)), consoleUrl).href;
  return {
    json: { owner_id: link.ownerId, url },
    text: `${url}\n\nWorks once, within ${time}.`,
  };
}

async function list({ deps }: OwnerCall): Promise<Answer> {
  const { owners, accounts } = deps;
  const ids = await owners.list(0, LISTED_MAX);
  const found = await Promise.all(ids.map((id) => accounts.read(id)));
  const rows = found.filter((account) => account !== null);
  return {
    json: {
      owners: rows.map((account) => ({
        id: account.ownerId,
        email: account.email,
        created_at: new Date(account.createdAtMs).toISOString(),
        has_password: account.passwordHash !== null,
        two_step: account.totpSecret !== null,
      })),
    },
    text: rows.map(({ ownerId, email, passwordHash }) => {
      const name = email || "(first owner, before set-up)";
      return `${ownerId}  ${name}${passwordHash ? "" : "  no password yet"}`;
    }).join("\n") || "No owners yet.",
  };
}

async function limits(
  { deps, options }: OwnerCall,
  { ownerId, email }: Account,
): Promise<Answer> {
  const before = await deps.owners.limits(ownerId);
  const after = check(limitsSchema, limitsFrom(options, before));
  if (LIMIT_OPTIONS.some((name) => options[name] !== undefined)) {
    await deps.owners.setLimits(ownerId, after);
    const detail = `${limitsText(before)} → ${limitsText(after)}`;
    await note(deps, ownerId, "owner.limits_changed", detail);
  }
  return {
    json: { owner_id: ownerId, limits: limitsToJson(after) },
    text: `Limits over all keys of ${email}: ${limitsText(after)}`,
  };
}

async function note(
  { audit }: OwnerCommandDeps,
  ownerId: string,
  action: AuditAction,
  detail: string,
): Promise<void> {
  await audit.add(ownerId, { action, ...COMMAND_LINE, detail });
}

function emailOf({ word }: OwnerCall): string {
  const email = parseEmail(word);
  if (email === null) throw new UsageError(WHICH_OWNER);
  return email;
}
