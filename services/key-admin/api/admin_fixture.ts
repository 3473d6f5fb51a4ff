/** A program that uses the admin API of a console, for tests. */
import assert from "node:assert/strict";
import { ORIGIN } from "../client_fixture.ts";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import {
  ADMIN_SCOPES,
  type AdminKey,
  type AdminScope,
} from "../domain/admin_keys/admin_key_store.ts";
import type { AdminRoute } from "./route.ts";
import { ADMIN_BASE, ADMIN_ROUTES } from "./routes.ts";

/** The address of the program. */
export const IP = "192.0.2.77";
/** Who makes its key. */
export const MAKER = { by: "op@example.org", ip: IP, ownerId: null };

/** A request of a program. */
export interface Sent {
  key?: string;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A console, and a program that has an admin key for it. */
export interface TestAdmin {
  site: TestConsole;
  /** Sends a request with the key. */
  ask(method: string, path: string, sent?: Sent): ReturnType<typeof send>;
  key: AdminKey;
  /** The key as programs send it. */
  value: string;
}

/** Starts a console, and makes an admin key of these scopes. */
export async function startAdmin(
  scopes: readonly AdminScope[] = ADMIN_SCOPES,
): Promise<TestAdmin> {
  const site = await startConsole({ redisUser: "key-admin" });
  const wanted = { description: "CI", scopes: [...scopes], expiresAtMs: null };
  const { key, value } = await site.deps.adminKeys.create(wanted, MAKER);
  const ask = (method: string, path: string, sent: Sent = {}) =>
    send(site, `${method} ${path}`, { key: value, ...sent });
  return { site, ask, key, value };
}

/** Lets a console listen, for clients that are processes. */
export function listen(site: TestConsole) {
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    (request) => site.app.fetch(request, { remoteIp: IP }),
  );
  const origin = `http://127.0.0.1:${server.addr.port}`;
  site.deps.publicUrl = new URL(origin);
  return {
    origin,
    [Symbol.asyncDispose]: async () => {
      await server.shutdown();
    },
  };
}

/** Sends a request; what is answered must be as the route is described. */
export async function send(
  site: TestConsole,
  line: string,
  { key = "", body, headers = {} }: Sent,
) {
  const [method = "", path = ""] = line.split(" ");
  const url = `${ORIGIN}${path.startsWith("/admin/") ? "" : ADMIN_BASE}${path}`;
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const { host } = new URL(ORIGIN);
  const response = await site.app.fetch(
    new Request(url, {
      method,
      headers: { host, authorization: `Bearer ${key}`, ...headers },
      ...body !== undefined && { body: text },
    }),
    { remoteIp: IP },
  );
  const answer = await response.text();
  const type = response.headers.get("content-type") ?? "";
  const json = /json/.test(type) ? JSON.parse(answer) : undefined;
  const route = routeOf(method, path);
  if (response.ok && route) checkAnswer(route, { type, json, text: answer });
  return {
    status: response.status,
    etag: response.headers.get("etag") ?? "",
    headers: response.headers,
    text: answer,
    json,
  };
}

/** The route that a request is for. */
export const routeOf = (method: string, path: string): AdminRoute | undefined =>
  ADMIN_ROUTES.find((route) =>
    route.method === method &&
    new RegExp(`^${route.path.replace(/:\w+/g, "[^/]+")}$`)
      .test(path.split("?", 1)[0] ?? "")
  );

function checkAnswer(
  { answers, method, path }: AdminRoute,
  { type, json, text }: { type: string; json: unknown; text: string },
): void {
  const line = `${method} ${path}`;
  if (answers === "nothing") assert.equal(text, "", line);
  else if (answers === "csv") assert.match(type, /^text\/csv/, line);
  else {
    const { data, error } = answers.safeParse(json);
    assert.equal(error, undefined, `${line}: ${error?.message} in ${text}`);
    assert.deepEqual(data, json, `${line}: all members are described`);
  }
}
