/** `keys …`: what owners do with their keys in the console, as commands. */
import { networkText } from "@gateway/shared/keys/networks";
import { defined } from "@gateway/shared/process/env";
import { z } from "zod";
import {
  KEY,
  KEYS as PAGE,
  NEW_KEY,
  NEW_OWNER,
  OWNER,
  OWNERS,
} from "../api/answers.ts";
import { endUsersWords } from "../domain/keys/end_users.ts";
import { isoTime } from "../domain/keys/key_json.ts";
import { KeyRefused } from "../domain/keys/key_refused.ts";
import { GRACES } from "../domain/keys/graces.ts";
import { LIMIT_NAMES } from "../domain/keys/settings.ts";
import { limitsOf, moreRows, namedAccount, pageOf } from "./accounts.ts";
import {
  type Area,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";
import type { PortLine } from "./port.ts";

type KeyJson = z.output<typeof KEY>;

const SETTING_OPTIONS = [
  "description",
  "expires",
  "models",
  "scopes",
  "allowedCidrs",
  "endUsers",
  "priority",
  "keepSeconds",
  ...LIMIT_NAMES,
] as const;
const KEY_OPTIONS = [...SETTING_OPTIONS, "force"] as const;
const LIST_OPTIONS = ["search", "state", "sort", "rows", "after"] as const;

/** Runs on the key that the command line names, of the account that it names. */
const onKey =
  (run: (invocation: Invocation, key: KeyJson) => Promise<Output | KeyJson>) =>
  async (invocation: Invocation): Promise<Output> => {
    const account = await namedAccount(invocation);
    const key = await invocation.api.ask(KEY, at("GET", invocation));
    if (account !== undefined && key.owner_id !== account) {
      throw new KeyRefused("not_found");
    }
    const result = await run(invocation, key);
    return "json" in result ? result : { json: result };
  };

/** The beginning of a request about the key that the command line names. */
const at = (
  method: "GET" | "PATCH" | "POST" | "DELETE",
  { word }: Invocation,
  below = "",
): PortLine => `${method} /keys/${encodeURIComponent(word)}${below}`;

async function create(invocation: Invocation): Promise<Output> {
  const { api, options } = invocation;
  const { owner, project } = options;
  if (options.description === undefined) {
    throw new UsageError("--description: Say what the key is for");
  }
  const settings = settingsOf(invocation);
  // The output points out a new address, which may be misspelled.
  const isNew = owner !== undefined && project === undefined &&
    await isUnknown(invocation, owner);
  const account = isNew
    ? (await api.ask(NEW_OWNER, "POST /owners", { body: { email: owner } })).id
    : await accountOf(invocation);
  const invite = isNew
    ? `\nThe owner ${owner} is new. To let them sign in: owners invite ${owner}`
    : "";
  const body = { account, ...settings };
  return {
    json: await api.ask(NEW_KEY, "POST /keys", { body }),
    note: `\nStore the key now: it is not shown again.${invite}`,
  };
}

const isUnknown = async ({ api }: Invocation, email: string) => {
  const found = await api.ask(OWNERS, "GET /owners", { query: { email } });
  return found.owners.length === 0;
};

/** The account that the options name, or that of the first owner. */
const accountOf = async (invocation: Invocation): Promise<string> =>
  await namedAccount(invocation) ??
    (await invocation.api.ask(OWNER, "GET /owners/first")).id;

const COLUMNS = [
  "id",
  "state",
  "hint",
  "created_at",
  "expires_at",
  "last_used_at",
  "requests_today",
  "cost_today",
  "description",
];

const NO_KEYS = "No keys found. Create one: keys create --description TEXT";

async function list(invocation: Invocation): Promise<Output> {
  const { api, options: { state } } = invocation;
  const account = await accountOf(invocation);
  const query = { account, state, ...pageOf(invocation) };
  const page = await api.ask(PAGE, "GET /keys", { query });
  const { keys } = page;
  return {
    json: page,
    table: { rows: keys, columns: COLUMNS },
    note: moreRows(page) ?? (keys.length === 0 ? NO_KEYS : ""),
  };
}

const show = onKey((_, key) => Promise.resolve(key));

const edit = async (invocation: Invocation): Promise<Output> => {
  const { options } = invocation;
  if (SETTING_OPTIONS.every((name) => options[name] === undefined)) {
    throw new UsageError(
      "Nothing to change: give an option such as --rpm 60",
    );
  }
  return await change(invocation);
};

const change = onKey(async (invocation) => {
  const body = settingsOf(invocation);
  return await invocation.api.ask(KEY, at("PATCH", invocation), { body });
});

const enable = onKey(async (invocation) => {
  const body = { state: "enabled" };
  return await invocation.api.ask(KEY, at("PATCH", invocation), { body });
});

const disable = onKey(async (invocation) => {
  const { api, options } = invocation;
  const body = { state: "disabled" };
  return options.stopRunning
    ? await api.ask(KEY, at("POST", invocation, "/stop"))
    : await api.ask(KEY, at("PATCH", invocation), { body });
});

const remove = onKey(async (invocation, key) => {
  const { api, options } = invocation;
  const query = { stop_running: String(options.stopRunning ?? false) };
  await api.ask(z.undefined(), at("DELETE", invocation), { query });
  return { json: { ...key, state: "deleted" } };
});

const rotate = onKey(async (invocation) => {
  const { api, options: { old = "24h" } } = invocation;
  const line = at("POST", invocation, "/rotate");
  return {
    json: await api.ask(NEW_KEY, line, { body: { old } }),
    note:
      `\nStore the new key now: it is not shown again. The old key stops working ${
        GRACES[old].text
      }.`,
  };
});

const MODELS_UNKNOWN =
  "Warning: the names of the models were not checked, because the list of models is not known here: " +
  "either model servers list them, or MODELS_FILE and UPSTREAM_BASE_URL are not set as for the edges. " +
  "GET /v1/models with the key shows which of them exist";

/** The settings that the options state, as the admin API takes them. */
function settingsOf(invocation: Invocation): object {
  const { options, now, modelNames, warn } = invocation;
  const { expires, allowedCidrs, endUsers, force } = options;
  if (expires && expires <= now()) {
    throw new UsageError(
      "--expires: The time is in the past. Give a later one, or never",
    );
  }
  const isUnchecked = modelNames !== null && modelNames.ids() === undefined;
  if (options.models?.length && isUnchecked && !force) warn(MODELS_UNKNOWN);
  for (const name of options.models ?? []) {
    const id = modelNames?.find(name)?.id ?? name;
    if (id === name) continue;
    warn(`'${name}' is an alias: the key may use the model '${id}'`);
  }
  const limits = limitsOf(options);
  return defined({
    description: options.description,
    scopes: options.scopes,
    models: options.models,
    allowed_cidrs: allowedCidrs?.map(networkText),
    end_users: endUsers === undefined ? undefined : endUsersWords(endUsers),
    priority: options.priority,
    keep_seconds: options.keepSeconds,
    expires_at: expires === undefined ? undefined : isoTime(expires),
    limits: Object.keys(limits).length === 0 ? undefined : limits,
    force,
  });
}

/** The commands on keys. */
export const KEYS: Area = {
  title: "Manage API keys.",
  options: ["owner", "project"],
  commands: [
    {
      usage: "create",
      help: "create a key and print it",
      run: create,
      options: KEY_OPTIONS,
    },
    {
      usage: "list",
      help: "list keys, newest first or in another order",
      run: list,
      options: LIST_OPTIONS,
    },
    { usage: "show <id>", help: "show one key", run: show },
    {
      usage: "edit <id>",
      help: "change the given settings",
      run: edit,
      options: KEY_OPTIONS,
    },
    {
      usage: "disable <id>",
      help: "refuse its requests",
      run: disable,
      options: ["stopRunning"],
    },
    {
      usage: "enable <id>",
      help: "accept its requests again",
      run: enable,
    },
    {
      usage: "delete <id>",
      help: "delete it for good",
      run: remove,
      options: ["stopRunning"],
    },
    {
      usage: "rotate <id>",
      help: "replace it with a new key",
      run: rotate,
      options: ["old"],
    },
  ],
  notes:
    `Limits of a new key that are not given come from KEY_… in the environment; 0 means
no limit. A key expires at a time such as 2027-01-31T12:00:00Z or at the end of a day, in UTC.
"create" adds the owner if the address is new. Commands with an id find the key's owner.
Commands work on the cluster that "deno task up" runs, on the one at REDIS_URL, or on that
of the console at GATEWAY_ADMIN_URL, with the admin key GATEWAY_ADMIN_KEY.`,
};
