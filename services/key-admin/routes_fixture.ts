import assert from "node:assert/strict";
import {
  type Answer,
  codeOf,
  type Form,
  hiddenField,
  invitation,
  keyForm,
  PASSWORD,
  storedKey,
  type TestClient,
  type TestConsole,
  tryForm,
} from "./console_fixture.ts";
import type { AuditAction } from "./domain/audit/audit_log.ts";
import { limitsOf } from "./domain/keys/settings.ts";

/**
 * A valid request for every route of the console. The routes come from the
 * console itself, so every test that covers all of them fails for a route that
 * is missing here.
 */

/** A signed-in owner with a key. */
export type RouteOwner = Awaited<ReturnType<typeof routeOwner>>;

/** A valid request of an owner, and what it leads to. */
export interface RouteRequest {
  path: string;
  /** Null: GET. */
  form: Form | null;
  status: number;
  /** Its entries in the audit log. */
  events: readonly AuditAction[];
}

/** Prepares a valid request. */
type Make = (
  site: TestConsole,
  owner: RouteOwner,
) => RouteRequest | Promise<RouteRequest>;

const get = (path: string, status = 200): RouteRequest => ({
  ...{ path, form: null, status, events: [] },
});
const post = (
  path: string,
  form: Form,
  events: readonly AuditAction[],
  status = 303,
): RouteRequest => ({ path, form, status, events });
/** A GET of a key's page. */
const ofKey = (page = ""): Make => (_, { keyId }) =>
  get(`/keys/${keyId}${page}`);

const NEW_PASSWORD = "quite another phrase";
const INVITED = "invited@example.org";
const VIDEO = `video_${"0".repeat(32)}`;
/** The version of a new key. */
const version = "1";

const PUBLIC: Record<string, Make> = {
  "GET /": () => get("/", 302),
  "GET /assets/:version/:name": ({ deps }) => get(deps.assets.stylesheet),
  "GET /reference": () => get("/reference"),
  "GET /sign-in": () => get("/sign-in", 302),
  "POST /sign-in": (_, { email }) =>
    post("/sign-in", { email, password: PASSWORD, code: "", next: "/keys" }, [
      "session.signed_in",
    ]),
  "GET /link/:secret": async (site) => get(await invitation(site, INVITED)),
  "POST /link/:secret": async (site) =>
    post(
      await invitation(site, INVITED),
      { email: "", new_password: PASSWORD },
      ["account.created", "session.signed_in"],
    ),
  // There is no provider here; `sign_in/oidc_test.ts` has one.
  "GET /sign-in/oidc": () => get("/sign-in/oidc", 404),
  "GET /sign-in/oidc/callback": () => get("/sign-in/oidc/callback?code=x", 404),
};

const PRIVATE: Record<string, Make> = {
  "GET /keys": () => get("/keys"),
  "POST /keys": async (_, { client }) => {
    const page = await client.get("/keys/new");
    const form = keyForm("One more", {
      nonce: hiddenField(page.text, "nonce"),
    });
    return post("/keys", form, ["key.created"], 201);
  },
  "GET /keys/new": () => get("/keys/new"),
  "GET /keys/:id": ofKey(),
  "GET /keys/:id/edit": ofKey("/edit"),
  "POST /keys/:id/edit": (_, { keyId }) =>
    post(`/keys/${keyId}/edit`, keyForm("Renamed", { version }), [
      "key.edited",
    ]),
  "GET /keys/:id/ask/disable": ofKey("/ask/disable"),
  "GET /keys/:id/ask/delete": ofKey("/ask/delete"),
  "GET /keys/:id/ask/rotate": ofKey("/ask/rotate"),
  "POST /keys/:id/enable": async ({ deps }, { ownerId, keyId }) => {
    const actor = { by: "test", ip: "" };
    await deps.keys.disable({ ownerId, keyId, version: null, actor });
    return post(`/keys/${keyId}/enable`, { version: "2" }, ["key.enabled"]);
  },
  "POST /keys/:id/disable": (_, { keyId }) =>
    post(`/keys/${keyId}/disable`, { version, stop_running: "on" }, [
      "key.disabled",
      "key.stop_requested",
    ]),
  "POST /keys/:id/delete": (_, { keyId }) =>
    post(`/keys/${keyId}/delete`, { version, sure: "on" }, ["key.deleted"]),
  "POST /keys/:id/rotate": (_, { keyId }) => {
    const form = { version, old: "now", nonce: "a".repeat(43) };
    const events = ["key.created", "key.rotated"] as const;
    return post(`/keys/${keyId}/rotate`, form, events, 201);
  },
  "GET /keys/:id/requests": ofKey("/requests"),
  "GET /keys/:id/export.csv": ofKey("/export.csv"),
  "GET /try": () => get("/try"),
  "POST /try": () => post("/try", tryForm("Hi"), ["key.created"], 200),
  "POST /try/stream": () =>
    post("/try/stream", tryForm("Hi"), ["key.created"], 200),
  // There is no such video; `web/try_test.ts` has one.
  "POST /try/videos/:id": () =>
    post(`/try/videos/${VIDEO}`, tryForm("Hi"), ["key.created"], 404),
  "GET /try/videos/:id/content": async (_, { client }) => {
    await client.post("/try", tryForm("Makes the key of the session"));
    return get(`/try/videos/${VIDEO}/content`, 404);
  },
  "GET /usage": () => get("/usage"),
  "GET /usage/export.csv": () => get("/usage/export.csv"),
  "GET /audit": () => get("/audit"),
  "GET /audit.csv": () => get("/audit.csv"),
  "GET /account": () => get("/account"),
  "POST /account/password": () =>
    post("/account/password", {
      password: PASSWORD,
      new_password: NEW_PASSWORD,
      end_others: "on",
    }, ["session.confirmed", "account.password_changed"]),
  "GET /account/second-factor": () => get("/account/second-factor"),
  "POST /account/second-factor": async (site, { client }) => {
    const page = await client.get("/account/second-factor");
    const secret = /secret=([A-Z2-7]{32})/.exec(page.text)?.[1] ?? "";
    const code = codeOf(site, secret);
    const events = ["session.confirmed", "account.second_factor_on"] as const;
    const form = { code, password: PASSWORD };
    return post("/account/second-factor", form, events, 200);
  },
  "POST /account/second-factor/off": () =>
    post("/account/second-factor/off", { password: PASSWORD }, [
      "session.confirmed",
      "account.second_factor_off",
    ]),
  "POST /account/sessions/end": async ({ deps }, { ownerId }) => {
    const [session] = await deps.sessions.list(ownerId);
    const form = { session: session?.id ?? "" };
    return post("/account/sessions/end", form, ["session.revoked"]);
  },
  "POST /account/sessions/end-all": () =>
    post("/account/sessions/end-all", {}, ["session.revoked"]),
  "GET /confirm": () => get("/confirm"),
  "POST /confirm": () =>
    post("/confirm", { password: PASSWORD, next: "/keys" }, [
      "session.confirmed",
    ]),
  "POST /account/notice": async ({ deps }, { ownerId }) => {
    await deps.owners.disableTotp(ownerId, "op@example.org");
    return post("/account/notice", {}, []);
  },
  "POST /sign-out": () => post("/sign-out", {}, ["session.signed_out"]),
};

/** Somebody else, whom the operator of the request changes. */
const other = ({ deps }: TestConsole) => deps.owners.ensure(INVITED);

/** Requests of operators. For everybody else these routes do not exist. */
const OPERATORS: Record<string, Make> = {
  "GET /people": () => get("/people"),
  "POST /people": () =>
    post("/people", { email: "new@example.org" }, ["owner.invited"], 201),
  "GET /people/keys": () => get("/people/keys"),
  "GET /people/:id": async (site) => get(`/people/${await other(site)}`),
  "GET /people/:id/export.csv": async (site) =>
    get(`/people/${await other(site)}/export.csv`),
  "POST /people/:id": async (site) =>
    post(`/people/${await other(site)}`, { what: "disable" }, [
      "owner.disabled",
    ]),
  "POST /people/:id/limits": async (site) => {
    const limits = { ...limitsOf(() => ""), concurrency: "4" };
    const path = `/people/${await other(site)}/limits`;
    const events = ["owner.limits_changed"] as const;
    return post(path, limits, events);
  },
};

/**
 * Every route of the console: its path (`/keys/:id/edit`), whether it is only for
 * signed-in owners or only for operators, and a valid request. Fails when one is not in the tables above.
 */
export function routeCases({ routes }: TestConsole) {
  const makers = { ...PUBLIC, ...PRIVATE, ...OPERATORS };
  assert.deepEqual(
    Object.keys(makers).sort(),
    [...routes].sort(),
    "every route has a valid request here",
  );
  return Object.entries(makers).map(([route, request]) => {
    const [method, pattern = ""] = route.split(" ");
    const isPost = method === "POST";
    const isForOperators = Object.hasOwn(OPERATORS, route);
    const isPrivate = isForOperators || Object.hasOwn(PRIVATE, route);
    const is = { isPost, isPrivate, isForOperators };
    return [route, { pattern, ...is, request }] as const;
  });
}

/** Sends a request as our own pages do. */
export const sendRequest = (
  client: TestClient,
  { path, form }: Pick<RouteRequest, "path" | "form">,
): Promise<Answer> =>
  form === null ? client.get(path) : client.post(path, form);

/** The audit log of an owner, oldest first. */
export async function entries({ deps }: TestConsole, ownerId: string) {
  const query = { action: "", keyId: "", before: "", rows: 100 };
  return (await deps.audit.read(ownerId, query)).rows.reverse();
}

/** The headers that keep a browser safe. */
const HEADERS: [name: string, value: RegExp][] = [
  ["content-security-policy", /default-src 'none'.*frame-ancestors 'none'/],
  ["strict-transport-security", /max-age=31536000/],
  ["x-content-type-options", /^nosniff$/],
  ["x-frame-options", /^DENY$/],
  ["referrer-policy", /^same-origin$/],
  ["cross-origin-opener-policy", /^same-origin$/],
  ["cross-origin-resource-policy", /^same-origin$/],
  ["x-request-id", /^[0-9a-f]{32}$/],
];

/** Fails if an answer of the console lacks one of them. */
export function checkHeaders({ headers }: Answer, isFile = false): void {
  for (const [header, value] of HEADERS) {
    assert.match(headers.get(header) ?? "", value, header);
  }
  const policy = headers.get("content-security-policy") ?? "";
  assert.ok(!/unsafe-inline|unsafe-eval|\*/.test(policy), policy);
  assert.match(
    headers.get("cache-control") ?? "",
    isFile ? /immutable/ : /^no-store$/,
  );
  for (const [header] of headers) {
    assert.ok(!header.startsWith("access-control-"), header);
  }
  if (headers.has("content-type")) {
    assert.match(headers.get("content-type") ?? "", /; charset=utf-8$/i);
  }
}

/** The `n`th owner, signed in, with one key. Each has a network of their own. */
export async function routeOwner(
  site: TestConsole,
  n: number,
) {
  const email = `owner${n}@example.org`;
  // Attempts to sign in are limited for each prefix, too.
  const prefix = (0xdb8 + (n >> 5)).toString(16);
  const ip = `2001:${prefix}:0:${n.toString(16)}::1`;
  const client = await site.signedIn(email, ip);
  const ownerId = await site.deps.owners.find(email) ?? assert.fail(email);
  const { id } = await storedKey(site, ownerId, {
    description: `Secret project ${n}`,
  });
  return { email, ownerId, client, ip, keyId: id };
}
