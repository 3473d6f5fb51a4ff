/** Routes of the admin API for owners of keys: their limits, and their state. */
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import { z } from "zod";
import { isoTime } from "../domain/keys/key_json.ts";
import { namedLimits } from "../domain/keys/settings.ts";
import type { OwnerChange, OwnerLink } from "../domain/operators/operators.ts";
import { OWNER_SORTS } from "../domain/operators/people_rows.ts";
import { parseEmail } from "../domain/owners/email.ts";
import type { Account } from "../domain/owners/owner_store.ts";
import { LINK_TIMES, linkPath } from "../domain/sign_in/links.ts";
import { LINK, NEW_OWNER, OWNER, OWNERS } from "./answers.ts";
import { NO_BODY, NOTHING, PAGE, someLimits, sortBy } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
  operatorOf,
  versionOf,
} from "./route.ts";
import {
  checkStoppable,
  pageJson,
  stopAccount,
  usedToday,
} from "./shared_steps.ts";

const NO_OWNER = "There is no owner of this id";

/** An owner as requests are answered. */
async function toJson({ owners }: AdminDeps, account: Account) {
  const { limits, version, state } = await owners.standing(account.ownerId);
  return {
    id: account.ownerId,
    email: account.email,
    state,
    operator: account.isOperator,
    has_password: account.passwordHash !== null,
    two_step: account.totpSecret !== null,
    created_at: isoTime(account.createdAtMs),
    last_sign_in_at: isoTime(account.signedInAtMs),
    limits: namedLimits(limits, "_"),
    version,
  };
}

async function read(deps: AdminDeps, id: string): Promise<Account> {
  const account = await deps.owners.read(id);
  if (account !== null) return account;
  throw new AdminRefused("not_found", NO_OWNER);
}

/** The owner of an id, as it is now. */
async function answerOf(deps: AdminDeps, id: string): Promise<AdminAnswer> {
  const json = await toJson(deps, await read(deps, id));
  return { json, etag: String(json.version) };
}

/** Shows the owner that the path names; `first` is the owner of the very first keys. */
const show = async ({ deps, id }: AdminCall<unknown, unknown>) =>
  await answerOf(deps, id === "first" ? await deps.owners.first() : id);

async function list(
  { deps, query: { email, ...page } }: AdminCall<
    z.output<typeof LIST>,
    unknown
  >,
): Promise<AdminAnswer> {
  const { people, owners, now } = deps;
  const day = usageDay(now());
  const named = async (text: string) => {
    const row = await people.find(await owners.find(text) ?? "", day);
    return { rows: row === null ? [] : [row], next: null };
  };
  const found = email === undefined
    ? await people.list({ ...page, day })
    : await named(email);
  const rows = await Promise.all(found.rows.map(async (row) => ({
    ...await toJson(deps, row.account),
    keys: row.keys,
    ...usedToday(row.totals),
  })));
  return { json: pageJson("owners", { ...found, rows }, (row) => row) };
}

const email = z.string().max(300).transform(parseEmail)
  .pipe(z.string("Not an e-mail address, such as ada@example.org"));
const LIST = z.strictObject({
  ...PAGE,
  email: email.optional().meta({ description: "The owner of this address" }),
  sort: sortBy(OWNER_SORTS),
});

/** Creates the owner of an address, or finds one who exists. */
async function add(
  call: AdminCall<unknown, z.output<typeof NEW>>,
): Promise<AdminAnswer> {
  const { deps, body } = call;
  const isNew = await deps.owners.find(body.email) === null;
  const ownerId = await deps.owners.ensure(body.email);
  const link = body.invite
    ? await deps.operators.invite(operatorOf(call), body.email)
    : null;
  const { json, etag = "" } = await answerOf(deps, ownerId);
  const url = link && urlOf(deps, link);
  return {
    status: isNew ? 201 : 200,
    json: { ...json, ...url !== null && { invitation_url: url } },
    etag,
  };
}

const NEW = z.strictObject({
  email,
  invite: z.boolean().default(false).meta({
    description: "Make a link with which they can sign in",
  }),
});

const urlOf = (
  { publicUrl }: AdminDeps,
  { secret }: Pick<OwnerLink, "secret">,
): string => new URL(linkPath(secret), publicUrl).href;

/** Makes limits and state what is wanted; those that are not stated as in `base`. */
async function change(
  call: AdminCall<unknown, z.output<typeof CHANGES>>,
  base?: Limits,
): Promise<AdminAnswer> {
  const { deps, id, body: { limits, state, stop_running: isStopped } } = call;
  await read(deps, id);
  if (isStopped) await checkStoppable(deps, id, state);
  await deps.operators.update(operatorOf(call), id, {
    limits: base ? { ...base, ...limits } : limits,
    state,
    version: versionOf(call),
  });
  if (isStopped) await stopAccount(deps, id);
  return await answerOf(deps, id);
}

const WHOLE = z.strictObject({
  limits: someLimits,
  state: z.enum(["enabled", "disabled"]).optional(),
  stop_running: z.boolean().default(false).meta({
    description: "End the running requests of an owner who is disabled",
  }),
});
const CHANGES = WHOLE.extend({ limits: someLimits.optional() });

/** A change of the role, which is the same if it is made twice. */
const changeRole = (
  change: "make_operator" | "remove_role_of_operator",
) =>
async (
  call: AdminCall<unknown, unknown>,
): Promise<AdminAnswer> => {
  const { deps, id } = call;
  const account = await read(deps, id);
  if (account.isOperator !== (change === "make_operator")) {
    await deps.operators.change(operatorOf(call), id, change);
  }
  return await answerOf(deps, id);
};

/** A change that is answered with what the owner is after it. */
const changing = (what: OwnerChange) =>
async (
  call: AdminCall<unknown, unknown>,
): Promise<AdminAnswer> => {
  await read(call.deps, call.id);
  await call.deps.operators.change(operatorOf(call), call.id, what);
  return await answerOf(call.deps, call.id);
};

const linkAnswer = (deps: AdminDeps, link: OwnerLink): AdminAnswer => ({
  status: 201,
  json: {
    owner_id: link.ownerId,
    url: urlOf(deps, link),
    valid_for: LINK_TIMES[link.kind],
  },
});

async function invite(call: AdminCall<unknown, unknown>) {
  const { email } = await read(call.deps, call.id);
  const link = await call.deps.operators.invite(operatorOf(call), email);
  return linkAnswer(call.deps, link);
}

async function resetPassword(call: AdminCall<unknown, unknown>) {
  const { deps, id } = call;
  await read(deps, id);
  const by = operatorOf(call);
  const link = await deps.operators.change(by, id, "reset_password");
  if (link === null) throw new Error("A reset of a password makes a link");
  return linkAnswer(deps, link);
}

/** What all routes of one owner have in common. */
const ONE = { scope: "accounts", query: NOTHING } as const;
const VERSIONED = { ...ONE, headers: ["if-match"], answers: OWNER } as const;

/** Routes of owners. */
export const OWNER_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/owners",
    scope: "accounts",
    alsoWith: ["keys", "usage"],
    summary: "List owners, newest first or in another order",
    query: LIST,
    body: NO_BODY,
    answers: OWNERS,
    run: list,
  }),
  adminRoute({
    ...ONE,
    method: "POST",
    path: "/owners",
    summary:
      "Add the owner of an e-mail address, if there is none, and make a link with which they can sign in",
    body: NEW,
    answers: NEW_OWNER,
    run: add,
  }),
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/owners/:id",
    alsoWith: ["keys", "usage"],
    summary: "Show an owner; `first`: the one of the console's set-up",
    body: NO_BODY,
    answers: OWNER,
    run: show,
  }),
  adminRoute({
    ...VERSIONED,
    method: "PUT",
    path: "/owners/:id",
    summary:
      "Set the limits over all keys of an owner: what is not stated is unlimited. Twice is the same as once",
    body: WHOLE,
    run: (call) => change(call, UNLIMITED),
  }),
  adminRoute({
    ...VERSIONED,
    method: "PATCH",
    path: "/owners/:id",
    summary:
      "Change limits over all keys of an owner, disable or enable them. Twice is the same as once",
    body: CHANGES,
    run: (call) => change(call),
  }),
  adminRoute({
    ...ONE,
    method: "PUT",
    path: "/owners/:id/operator",
    summary: "Make an owner an operator, who may do everything",
    body: NOTHING,
    answers: OWNER,
    run: changeRole("make_operator"),
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: "/owners/:id/operator",
    summary: "Make an operator an ordinary owner",
    body: NO_BODY,
    answers: OWNER,
    run: changeRole("remove_role_of_operator"),
  }),
  adminRoute({
    ...ONE,
    method: "POST",
    path: "/owners/:id/invite",
    summary: "Make a link for an owner who has no password yet",
    body: NOTHING,
    answers: LINK,
    run: invite,
  }),
  adminRoute({
    ...ONE,
    method: "POST",
    path: "/owners/:id/reset_password",
    summary: "Make a link with which an owner chooses another password",
    body: NOTHING,
    answers: LINK,
    run: resetPassword,
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: "/owners/:id/second_factor",
    summary: "Remove a second factor that was lost",
    body: NO_BODY,
    answers: OWNER,
    run: changing("remove_second_factor"),
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: "/owners/:id/sessions",
    summary: "End all sessions of an owner in the console",
    body: NO_BODY,
    answers: OWNER,
    run: changing("sign_out_everywhere"),
  }),
];
