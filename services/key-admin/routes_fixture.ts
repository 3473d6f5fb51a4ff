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
 * console itself: a test that covers all of them fails for one that it cannot ask.
 */

/** A signed-in owner with a key. */
type RouteOwner = Awaited<ReturnType<typeof routeOwner>>;

/** A valid request of an owner, and what it leads to. */
export interface RouteRequest {
  path: string;
  /** Null: GET. */
  form: Form | null;
  status: number;
  /** Its entries in the audit log. */
  events: readonly AuditAction[];
}

/**
 * What is particular about the request of a route. By default a GET is answered 200,
 * a form 303; the id in the path is that of the owner's key, or of somebody else on
 * pages of operators.
 */
type Given = Partial<RouteRequest>;
type Make =
  | Given
  | ((site: TestConsole, owner: RouteOwner) => Given | Promise<Given>);

const INVITED = "invited@example.org";
/** There is no such video; `web/try_test.ts` has one. */
const VIDEO = { path: `/try/videos/video_${"0".repeat(32)}`, status: 404 };
/** The version of a new key. */
const version = "1";

/** Routes that need no sign-in. */
export const PUBLIC: readonly string[] = [
  ...["GET /", "GET /assets/:version/:name", "GET /reference", "GET /sign-in"],
  ...["POST /sign-in", "GET /sign-in/oidc", "GET /sign-in/oidc/callback"],
  ...["GET /link/:secret", "POST /link/:secret"],
];

const REQUESTS: Record<string, Make> = {
  "GET /": { status: 302 },
  "GET /assets/:version/:name": ({ deps }) => ({
    path: deps.assets.stylesheet,
  }),
  "GET /sign-in": { status: 302 },
  "POST /sign-in": (_, { email }) => ({
    form: { email, password: PASSWORD, code: "", next: "/keys" },
    events: ["session.signed_in"],
  }),
  "GET /link/:secret": async (site) => ({
    path: await invitation(site, INVITED),
  }),
  "POST /link/:secret": async (site) => ({
    path: await invitation(site, INVITED),
    form: { email: "", new_password: PASSWORD },
    events: ["account.created", "session.signed_in"],
  }),
  // There is no provider here; `sign_in/oidc_test.ts` has one.
  "GET /sign-in/oidc": { status: 404 },
  "GET /sign-in/oidc/callback": { status: 404 },
  "POST /keys/new": async (_, { client }) => {
    const page = await client.get("/keys/new");
    const nonce = hiddenField(page.text, "nonce");
    const form = keyForm("One more", { nonce });
    return { form, events: ["key.created"], status: 201 };
  },
  "POST /keys/:id/edit": {
    ...{ form: keyForm("Renamed", { version }), events: ["key.edited"] },
  },
  "POST /keys/:id/enable": async ({ deps }, { ownerId, keyId }) => {
    const actor = { by: "test", ip: "" };
    await deps.keys.disable({ ownerId, keyId, version: null, actor });
    return { form: { version: "2" }, events: ["key.enabled"] };
  },
  "POST /keys/:id/disable": {
    form: { version, stop_running: "on" },
    events: ["key.disabled", "key.stop_requested"],
  },
  "POST /keys/:id/delete": {
    ...{ form: { version, sure: "on" }, events: ["key.deleted"] },
  },
  "POST /keys/:id/rotate": {
    form: { version, old: "now", nonce: "a".repeat(43) },
    events: ["key.created", "key.rotated"],
    status: 201,
  },
  "POST /try": { form: tryForm("Hi"), events: ["key.created"], status: 200 },
  "POST /try/stream": {
    ...{ form: tryForm("Hi"), events: ["key.created"], status: 200 },
  },
  "POST /try/videos/:id": {
    ...{ ...VIDEO, form: tryForm("Hi"), events: ["key.created"] },
  },
  "GET /try/videos/:id/content": async (_, { client }) => {
    await client.post("/try", tryForm("Makes the key of the session"));
    return { path: `${VIDEO.path}/content`, status: 404 };
  },
  "POST /account/password": {
    form: {
      ...{ password: PASSWORD, new_password: "quite another phrase" },
      end_others: "on",
    },
    events: ["session.confirmed", "account.password_changed"],
  },
  "POST /account/second-factor": async (site, { client }) => {
    const page = await client.get("/account/second-factor");
    const secret = /secret=([A-Z2-7]{32})/.exec(page.text)?.[1] ?? "";
    return {
      form: { code: codeOf(site, secret), password: PASSWORD },
      events: ["session.confirmed", "account.second_factor_on"],
      status: 200,
    };
  },
  "POST /account/second-factor/off": {
    form: { password: PASSWORD },
    events: ["session.confirmed", "account.second_factor_off"],
  },
  "POST /account/sessions/end": async ({ deps }, { ownerId }) => {
    const [session] = await deps.sessions.list(ownerId);
    const form = { session: session?.id ?? "" };
    return { form, events: ["session.revoked"] };
  },
  "POST /account/sessions/end-all": { events: ["session.revoked"] },
  "POST /confirm": {
    form: { password: PASSWORD, next: "/keys" },
    events: ["session.confirmed"],
  },
  "POST /account/notice": async ({ deps }, { ownerId }) => {
    await deps.owners.disableTotp(ownerId, "op@example.org");
    return {};
  },
  "POST /sign-out": { events: ["session.signed_out"] },
  "POST /people": {
    form: { email: "new@example.org" },
    events: ["owner.invited"],
    status: 201,
  },
  "POST /people/:id": { form: { what: "disable" }, events: ["owner.disabled"] },
  "POST /people/:id/limits": {
    form: { ...limitsOf(() => ""), concurrency: "4" },
    events: ["owner.limits_changed"],
  },
};

/**
 * Every route of the console: its path (`/keys/:id/edit`), whether it is only for
 * signed-in owners or only for operators, and a valid request. Fails when a form is not in the table above.
 */
export function routeCases({ routes }: TestConsole) {
  const unknown = Object.keys(REQUESTS).filter((name) =>
    !routes.includes(name)
  );
  assert.deepEqual(unknown, [], "no such routes");
  return routes.map((route) => {
    const [method, pattern = ""] = route.split(" ");
    const isPost = method === "POST";
    const isForOperators = pattern.startsWith("/people");
    const isPrivate = !PUBLIC.includes(route);
    const make = REQUESTS[route] ?? (isPost ? assert.fail(route) : {});
    const request = async (
      site: TestConsole,
      owner: RouteOwner,
    ): Promise<RouteRequest> => {
      const id = isForOperators
        ? await site.deps.owners.ensure(INVITED)
        : owner.keyId;
      return {
        path: pattern.replace(":id", id),
        ...isPost ? { form: {}, status: 303 } : { form: null, status: 200 },
        events: [],
        ...typeof make === "function" ? await make(site, owner) : make,
      };
    };
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
