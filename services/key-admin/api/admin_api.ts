/**
 * `/admin/v1`: what operators do, for programs. It takes admin keys only, no cookies,
 * so no other site can make a browser use it.
 */
import type { Log } from "@gateway/shared/process/log";
import { Hono } from "hono";
import type { AdminKey } from "../domain/admin_keys/admin_key_store.ts";
import { describe } from "./document.ts";
import { asRefused } from "./refusals.ts";
import {
  ADMIN_ERRORS,
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  type AdminRoute,
} from "./route.ts";
import { ADMIN_BASE, ADMIN_ROUTES } from "./routes.ts";

const DOCUMENT = describe(ADMIN_BASE, ADMIN_ROUTES);

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
export function createAdminApi(depsNow: () => AdminDeps, log: Log): AdminApi {
  const app = new Hono<{ Bindings: Origin }>();
  app.get("/admin/openapi.json", (c) => c.json(DOCUMENT, 200, JSON_TYPE));
  const methods = new Map<string, string[]>();
  for (const { method, path } of ADMIN_ROUTES) {
    methods.set(path, [...methods.get(path) ?? [], method]);
  }
  for (const route of ADMIN_ROUTES) {
    app.on(route.method, ADMIN_BASE + route.path, async (c) => {
      const deps = depsNow();
      const key = await authenticate(c.req.raw, deps);
      checkScope(key, route);
      const { remoteIp: ip, requestId } = c.env;
      log.info("admin_request", { by: key.id, requestId });
      return respond(
        await route.run({
          deps,
          actor: { by: `admin key ${key.id}`, ip },
          key,
          params: c.req.param(),
          id: c.req.param("id") ?? "",
          query: Object.fromEntries(new URL(c.req.url).searchParams),
          body: await readBody(c.req.raw, route),
          ...headersOf(c.req.raw, route),
        }),
      );
    });
  }
  for (const [path, allowed] of methods) {
    app.all(ADMIN_BASE + path, () => {
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

function checkScope(
  { scopes }: AdminKey,
  { scope, alsoWith = [] }: AdminRoute,
): void {
  const wanted = [scope, ...alsoWith];
  if (wanted.some((each) => scopes.includes(each))) return;
  const message = `This admin key lacks the scope ${
    wanted.join(" or ")
  }: it has ${scopes.join(", ")}`;
  throw new AdminRefused("forbidden", message);
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

/** The headers that a route heeds. Refuses `If-Match` where nothing has a version. */
function headersOf(
  request: Request,
  { headers = [], method }: AdminRoute,
): Pick<AdminCall<unknown, unknown>, "idempotencyKey" | "ifMatch"> {
  const ifMatch = versionIn(request.headers.get("if-match"));
  if (
    ifMatch !== undefined && method !== "GET" && !headers.includes("if-match")
  ) {
    const message = "What this path changes has no ETag";
    throw new AdminRefused("invalid_value", message, { param: "If-Match" });
  }
  return { idempotencyKey: idempotencyKeyOf(request), ifMatch };
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
function versionIn(header: string | null): string | undefined {
  if (header === null || header === "*") return undefined;
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
