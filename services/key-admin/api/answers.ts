/** The JSON that requests are answered. */
import { KEY_PRIORITIES, KEY_SCOPES } from "@gateway/shared/keys/record";
import { REQUEST_OUTCOMES } from "@gateway/shared/keys/request_row";
import { z } from "zod";
import { ADMIN_SCOPES } from "../domain/admin_keys/admin_key_store.ts";
import { ROLES } from "../domain/projects/project_record.ts";
import { PAGE_ROWS_MAX } from "../domain/keys/key_page.ts";

const time = z.iso.datetime();
const timeOrNever = time.nullable();
const count = z.int().min(0);
const state = z.enum(["enabled", "disabled"]);
const limits = z.record(z.string(), z.union([z.number(), z.string()])).meta({
  description: "Each limit by its name; 0: none. Budgets are decimals",
});
const version = count.meta({ description: "The ETag without its quotes" });
const next = z.string().nullable().meta({
  description: "What `after` takes for the next page; null: this is the last",
});

const partial = z.literal(true).optional().meta({
  description:
    "Only the first 10,000 rows of the list were compared for `sort`; there are more",
});
const page = { next, partial };

/** The rows of a page. */
const rowsOf = <Row extends z.ZodType>(row: Row) =>
  z.array(row).max(PAGE_ROWS_MAX);

/** A key, without its value. */
export const KEY = z.object({
  id: z.string(),
  state,
  expired: z.boolean(),
  description: z.string(),
  hint: z.string(),
  owner_id: z.string().meta({ description: "Its account" }),
  created_by: z.string().nullable(),
  scopes: z.array(z.enum(KEY_SCOPES)),
  models: z.array(z.string()).meta({ description: "Empty: all" }),
  allowed_cidrs: z.array(z.string()).meta({ description: "Empty: all" }),
  end_users: z.string(),
  priority: z.enum(KEY_PRIORITIES),
  keep_seconds: count.meta({
    description: "For how long its answers are kept; 0: they are not",
  }),
  limits,
  created_at: time,
  expires_at: timeOrNever,
  replaces: z.string().optional(),
  replaced_by: z.string().optional(),
  version,
});

/** A new key, with its value. */
export const NEW_KEY = KEY.extend({
  key: z.string().meta({ description: "The value, in this answer only" }),
});

const used = {
  requests_today: count,
  tokens_today: count,
  cost_today: z.string().meta({
    description: "A decimal, in CURRENCY: what they were charged",
  }),
};

/** A page of keys. */
export const KEYS = z.object({
  keys: rowsOf(KEY.extend({ last_used_at: timeOrNever, ...used })),
  ...page,
});

/** Keys that were changed together. */
export const SOME_KEYS = z.object({ keys: rowsOf(KEY) });

/** The owner of keys. */
export const OWNER = z.object({
  id: z.string(),
  email: z.string(),
  state,
  operator: z.boolean(),
  has_password: z.boolean(),
  two_step: z.boolean(),
  created_at: time,
  last_sign_in_at: timeOrNever,
  limits,
  version,
});

/** An owner who is added, and how they sign in. */
export const NEW_OWNER = OWNER.extend({
  invitation_url: z.string().optional().meta({
    description: "Works once, within 3 days; only if `invite` is true",
  }),
});

/** A page of owners. */
export const OWNERS = z.object({
  owners: rowsOf(OWNER.extend({ keys: count, ...used })),
  ...page,
});

/** A link that lets an owner in. */
export const LINK = z.object({
  owner_id: z.string(),
  url: z.string(),
  valid_for: z.string(),
});

/** A project. */
export const PROJECT = z.object({
  id: z.string(),
  name: z.string(),
  state,
  created_at: time,
  limits,
  version,
});

/** A page of projects. */
export const PROJECTS = z.object({
  projects: rowsOf(PROJECT.extend({ members: count, keys: count, ...used })),
  ...page,
});

/** The members of a project. */
export const MEMBERS = z.object({
  members: z.array(z.object({
    id: z.string(),
    email: z.string(),
    role: z.enum(ROLES),
  })),
});

/** What new keys of an account get. */
export const KEY_DEFAULTS = z.object({
  limits,
  models: z.array(z.string()),
  expires_after_days: count.meta({ description: "0: never" }),
  version,
});

/** A page of the audit log of an account. */
export const AUDIT = z.object({
  entries: rowsOf(z.object({
    time,
    action: z.string(),
    by: z.string(),
    ip: z.string(),
    key_id: z.string(),
    hint: z.string(),
    description: z.string(),
    detail: z.string(),
  })),
  next,
});

/** An admin key, without its value. */
export const ADMIN_KEY = z.object({
  id: z.string(),
  description: z.string(),
  hint: z.string(),
  scopes: z.array(z.enum(ADMIN_SCOPES)),
  created_by: z.string(),
  created_at: time,
  expires_at: timeOrNever,
});

/** A new admin key, with its value. */
export const NEW_ADMIN_KEY = ADMIN_KEY.extend({ key: NEW_KEY.shape.key });

/** All admin keys. */
export const ADMIN_KEYS = z.object({ admin_keys: z.array(ADMIN_KEY) });

const percentiles = z.object({ p50: z.number(), p95: z.number() })
  .nullable();

const server = z.object({
  name: z.string(),
  address: z.string().nullable(),
  preference: z.number(),
  weight: z.number(),
  state: z.string(),
  note: z.string(),
  probe: z.object({ failed: z.boolean(), at: time }).nullable(),
  workers: count,
  in_flight: count,
  requests: count,
  failures: count,
  first_token_ms: percentiles,
  tokens_per_second: percentiles,
  last_error: z.object({ text: z.string(), at: time }).nullable(),
});

const override = {
  what: z.enum(["drain", "weight", "disable"]),
  model: z.string(),
  backend: z.string().optional(),
  weight: z.int().optional(),
};

/** All models with their servers, and what operators have changed. */
export const MODELS = z.object({
  workers: count,
  list_mistakes: z.array(z.string()).meta({
    description: "Why the list of models is not in use as it is now",
  }),
  models: z.array(z.object({
    id: z.string(),
    kind: z.string().nullable(),
    scope: z.string().nullable(),
    waiting: z.object({ requests: count, oldest_ms: count }).meta({
      description:
        "What waits at all edges for a slot, and for how long the oldest has",
    }),
    servers: z.array(server),
  })),
  overrides: z.array(z.object({
    ...override,
    by: z.string(),
    reason: z.string(),
    at: time,
  })),
});

/** A change of a model or a server that was made or undone. */
export const OVERRIDE = z.object({
  ...override,
  undone: z.boolean(),
  told: z.boolean().meta({
    description:
      "False: NATS did not answer, so edges and workers hear of it some seconds later",
  }),
  last_server: z.boolean().meta({
    description:
      "True: no server of the model is in use any more, and requests get 503",
  }),
});

const request = z.object({
  time,
  request_id: z.string(),
  account_id: z.string(),
  key_id: z.string(),
  outcome: z.enum(REQUEST_OUTCOMES),
  reason: z.string(),
  status: z.int(),
  code: z.string(),
  param: z.string(),
  endpoint: z.string(),
  model: z.string(),
  duration_ms: z.number(),
  first_byte_ms: z.number().nullable(),
  server: z.string(),
  attempts: count,
  client_address: z.string(),
  more: count,
  budget: z.string().nullable(),
  budget_spent: z.string().nullable(),
  budget_held: z.string().nullable(),
  budget_allowed: z.string().nullable(),
  budget_reset_at: timeOrNever,
});

/** A page of the request log. */
export const REQUESTS = z.object({
  requests: rowsOf(request),
  next,
  missing_before: timeOrNever.meta({
    description: "Rows before this time may be missing; null: none is",
  }),
  at: time,
});

/** What runs now. */
export const RUNNING = z.object({
  requests: z.array(z.object({
    request_id: z.string(),
    account_id: z.string(),
    account: z.string().meta({ description: "Its address or name" }),
    key_id: z.string(),
    kind: z.string(),
    model: z.string(),
    state: z.enum(["waiting", "running", "streaming"]),
    since: time,
    seconds: z.number(),
    tokens: count,
    server: z.string().nullable(),
    worker: z.string(),
  })),
  edges: count.meta({ description: "How many edges have answered" }),
  silent_edges: count,
  more: count.meta({ description: "How many more run that are left out" }),
  at: time,
});

/** A request that was stopped. */
export const STOPPED = z.object({
  request_id: z.string(),
  account_id: z.string(),
  key_id: z.string(),
  stopped: z.literal(true),
});

const counts = z.record(z.string(), z.union([z.number(), z.string()])).meta({
  description:
    "Requests, tokens and other counts by name; those of money are decimals. What is not there is 0",
});
const buckets = z.array(counts).meta({ description: "As `marks`" });

/** The usage of a span of days. */
export const USAGE = z.object({
  zone: z.string(),
  from: z.string(),
  to: z.string(),
  unit: z.enum(["hour", "day"]),
  currency: z.string(),
  marks: z.array(z.string()).meta({
    description: "When each hour begins, or the day",
  }),
  total: counts,
  buckets,
  groups: z.array(z.object({
    id: z.string().nullable(),
    name: z.string(),
    total: counts,
    buckets,
  })).meta({
    description:
      "The eight largest parts, and with the id null all others together; the file has all of them",
  }),
});

/** The months whose usage is still there. */
export const MONTHS = z.object({ months: z.array(z.string()) });
