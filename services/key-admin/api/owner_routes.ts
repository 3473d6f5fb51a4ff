/** Routes of the admin API for owners of keys: their limits, and their state. */
import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { Limits } from "@gateway/shared/keys/record";
import { z } from "zod";
import { isoTime } from "../domain/keys/key_json.ts";
import { namedLimits } from "../domain/keys/settings.ts";
import { runningKeys } from "../domain/operators/running_keys.ts";
import { parseEmail } from "../domain/owners/email.ts";
import type { Account } from "../domain/owners/owner_store.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { digest } from "../domain/store/secret.ts";
import { NO_BODY, NOTHING, PAGE, someLimits } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
} from "./route.ts";

const ETAG_CHARS = 16;

const toJson = (account: Account, limits: Limits) => ({
  id: account.ownerId,
  email: account.email,
  state: account.isDisabled ? "disabled" : "enabled",
  operator: account.isOperator,
  two_step: account.totpSecret !== null,
  created_at: isoTime(account.createdAtMs),
  last_sign_in_at: isoTime(account.signedInAtMs),
  limits: namedLimits(limits, "_"),
});

async function find(deps: AdminDeps, id: string) {
  const account = await deps.owners.read(id);
  if (account === null) {
    throw new AdminRefused("not_found", "There is no owner of this id");
  }
  const limits = await deps.owners.limits(id);
  const json = toJson(account, limits);
  // Made only of what can be changed here: a sign-in makes no new version.
  const version = JSON.stringify([json.state, json.limits]);
  const etag = digest(version).slice(0, ETAG_CHARS);
  return { account, limits, answer: { json, etag } };
}

async function list(
  { deps, query }: AdminCall<z.output<typeof LIST>, unknown>,
): Promise<AdminAnswer> {
  const { people, owners, now } = deps;
  const day = usageDay(now());
  const { rows, next } = await people.list({ ...query, day });
  const json = await Promise.all(rows.map(async ({ account, ...use }) => ({
    ...toJson(account, await owners.limits(account.ownerId)),
    keys: use.keys,
    requests_today: use.totals.requests,
    tokens_today: use.totals.tokens,
  })));
  return { json: { owners: json, next } };
}
const LIST = z.strictObject(PAGE);

/** Creates the owner of an address, or finds one who exists. */
async function add(
  { deps, actor, body }: AdminCall<unknown, z.output<typeof NEW>>,
): Promise<AdminAnswer> {
  const { owners, operators, publicUrl } = deps;
  const isNew = await owners.find(body.email) === null;
  const ownerId = await owners.ensure(body.email);
  const { answer } = await find(deps, ownerId);
  const status = isNew ? 201 : 200;
  if (!body.invite) return { ...answer, status };
  const { secret } = await operators.invite(
    { ...actor, ownerId: null },
    body.email,
  );
  const link = new URL(linkPath(secret), publicUrl).href;
  return { ...answer, status, json: { ...answer.json, invitation_url: link } };
}
const NEW = z.strictObject({
  email: z.string().max(300).transform(parseEmail)
    .pipe(z.string("Not an e-mail address, such as ada@example.org")),
  invite: z.boolean().default(false),
});

async function change(
  call: AdminCall<unknown, z.output<typeof CHANGES>>,
): Promise<AdminAnswer> {
  const { deps, id, ifMatch, body, actor } = call;
  const { account, limits, answer } = await find(deps, id);
  if (ifMatch !== undefined && ifMatch !== answer.etag) {
    const message = "The owner was changed in the meantime";
    throw new AdminRefused("precondition_failed", message);
  }
  const operator = { ...actor, ownerId: null };
  const after = { ...limits, ...body.limits };
  if (JSON.stringify(after) !== JSON.stringify(limits)) {
    await deps.operators.setLimits(operator, id, after);
  }
  const state = account.isDisabled ? "disabled" : "enabled";
  if (body.state !== undefined && body.state !== state) {
    const what = body.state === "disabled" ? "disable" : "enable";
    await deps.operators.change(operator, id, what);
  }
  if (body.stop_running) {
    if ((body.state ?? state) !== "disabled") {
      const message = "Only what runs for a disabled owner can be stopped";
      const param = "stop_running";
      throw new AdminRefused("invalid_value", message, { param });
    }
    await deps.sendStop(await runningKeys(deps.redis, id));
  }
  return (await find(deps, id)).answer;
}
const CHANGES = z.strictObject({
  limits: someLimits.optional(),
  state: z.enum(["enabled", "disabled"]).optional(),
  stop_running: z.boolean().default(false).meta({
    description: "End the running requests of an owner who is disabled",
  }),
});

/** Routes of the scope `owners`. */
export const OWNER_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/owners",
    scope: "owners",
    summary: "List owners, newest first",
    query: LIST,
    body: NO_BODY,
    answers: "json",
    run: list,
  }),
  adminRoute({
    method: "POST",
    path: "/owners",
    scope: "owners",
    summary:
      "Add the owner of an e-mail address, if there is none, and make a link with which they can sign in",
    query: NOTHING,
    body: NEW,
    answers: "json",
    run: add,
  }),
  adminRoute({
    method: "GET",
    path: "/owners/:id",
    scope: "owners",
    summary: "Show an owner",
    query: NOTHING,
    body: NO_BODY,
    answers: "json",
    run: async ({ deps, id }) => (await find(deps, id)).answer,
  }),
  adminRoute({
    method: "PATCH",
    path: "/owners/:id",
    scope: "owners",
    summary:
      "Change limits over all keys of an owner, disable or enable them. Twice is the same as once",
    query: NOTHING,
    body: CHANGES,
    answers: "json",
    run: change,
  }),
];
