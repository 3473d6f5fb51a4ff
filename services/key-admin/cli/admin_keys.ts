/** `admin-keys …`: the keys of programs that use the admin API. */
import {
  ADMIN_KEY,
  ADMIN_KEYS as LIST,
  NEW_ADMIN_KEY,
} from "../api/answers.ts";
import { ADMIN_SCOPES } from "../domain/admin_keys/admin_key_store.ts";
import { isoTime } from "../domain/keys/key_json.ts";
import {
  type Area,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

async function create(
  { api, options, now }: Invocation,
): Promise<Output> {
  const { description, adminScopes: scopes, expires = null } = options;
  if (description === undefined) {
    throw new UsageError("--description: Say what the key is for");
  }
  if (scopes === undefined) {
    throw new UsageError(`--admin-scopes: Some of ${ADMIN_SCOPES.join(", ")}`);
  }
  if (expires !== null && expires <= now()) {
    throw new UsageError("--expires: This time is past. Give a later one");
  }
  const body = { description, scopes, expires_at: isoTime(expires) };
  return {
    json: await api.ask(NEW_ADMIN_KEY, "POST /admin_keys", { body }),
    note: "Store the key now: it is not shown again.",
  };
}

async function list({ api }: Invocation): Promise<Output> {
  const { admin_keys: rows } = await api.ask(LIST, "GET /admin_keys");
  return {
    json: { admin_keys: rows },
    table: { rows, columns: Object.keys(rows[0] ?? {}) },
  };
}

async function remove({ api, word }: Invocation): Promise<Output> {
  const id = encodeURIComponent(word);
  const key = await api.ask(ADMIN_KEY, `DELETE /admin_keys/${id}`);
  return { json: { ...key, deleted: true } };
}

/** The commands on admin keys. */
export const ADMIN_KEYS: Area = {
  title: "Manage the keys of programs that use the admin API.",
  commands: [
    {
      usage: "create",
      help: "create an admin key and print it once",
      run: create,
      options: ["description", "adminScopes", "expires"],
    },
    { usage: "list", help: "list admin keys, newest first", run: list },
    {
      usage: "delete <id>",
      help: "refuse a key from the next request on",
      run: remove,
    },
  ],
  notes:
    "An admin key may do what an operator may, within its scopes. Give each program its own.",
};
