/**
 * `/admin/v1`: what operators do, for programs. It takes admin keys only, no cookies,
 * so no other site can make a browser use it.
 */
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { Log } from "@gateway/shared/process/log";
import { Hono } from "hono";
import type { AdminKey } from "../domain/admin_keys/admin_key_store.ts";
import { KeyRefused } from "../domain/keys/key_refused.ts";
import { OperatorRefused } from "../domain/operators/operators.ts";
import { NotDurable } from "../domain/store/durability.ts";
import { BadCursor } from "../domain/store/redis.ts";
import { describe } from "./document.ts";
import { KEY_ROUTES } from "./key_routes.ts";
import { OWNER_ROUTES } from "./owner_routes.ts";
import {
  ADMIN_ERRORS,
  type AdminAnswer,
  type AdminDeps,
  AdminRefused,
  type AdminRoute,
} from "./route.ts";
import { USAGE_ROUTES } from "./usage_routes.ts";

const BASE = "/admin/v1";
/** Every route, in the order of the description. */
export const ADMIN_ROUTES: readonly AdminRoute[] = [
  ...KEY_ROUTES,
  ...OWNER_ROUTES,
  ...USAGE_ROUTES,
];
const DOCUMENT = describe(BASE, ADMIN_ROUTES);

/** A request for a key with 1,000 models of 200 characters is smaller. */
const BODY_BYTES_MAX = 256 * 1024;
const IDEMPOTENCY_CHARS_MAX = 200;

/** The client of a request: its address, and the id of its request. */
interface Origin {
  readonly requestId: string;
  readonly remoteIp: string;
}

/** Answers a request whose path begins with `/admin/`. */
export type AdminApi = (request: Request, origin: Origin) => Promise<Response>;

/** The admin API over these stores. */
export function createAdminApi(deps: AdminDeps, log: Log): AdminApi {
  const app = new Hono<{ Bindings: Origin }>();
  app.get("/admin/openapi.json", (c) => c.json(DOCUMENT, 200, JSON_TYPE));
  const methods = new Map<string, string[]>();
  for (const { method, path } of ADMIN_ROUTES) {
    methods.set(path, [...methods.get(path) ?? [], method]);
  }
  for (const route of ADMIN_ROUTES) {
    app.on(route.method, BASE + route.path, async (c) => {
      const key = await authenticate(c.req.raw, deps);
      if (!key.scopes.includes(route.scope)) {
        throw new AdminRefused(
          "forbidden",
          `This admin key lacks the scope ${route.scope}: it has ${
            key.scopes.join(", ")
          }`,
        );
      }
      const { remoteIp: ip } = c.env;
      const by = `admin key ${key.id}`;
      log.info("admin_request", { by: key.id, requestId: c.env.requestId });
      return respond(
        await route.run({
          deps,
          actor: { by, ip },
          id: c.req.param("id") ?? "",
          query: Object.fromEntries(new URL(c.req.url).searchParams),
          body: await readBody(c.req.raw, route),
          idempotencyKey: idempotencyKeyOf(c.req.raw),
          ifMatch: versionIn(c.req.header("if-match")),
        }),
      );
    });
  }
  for (const [path, allowed] of methods) {
    app.all(BASE + path, () => {
      const message = `This path takes ${allowed.join(", ")}`;
      throw new AdminRefused("method_not_allowed", message);
    });
  }
  app.notFound(() => {
    throw new AdminRefused("not_found", "There is no such path");
  });
  app.onError((error, c) => {
    const { code, message, param } = asRefused(error);
    const status = ADMIN_ERRORS[code];
    const { requestId, remoteIp: clientAddress } = c.env;
    const line = { requestId, status, clientAddress, message };
    if (status < 500) log.warn("request_refused", line);
    else log.error("request_failed", { ...line, error });
    const headers = {
      ...JSON_TYPE,
      ...status === 401 && { "www-authenticate": "Bearer" },
    };
    const body = { error: { code, message, ...param && { param } } };
    return c.json(body, status, headers);
  });
  return async (request, origin) => await app.fetch(request, origin);
}

async function authenticate(
  request: Request,
  { adminKeys }: AdminDeps,
): Promise<AdminKey> {
  const header = request.headers.get("authorization") ?? "";
  const [, value = ""] = /^bearer +(\S+)$/i.exec(header) ?? [];
  const key = await adminKeys.find(value);
  if (key !== null) return key;
  throw new AdminRefused(
    "unauthorized",
    /^sk-(?!admin-)/.test(value)
      ? "This is an API key, for the API. The admin API takes admin keys: sk-admin-…"
      : "The admin key is missing, unknown, deleted or expired",
  );
}

function idempotencyKeyOf({ headers }: Request): string | undefined {
  const text = headers.get("idempotency-key");
  if (text === null) return undefined;
  if (text !== "" && text.length <= IDEMPOTENCY_CHARS_MAX) return text;
  const message = `Expected 1 to ${IDEMPOTENCY_CHARS_MAX} characters`;
  throw new AdminRefused("invalid_value", message, {
    param: "Idempotency-Key",
  });
}

/**
 * Returns the version in `If-Match`, without its quotes; undefined, for any, if it is
 * `*`.
 */
function versionIn(header: string | undefined): string | undefined {
  if (header === undefined || header === "*") return undefined;
  const [, version] = /^(?:W\/)?"([^"]*)"$/.exec(header) ?? [];
  if (version !== undefined) return version;
  const message = 'Expected the ETag of an answer, such as "3"';
  throw new AdminRefused("invalid_value", message, { param: "If-Match" });
}

async function readBody(
  request: Request,
  { method }: AdminRoute,
): Promise<unknown> {
  if (method === "GET" || method === "DELETE") return undefined;
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of request.body ?? []) {
    bytes += part.length;
    if (bytes > BODY_BYTES_MAX) {
      const message = `A body has at most ${BODY_BYTES_MAX} bytes`;
      throw new AdminRefused("body_too_large", message);
    }
    parts.push(part);
  }
  const text = await new Blob(parts.map((part) => part.slice())).text();
  try {
    return JSON.parse(text === "" ? "{}" : text);
  } catch (cause) {
    const message = "The body is not JSON";
    throw new AdminRefused("invalid_json", message, { cause });
  }
}

const JSON_TYPE = { "content-type": "application/json; charset=utf-8" };
const COMMON = { "cache-control": "no-store" };

function respond({ status = 200, json, csv, etag }: AdminAnswer): Response {
  const headers = { ...COMMON, ...etag !== undefined && { etag: `"${etag}"` } };
  if (csv !== undefined) {
    const body = ReadableStream.from(csv).pipeThrough(new TextEncoderStream());
    const type = "text/csv; charset=utf-8";
    return new Response(body, {
      headers: { ...headers, "content-type": type },
    });
  }
  if (json === undefined) return new Response(null, { status, headers });
  return Response.json(json, { status, headers: { ...headers, ...JSON_TYPE } });
}

function asRefused(error: unknown): AdminRefused {
  if (error instanceof AdminRefused) return error;
  const cause = { cause: error };
  if (error instanceof KeyRefused) {
    const { reason, message } = error;
    if (reason === "not_found") {
      return new AdminRefused("not_found", message, cause);
    }
    const code = reason === "changed" ? "precondition_failed" : "conflict";
    return new AdminRefused(code, message, cause);
  }
  if (error instanceof OperatorRefused) {
    return new AdminRefused("conflict", error.message, cause);
  }
  if (error instanceof BadCursor) {
    const param = "after";
    return new AdminRefused("invalid_value", error.message, { param });
  }
  if (error instanceof RedisUnavailableError || error instanceof NotDurable) {
    const message = error instanceof NotDurable || error.mayHaveRun
      ? "The database did not answer in time: the change may or may not have been made"
      : "The database does not answer. Try again in a moment";
    return new AdminRefused("unavailable", message, cause);
  }
  const message = "Something went wrong on our side";
  return new AdminRefused("internal_error", message, cause);
}
