/** `owners …`: what operators do with owners in the console, as commands. */
import { isoTime } from "../domain/keys/key_json.ts";
import { LIMIT_NAMES, namedLimits } from "../domain/keys/settings.ts";
import type { OwnerChange, OwnerLink } from "../domain/operators/operators.ts";
import { runningKeys } from "../domain/operators/running_keys.ts";
import { LINK_TIMES, linkPath } from "../domain/sign_in/links.ts";
import {
  type Area,
  type Command,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  type Invocation,
  limitsFrom,
  type Output,
  queryOf,
} from "./command_line.ts";

const OPERATOR = { ...COMMAND_LINE, ownerId: null };

/** Makes a link for the first owner, who cannot sign in yet. */
async function setUp(invocation: Invocation): Promise<Output> {
  const account = await invocation.owners.setUpAccount();
  if (account !== null) {
    throw new CommandRefused(
      `The console is already set up: its first owner is ${account.email}. "owners invite" adds others, "owners reset" replaces a forgotten password`,
    );
  }
  const ownerId = await invocation.owners.first();
  const link = { kind: "set_up", ownerId } as const;
  return linkAnswer(invocation, {
    ...link,
    secret: await invocation.links.make(link),
  });
}

const invite = async (invocation: Invocation) =>
  linkAnswer(
    invocation,
    await invocation.operators.invite(OPERATOR, invocation.word),
  );

function linkAnswer(
  { publicUrl }: Invocation,
  { ownerId, kind, secret }: Omit<OwnerLink, "email">,
): Output {
  return {
    json: { owner_id: ownerId, url: `${publicUrl.origin}${linkPath(secret)}` },
    note: `\nThe link works once, within ${LINK_TIMES[kind]}.`,
  };
}

async function list(invocation: Invocation): Promise<Output> {
  const { rows, next } = await invocation.people.list(queryOf(invocation));
  const owners = rows.map(({ account, keys }) => ({
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
    json: { owners, next },
    table: { rows: owners, columns: Object.keys(owners[0] ?? {}) },
    ...next !== null && { note: `More: --after ${next}` },
  };
}

async function limits(invocation: Invocation): Promise<Output> {
  const { owners, operators, options, word: email } = invocation;
  const ownerId = await findOwner(invocation, email);
  const before = await owners.limits(ownerId);
  const after = limitsFrom(options, before);
  if (LIMIT_NAMES.some((name) => options[name] !== undefined)) {
    await operators.setLimits(OPERATOR, ownerId, after);
  }
  return {
    json: { owner_id: ownerId, email, limits: namedLimits(after, "_") },
  };
}

/** Commands that change an owner, and confirm it or print a link. */
const CHANGES: readonly Command[] = [
  {
    usage: "reset <email>",
    help: "print a link for a new password",
    run: change("reset_password"),
  },
  {
    usage: "sign-out <email>",
    help: "end all sessions of an owner",
    run: change("sign_out_everywhere"),
  },
  {
    usage: "disable <email>",
    help: "disable an owner and their keys",
    run: change("disable"),
    options: ["stopRunning"],
  },
  {
    usage: "enable <email>",
    help: "enable an owner and their keys",
    run: change("enable"),
  },
  {
    usage: "remove-factor <email>",
    help: "remove a lost second factor",
    run: change("remove_second_factor"),
  },
  {
    usage: "grant <email>",
    help: "make an owner an operator",
    run: change("make_operator"),
  },
  {
    usage: "revoke <email>",
    help: "remove the operator role",
    run: change("remove_role_of_operator"),
  },
];

function change(what: OwnerChange) {
  return async (invocation: Invocation): Promise<Output> => {
    const { operators, word: email } = invocation;
    const ownerId = await findOwner(invocation, email);
    const link = await operators.change(OPERATOR, ownerId, what);
    if (link !== null) return linkAnswer(invocation, link);
    if (invocation.options.stopRunning) await stopRunning(invocation, ownerId);
    return { json: { owner_id: ownerId, email, done: what } };
  };
}

/** Stops the running requests of an owner who was disabled. */
async function stopRunning(
  { redis, sendStop, word: email }: Invocation,
  ownerId: string,
): Promise<void> {
  const keys = await runningKeys(redis, ownerId);
  await sendStop(keys).catch((cause) => {
    throw new CommandRefused(
      `${email} is disabled, but NATS or Redis does not answer: running requests end within 11 seconds instead of one`,
      { cause },
    );
  });
}

/** The commands on owners. */
export const OWNERS: Area = {
  title: "Manage the owners of API keys.",
  commands: [
    {
      usage: "set-up",
      help: "print a link for the first owner (15 minutes)",
      run: setUp,
    },
    {
      usage: "invite <email>",
      help: "print a link for another owner (3 days)",
      run: invite,
    },
    {
      usage: "list",
      help: "list owners, newest first",
      run: list,
      options: ["search", "rows", "after"],
    },
    {
      usage: "limits <email>",
      help: "show or change limits",
      run: limits,
      options: LIMIT_NAMES,
    },
    ...CHANGES,
  ],
  notes:
    "A link works once. Give it only to that owner. An owner's limits apply to all their keys together; 0 means no limit.",
};
