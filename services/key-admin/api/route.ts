/** The type of a route of the admin API, and its errors. */
import type { Catalog } from "@gateway/shared/models/catalog";
import { z } from "zod";
import type {
  AdminKey,
  AdminScope,
} from "../domain/admin_keys/admin_key_store.ts";
import type { Actor } from "../domain/audit/audit_log.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import type { ConnectedWorkers } from "../domain/models/connected_workers.ts";
import type { ConnectedRunning } from "../domain/running/ask_running.ts";
import { digest } from "../domain/store/secret.ts";
import type { Stores } from "../domain/stores.ts";

/** The names of models that keys may be limited to. */
export interface ModelNames {
  /** The ids of all models; undefined: not known here, so that any is accepted. */
  ids(): readonly string[] | undefined;
  /** The model that requests call by a name: its id, or an alias. */
  find(name: string): { readonly id: string } | undefined;
}

/** Dependencies of the handlers. */
export interface AdminDeps extends Stores {
  sendStop: SendStop;
  /** Origin of the console, for links. */
  publicUrl: URL;
  /** All models with their servers; undefined: not known here. */
  catalog: Catalog | undefined;
  modelNames: ModelNames;
  /** The time zone of days, where a request names none. */
  budgetZone: string;
  /** What workers tell; to be disposed of. */
  askWorkers: () => Promise<ConnectedWorkers>;
  /** What runs now, as edges and workers tell it; to be disposed of. */
  askRunning: () => Promise<ConnectedRunning>;
}

/** A request whose admin key may make it, with its arguments checked. */
export interface AdminCall<Query, Body> {
  readonly deps: AdminDeps;
  /** The admin key, as the audit log names it. */
  readonly actor: Actor;
  /** The admin key of the request; null: it is a command on the same machine. */
  readonly key: AdminKey | null;
  /** The parameters of the path, by name. */
  readonly params: Readonly<Record<string, string>>;
  /** The one that is called `id`; empty: there is none. */
  readonly id: string;
  readonly query: Query;
  readonly body: Body;
  /** The header `Idempotency-Key`; undefined without it. */
  readonly idempotencyKey: string | undefined;
  /** The version in the header `If-Match`; undefined for any version. */
  readonly ifMatch: string | undefined;
}

/** What a route answers if it refuses nothing. */
export interface AdminAnswer {
  readonly status?: 200 | 201 | 204;
  /** The body: JSON, or the lines of a file. */
  readonly json?: object;
  readonly csv?: AsyncIterable<string>;
  /** The version of the resource, without quotes. */
  readonly etag?: string;
}

/** A route with the types of its query and body. */
interface RouteSpec<Query extends z.ZodType, Body extends z.ZodType> {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Below `/admin/v1`: `/keys/:id`. */
  readonly path: string;
  readonly scope: AdminScope;
  /** Other scopes with which it may be used, too. */
  readonly alsoWith?: readonly AdminScope[];
  /** The headers that it heeds. */
  readonly headers?: readonly ("if-match" | "idempotency-key")[];
  /** What it does, in the imperative. */
  readonly summary: string;
  /** The parameters behind the `?`. */
  readonly query: Query;
  /** The JSON that it takes. */
  readonly body: Body;
  /** The JSON that it answers, or another type. */
  readonly answers: z.ZodType | "csv" | "nothing";
  readonly run: (
    call: AdminCall<z.output<Query>, z.output<Body>>,
  ) => Promise<AdminAnswer>;
}

/** A route of any types. `run` checks the query and the body itself. */
export interface AdminRoute
  extends Omit<RouteSpec<z.ZodType, z.ZodType>, "run"> {
  readonly run: (call: AdminCall<unknown, unknown>) => Promise<AdminAnswer>;
}

/** Makes a route that checks its query and its body before its handler sees them. */
export function adminRoute<Query extends z.ZodType, Body extends z.ZodType>(
  { run, ...spec }: RouteSpec<Query, Body>,
): AdminRoute {
  return {
    ...spec,
    run: (call) =>
      run({
        ...call,
        query: read(spec.query, call.query),
        body: read(spec.body, call.body),
      }),
  };
}

function read<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new AdminRefused("invalid_value", issue?.message ?? "Not valid", {
    param: issue?.path.join(".") ?? "",
  });
}

/** Who makes a change, as the domain knows operators. */
export const operatorOf = (
  { actor }: Pick<AdminCall<unknown, unknown>, "actor">,
) => ({ ...actor, ownerId: null, as: "operator" as const });

/** The version that a change is based on; null: any. Throws if there is none such. */
export function versionOf(
  { ifMatch }: Pick<AdminCall<unknown, unknown>, "ifMatch">,
): number | null {
  if (ifMatch === undefined) return null;
  if (/^\d{1,15}$/.test(ifMatch)) return Number(ifMatch);
  const message = "If-Match names a version that there has never been";
  throw new AdminRefused("precondition_failed", message);
}

/**
 * A digest of the header `Idempotency-Key`: a second creation with the same one is
 * refused. Undefined: it was not sent.
 */
export const onceOf = (
  { idempotencyKey }: Pick<AdminCall<unknown, unknown>, "idempotencyKey">,
): string | undefined =>
  idempotencyKey === undefined ? undefined : digest(`admin ${idempotencyKey}`);

/** The statuses of the errors that callers see, by their codes. */
export const ADMIN_ERRORS = {
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  conflict: 409,
  precondition_failed: 412,
  body_too_large: 413,
  invalid_json: 400,
  invalid_value: 400,
  unavailable: 503,
  internal_error: 500,
} as const;

/** A request was refused. Nothing was changed, unless the message says so. */
export class AdminRefused extends Error {
  override name = "AdminRefused";
  readonly param: string | undefined;

  constructor(
    readonly code: keyof typeof ADMIN_ERRORS,
    message: string,
    { param, ...options }: ErrorOptions & { param?: string } = {},
  ) {
    super(message, options);
    this.param = param;
  }
}
