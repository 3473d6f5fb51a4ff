/** `owners …`: what operators do with owners in the console, as commands. */
import { LINK, NEW_OWNER, OWNER, OWNERS as PAGE } from "../api/answers.ts";
import { LIMIT_NAMES } from "../domain/keys/settings.ts";
import type { OwnerChange } from "../domain/operators/operators.ts";
import { LINK_TIMES, linkPath } from "../domain/sign_in/links.ts";
import { findOwner, limitsOf, localOf, moreRows, pageOf } from "./accounts.ts";
import {
  type Area,
  type Command,
  CommandRefused,
  type Invocation,
  type Output,
} from "./command_line.ts";

/** Makes a link for the first owner, who cannot sign in yet. */
async function setUp(invocation: Invocation): Promise<Output> {
  const { owners, links, publicUrl } = localOf(invocation, "owners set-up");
  const account = await owners.setUpAccount();
  if (account !== null) {
    throw new CommandRefused(
      `The console is already set up: its first owner is ${account.email}. "owners invite" adds others, "owners reset" replaces a forgotten password`,
    );
  }
  const ownerId = await owners.first();
  const secret = await links.make({ kind: "set_up", ownerId });
  const url = `${publicUrl.origin}${linkPath(secret)}`;
  return linkAnswer({ owner_id: ownerId, url }, LINK_TIMES.set_up);
}

async function invite({ api, word: email }: Invocation): Promise<Output> {
  const body = { email, invite: true };
  const { id, invitation_url: url } = await api.ask(
    NEW_OWNER,
    "POST /owners",
    { body },
  );
  return linkAnswer({ owner_id: id, url }, LINK_TIMES.invite);
}

const linkAnswer = (json: Output["json"], time: string): Output => ({
  json,
  note: `\nThe link works once, within ${time}.`,
});

async function list(invocation: Invocation): Promise<Output> {
  const query = pageOf(invocation);
  const page = await invocation.api.ask(PAGE, "GET /owners", { query });
  const owners = page.owners.map((owner) => ({
    id: owner.id,
    email: owner.email,
    created_at: owner.created_at,
    last_sign_in_at: owner.last_sign_in_at,
    has_password: owner.has_password,
    two_step: owner.two_step,
    operator: owner.operator,
    disabled: owner.state === "disabled",
    keys: owner.keys,
    requests_today: owner.requests_today,
    cost_today: owner.cost_today,
  }));
  const { next, partial } = page;
  const note = moreRows(page);
  return {
    json: { owners, next, ...partial && { partial } },
    table: { rows: owners, columns: Object.keys(owners[0] ?? {}) },
    ...note !== undefined && { note },
  };
}

async function limits(invocation: Invocation): Promise<Output> {
  const { api, options, word: email } = invocation;
  const before = await findOwner(invocation, email);
  const body = { limits: limitsOf(options) };
  const { limits } = LIMIT_NAMES.every((name) => options[name] === undefined)
    ? before
    : await api.ask(OWNER, `PATCH /owners/${before.id}`, { body });
  return { json: { owner_id: before.id, email, limits } };
}

/** Commands that change an owner, and confirm it or print a link. */
const CHANGES: readonly Command[] = [
  {
    usage: "reset <email>",
    help: "print a link for a new password",
    run: reset,
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

/** The requests that change an owner, with what they say. */
const REQUESTS = {
  sign_out_everywhere: { method: "DELETE", below: "/sessions" },
  remove_second_factor: { method: "DELETE", below: "/second_factor" },
  make_operator: { method: "PUT", below: "/operator" },
  remove_role_of_operator: { method: "DELETE", below: "/operator" },
  disable: { method: "PATCH", below: "", state: "disabled" },
  enable: { method: "PATCH", below: "", state: "enabled" },
} as const;

function change(what: Exclude<OwnerChange, "reset_password">) {
  return async (invocation: Invocation): Promise<Output> => {
    const { api, word: email, options } = invocation;
    const { id } = await findOwner(invocation, email);
    const { method, below, ...stated } = REQUESTS[what];
    const stop_running = options.stopRunning;
    await api.ask(OWNER, `${method} /owners/${id}${below}`, {
      ...method !== "DELETE" && { body: { ...stated, stop_running } },
    });
    return { json: { owner_id: id, email, done: what } };
  };
}

async function reset(invocation: Invocation): Promise<Output> {
  const { id } = await findOwner(invocation, invocation.word);
  const line = `POST /owners/${id}/reset_password` as const;
  const { owner_id, url, valid_for } = await invocation.api.ask(LINK, line);
  return linkAnswer({ owner_id, url }, valid_for);
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
      help: "list owners, newest first or in another order",
      run: list,
      options: ["search", "sort", "rows", "after"],
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
