/** `admin-keys …`: the keys of programs that use the admin API. */
import {
  ADMIN_SCOPES,
  type AdminKey,
} from "../domain/admin_keys/admin_key_store.ts";
import { isoTime } from "../domain/keys/key_json.ts";
import {
  type Area,
  COMMAND_LINE,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

const OPERATOR = { ...COMMAND_LINE, ownerId: null };

const toJson = ({ createdBy, createdAtMs, expiresAtMs, ...key }: AdminKey) => ({
  ...key,
  created_by: createdBy,
  created_at: isoTime(createdAtMs),
  expires_at: isoTime(expiresAtMs),
});

async function create(
  { adminKeys, options, now }: Invocation,
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
  const wanted = { description, scopes, expiresAtMs: expires };
  const { key, value } = await adminKeys.create(wanted, OPERATOR);
  return {
    json: { ...toJson(key), key: value },
    note: "Store the key now: it is not shown again.",
  };
}

async function list({ adminKeys }: Invocation): Promise<Output> {
  const rows = (await adminKeys.list()).map(toJson);
  return {
    json: { admin_keys: rows },
    table: { rows, columns: Object.keys(rows[0] ?? {}) },
  };
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
      run: async ({ adminKeys, word }) => ({
        json: {
          ...toJson(await adminKeys.delete(word, OPERATOR)),
          deleted: true,
        },
      }),
    },
  ],
  notes:
    "An admin key may do what an operator may, within its scopes. Give each program its own.",
};
