import type { AuditAction } from "../domain/audit/audit_log.ts";
import { describeLimits } from "../domain/keys/key_record.ts";
import { type Link, linkPath } from "../domain/sign_in/links.ts";
import { type Answer, limitsToJson } from "./answer.ts";
import {
  type Area,
  type Call,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  LIMIT_OPTIONS,
  limitsFrom,
} from "./command_line.ts";

/** The most owners that `list` shows. */
const LISTED_MAX = 1_000;

/** `owners …` */
export const OWNERS: Area = {
  title: "Manage the owners of API keys.",
  commands: [
    ["set-up", "print a link for the first owner (15 minutes)", setUp],
    ["invite <email>", "print a link for another owner (3 days)", invite],
    ["reset <email>", "print a link to choose a new password (1 hour)", reset],
    ["list", "list all owners", list],
    [
      "limits <email>",
      "show or change the limits on all keys of an owner",
      limits,
      LIMIT_OPTIONS,
    ],
    ["sign-out <email>", "end all sessions of an owner", signOut],
  ],
  notes:
    "A link works once. Give it only to the owner it is for. A limit of 0 means none.",
};

/** Makes a link for the first owner, who cannot sign in yet. */
async function setUp(call: Call): Promise<Answer> {
  const account = await call.owners.setUpAccount();
  if (account !== null) {
    throw new CommandRefused(
      `The console is set up: its first owner is ${account.email}. "owners invite" adds others, "owners reset" replaces a forgotten password`,
    );
  }
  const ownerId = await call.owners.first();
  return await linkAnswer(call, { kind: "set_up", ownerId });
}

/** Makes a link for an owner who cannot sign in yet, and the owner if the address is new. */
async function invite(call: Call): Promise<Answer> {
  const { owners, word: email } = call;
  const ownerId = await owners.ensure(email);
  const account = await owners.read(ownerId);
  if (account?.passwordHash) {
    throw new CommandRefused(
      `${email} can sign in already; "owners reset" replaces a forgotten password`,
    );
  }
  await log(call, ownerId, "owner.invited", email);
  return await linkAnswer(call, { kind: "invite", ownerId });
}

async function reset(call: Call): Promise<Answer> {
  const { word: email } = call;
  const ownerId = await findOwner(call, email);
  await log(call, ownerId, "account.reset_link_made", "");
  return await linkAnswer(call, { kind: "reset", ownerId });
}

const LINK_TIMES = { set_up: "15 minutes", invite: "3 days", reset: "1 hour" };

async function linkAnswer(
  { links, publicUrl }: Call,
  link: Link,
): Promise<Answer> {
  const url = new URL(linkPath(await links.make(link)), publicUrl).href;
  return {
    json: { owner_id: link.ownerId, url },
    note: `\nThe link works once, within ${LINK_TIMES[link.kind]}.`,
  };
}

async function list({ owners }: Call): Promise<Answer> {
  const rows = (await owners.list(LISTED_MAX)).map((account) => ({
    id: account.ownerId,
    email: account.email,
    created_at: new Date(account.createdAtMs).toISOString(),
    has_password: account.passwordHash !== null,
    two_step: account.totpSecret !== null,
  }));
  const columns = ["id", "email", "created_at", "has_password", "two_step"];
  return { json: { owners: rows }, table: { rows, columns } };
}

async function limits(call: Call): Promise<Answer> {
  const { owners, options, word: email } = call;
  const ownerId = await findOwner(call, email);
  const before = await owners.limits(ownerId);
  const after = limitsFrom(options, before);
  if (LIMIT_OPTIONS.some((name) => options[name] !== undefined)) {
    await owners.setLimits(ownerId, after);
    const detail = describeLimits(before, after);
    await log(call, ownerId, "owner.limits_changed", detail);
  }
  return { json: { owner_id: ownerId, email, limits: limitsToJson(after) } };
}

async function signOut(call: Call): Promise<Answer> {
  const { sessions, word: email } = call;
  const ownerId = await findOwner(call, email);
  const ended = await sessions.endOthers(ownerId, null);
  await log(call, ownerId, "session.revoked", "all");
  const note = `${email} is signed out everywhere.`;
  return { json: { owner_id: ownerId, ended }, note };
}

const log = (
  { audit }: Call,
  ownerId: string,
  action: AuditAction,
  detail: string,
): Promise<void> => audit.add(ownerId, { action, ...COMMAND_LINE, detail });
