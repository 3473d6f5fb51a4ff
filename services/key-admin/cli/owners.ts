import { usageDay } from "@gateway/shared/keys/limiter_state";
import { PAGE_ROWS } from "../domain/keys/key_page.ts";
import { LIMIT_NAMES } from "../domain/keys/settings.ts";
import type { OwnerChange, OwnerLink } from "../domain/operators/operators.ts";
import { LINK_TIMES, linkPath } from "../domain/sign_in/links.ts";
import { type Answer, isoTime, limitsToJson } from "./answer.ts";
import {
  type Area,
  type Call,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  limitsFrom,
} from "./command_line.ts";

const OPERATOR = { ...COMMAND_LINE, ownerId: null };

export const OWNERS: Area = {
  title: "Manage the owners of API keys.",
  commands: [
    ["set-up", "print a link for the first owner (15 minutes)", setUp],
    ["invite <email>", "print a link for another owner (3 days)", invite],
    [
      "reset <email>",
      "print a link for a new password",
      change("reset_password"),
    ],
    ["list", "list owners, newest first", list, ["search", "rows", "after"]],
    [
      "limits <email>",
      "show or change the limits on all keys of an owner",
      limits,
      LIMIT_NAMES,
    ],
    [
      "sign-out <email>",
      "end all sessions of an owner",
      change("sign_out_everywhere"),
    ],
    ["disable <email>", "disable an owner and their keys", change("disable")],
    ["enable <email>", "enable an owner and their keys", change("enable")],
    [
      "remove-factor <email>",
      "remove an owner's lost second factor",
      change("remove_second_factor"),
    ],
    ["grant <email>", "make an owner an operator", change("make_operator")],
    [
      "revoke <email>",
      "remove the operator role",
      change("remove_role_of_operator"),
    ],
  ],
  notes:
    "A link works once. Give it only to that owner. A limit of 0 means none.",
};

/** Makes a link for the first owner, who cannot sign in yet. */
async function setUp(call: Call): Promise<Answer> {
  const account = await call.owners.setUpAccount();
  if (account !== null) {
    throw new CommandRefused(
      `The console is already set up: its first owner is ${account.email}. "owners invite" adds others, "owners reset" replaces a forgotten password`,
    );
  }
  const ownerId = await call.owners.first();
  const link = { kind: "set_up", ownerId } as const;
  return linkAnswer(call, { ...link, secret: await call.links.make(link) });
}

async function invite(call: Call): Promise<Answer> {
  return linkAnswer(call, await call.operators.invite(OPERATOR, call.word));
}

function linkAnswer(
  { publicUrl }: Call,
  { ownerId, kind, secret }: Omit<OwnerLink, "email">,
): Answer {
  return {
    json: {
      owner_id: ownerId,
      url: new URL(linkPath(secret), publicUrl).href,
    },
    note: `\nThe link works once, within ${LINK_TIMES[kind]}.`,
  };
}

async function list(call: Call): Promise<Answer> {
  const { now, options: { search = "", after = "", rows = PAGE_ROWS } } = call;
  const query = { search, after, rows, day: usageDay(now()) };
  const page = await call.people.list(query);
  const owners = page.rows.map(({ account, keys }) => ({
    id: account.ownerId,
    email: account.email,
    created_at: isoTime(account.createdAtMs),
    last_sign_in_at: isoTime(account.signedInAtMs),
    has_password: account.passwordHash !== null,
    two_step: account.totpSecret !== null,
    operator: account.isOperator,
    disabled: account.isDisabled,
    keys,
  }));
  return {
    json: { owners, next: page.next },
    table: { rows: owners, columns: Object.keys(owners[0] ?? {}) },
    ...page.next !== null && { note: `More: --after ${page.next}` },
  };
}

async function limits(call: Call): Promise<Answer> {
  const { owners, operators, options, word: email } = call;
  const ownerId = await findOwner(call, email);
  const before = await owners.limits(ownerId);
  const after = limitsFrom(options, before);
  if (LIMIT_NAMES.some((name) => options[name] !== undefined)) {
    await operators.setLimits(OPERATOR, ownerId, after);
  }
  return { json: { owner_id: ownerId, email, limits: limitsToJson(after) } };
}

/** A command that changes an owner, and confirms it or prints a link. */
function change(what: OwnerChange) {
  return async (call: Call): Promise<Answer> => {
    const { operators, word: email } = call;
    const ownerId = await findOwner(call, email);
    const link = await operators.change(OPERATOR, ownerId, what);
    if (link !== null) return linkAnswer(call, link);
    return { json: { owner_id: ownerId, email, done: what } };
  };
}
