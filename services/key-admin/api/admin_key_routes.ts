/** Admin keys themselves. */
import { z } from "zod";
import {
  ADMIN_SCOPES,
  adminKeyJson,
} from "../domain/admin_keys/admin_key_store.ts";
import { oneOf } from "../domain/keys/settings.ts";
import { ADMIN_KEY, ADMIN_KEYS, NEW_ADMIN_KEY } from "./answers.ts";
import { KEY_MEMBERS, NO_BODY, NOTHING } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  AdminRefused,
  adminRoute,
  onceOf,
  operatorOf,
} from "./route.ts";

/** Makes a key that may do no more, and no longer, than the one that makes it. */
async function create(
  call: AdminCall<unknown, z.output<typeof NEW>>,
): Promise<AdminAnswer> {
  const { deps, key: maker, body } = call;
  const { description, scopes, expires_at: expiresAtMs } = body;
  const missing = scopes.filter((scope) =>
    maker !== null && !maker.scopes.includes(scope)
  );
  if (missing.length > 0) {
    const message = `This admin key lacks ${missing.join(", ")} itself`;
    throw new AdminRefused("forbidden", message, { param: "scopes" });
  }
  if (expiresAtMs !== null && expiresAtMs <= deps.now()) {
    const param = "expires_at";
    throw new AdminRefused("invalid_value", "This time has passed", { param });
  }
  const endsAtMs = maker?.expiresAtMs ?? Infinity;
  if ((expiresAtMs ?? Infinity) > endsAtMs) {
    const message = `This admin key itself expires at ${
      new Date(endsAtMs).toISOString()
    }: give that time, or an earlier one`;
    throw new AdminRefused("forbidden", message, { param: "expires_at" });
  }
  const wanted = { description, scopes, expiresAtMs };
  const by = { ...operatorOf(call), once: onceOf(call) };
  const { key, value } = await deps.adminKeys.create(wanted, by);
  return { status: 201, json: { ...adminKeyJson(key), key: value } };
}

const { description, expires_at } = KEY_MEMBERS;
const NEW = z.strictObject({
  description,
  scopes: z.array(oneOf("Scopes are", ADMIN_SCOPES)).min(1)
    .transform((names) => ADMIN_SCOPES.filter((each) => names.includes(each))),
  expires_at: expires_at.default(null),
});

const ONE = { scope: "accounts", query: NOTHING } as const;

/** Routes of admin keys. */
export const ADMIN_KEY_ROUTES = [
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/admin_keys",
    summary: "List admin keys, newest first",
    body: NO_BODY,
    answers: ADMIN_KEYS,
    run: async ({ deps }) => ({
      json: { admin_keys: (await deps.adminKeys.list()).map(adminKeyJson) },
    }),
  }),
  adminRoute({
    ...ONE,
    method: "POST",
    path: "/admin_keys",
    headers: ["idempotency-key"],
    summary:
      "Create an admin key, with at most the scopes and the time of the one that creates it; its value is in this answer only",
    body: NEW,
    answers: NEW_ADMIN_KEY,
    run: create,
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: "/admin_keys/:id",
    summary: "Refuse an admin key from the next request on",
    body: NO_BODY,
    answers: ADMIN_KEY,
    run: async (call) => ({
      json: adminKeyJson(
        await call.deps.adminKeys.delete(call.id, operatorOf(call)),
      ),
    }),
  }),
];
