import type { Limits } from "@gateway/shared/keys/record";
import type { Account } from "../domain/owners/account.ts";
import { parseEmail } from "../domain/owners/email.ts";
import type { OwnerLimits } from "../domain/owners/limits.ts";
import type { SessionStore } from "../domain/sign_in/sessions.ts";
import { type Answer, COMMAND_LINE, noOwner } from "./answer.ts";
import { allowOptions, type CommandLine, UsageError } from "./arguments.ts";
import { limitsText, limitsToJson } from "./key_text.ts";
import {
  invite,
  type LinkCommandDeps,
  reset,
  setUp,
} from "./owner_link_commands.ts";
import { checkLimits, LIMIT_OPTIONS, limitsFrom } from "./setting_options.ts";

/** What `owners …` works with. */
export interface OwnerCommandDeps extends LinkCommandDeps {
  sessions: SessionStore;
  limits: OwnerLimits;
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

/** Runs `owners …`. Throws {@link UsageError} and `CommandRefused`. */
export async function runOwnersCommand(
  deps: OwnerCommandDeps,
  line: CommandLine,
): Promise<Answer> {
  const [command = "", email, ...more] = line.words;
  if (more.length > 0) throw new UsageError(`What is "${more[0]}" for?`);
  allowOptions(line, command === "limits" ? LIMIT_OPTIONS : []);
  switch (command) {
    case "set-up":
      return await setUp(deps);
    case "list":
      return await list(deps);
    case "invite":
      return await invite(deps, parse(email));
    case "reset":
      return await reset(deps, await find(deps, email));
    case "limits":
      return await changeLimits(deps, await find(deps, email), line);
    case "sign-out":
      return await signOut(deps, await find(deps, email));
    case "":
      throw new UsageError("Which command?");
    default:
      throw new UsageError(`There is no command "${command}"`);
  }
}

async function list({ owners, accounts }: OwnerCommandDeps): Promise<Answer> {
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
    text: rows.length === 0
      ? "No owners yet."
      : rows.map(({ ownerId, email, passwordHash }) =>
        `${ownerId}  ${email || "(first owner, before set-up)"}${
          passwordHash === null ? "  no password yet" : ""
        }`
      ).join("\n"),
  };
}

async function changeLimits(
  { limits, audit }: OwnerCommandDeps,
  { ownerId, email }: Account,
  line: CommandLine,
): Promise<Answer> {
  const before = await limits.read(ownerId);
  if (line.given.every((name) => !LIMIT_OPTIONS.includes(name))) {
    return limitsAnswer(ownerId, email, before);
  }
  const after = checkLimits({ ...before, ...limitsFrom(line) });
  await limits.write(ownerId, after);
  await audit.add(ownerId, {
    action: "owner.limits_changed",
    ...COMMAND_LINE,
    detail: `${limitsText(before)} → ${limitsText(after)}`,
  });
  return limitsAnswer(ownerId, email, after);
}

function limitsAnswer(ownerId: string, email: string, limits: Limits): Answer {
  return {
    json: { owner_id: ownerId, limits: limitsToJson(limits) },
    text: `Limits over all keys of ${email}: ${limitsText(limits)}`,
  };
}

async function signOut(
  { sessions, audit }: OwnerCommandDeps,
  { ownerId, email }: Account,
): Promise<Answer> {
  const ended = await sessions.endOthers(ownerId, null);
  await audit.add(ownerId, {
    action: "session.revoked",
    ...COMMAND_LINE,
    detail: "all",
  });
  return {
    json: { owner_id: ownerId, ended },
    text: `${email} is signed out everywhere.`,
  };
}

async function find(
  { owners, accounts }: OwnerCommandDeps,
  text: string | undefined,
): Promise<Account> {
  const email = parse(text);
  const ownerId = await owners.find(email);
  const account = ownerId === null ? null : await accounts.read(ownerId);
  if (account === null) throw noOwner(email);
  return account;
}

function parse(text: string | undefined): string {
  const email = text === undefined ? null : parseEmail(text);
  if (email === null) throw new UsageError("Give the owner's e-mail address");
  return email;
}
