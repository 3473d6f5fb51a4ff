import assert from "node:assert/strict";
import {
  type Answer,
  type Form,
  hiddenField,
  keyForm,
  PASSWORD,
  storedKey,
  type TestClient,
  type TestConsole,
} from "./console_fixture.ts";
import { totpCode } from "./domain/sign_in/totp.ts";

/**
 * A valid request for every route of the console. The routes come from the
 * console itself, so every test that covers all of them fails for a route that
 * is missing here.
 */

/** A signed-in owner with a key. */
export interface RouteOwner {
  email: string;
  ownerId: string;
  client: TestClient;
  keyId: string;
}

/** A valid request of an owner. */
export interface RouteRequest {
  path: string;
  /** Null: GET. */
  form: Form | null;
  /** The status of its response. */
  status: number;
}

/** One route with a valid request. */
export interface RouteCase {
  /** `POST /keys/:id/edit` */
  route: string;
  isPost: boolean;
  /** Only for signed-in owners. */
  isPrivate: boolean;
  /** About one key, which the path names. */
  namesKey: boolean;
  /** Prepares a valid request. */
  request(site: TestConsole, owner: RouteOwner): Promise<RouteRequest>;
}

type Make = (
  site: TestConsole,
  owner: RouteOwner,
) => RouteRequest | Promise<RouteRequest>;

const get = (path: string, status = 200): RouteRequest => ({
  ...{ path, form: null, status },
});
const post = (path: string, form: Form, status = 303): RouteRequest => ({
  ...{ path, form, status },
});
const NEW_PASSWORD = "quite another phrase";
/** The version of a new key. */
const version = "1";

const PUBLIC: Record<string, Make> = {
  "GET /": () => get("/", 302),
  "GET /assets/:version/:name": ({ deps }) => get(deps.assets.stylesheet),
  "GET /sign-in": () => get("/sign-in", 302),
  "POST /sign-in": (_, { email }) =>
    post("/sign-in", { email, password: PASSWORD, code: "", next: "/keys" }),
  "GET /link/:secret": async (site) => get(await invitation(site)),
  "POST /link/:secret": async (site) =>
    post(await invitation(site), { email: "", new_password: PASSWORD }),
  // There is no provider here; `sign_in/oidc_test.ts` has one.
  "GET /sign-in/oidc": () => get("/sign-in/oidc", 404),
  "GET /sign-in/oidc/callback": () => get("/sign-in/oidc/callback?code=x", 404),
};

const PRIVATE: Record<string, Make> = {
  "GET /keys": () => get("/keys"),
  "POST /keys": async (_, { client }) => {
    const page = await client.get("/keys/new");
    const nonce = hiddenField(page.text, "nonce");
    return post("/keys", keyForm("One more", { nonce }), 201);
  },
  "GET /keys/new": () => get("/keys/new"),
  "GET /keys/:id": (_, { keyId }) => get(`/keys/${keyId}`),
  "GET /keys/:id/edit": (_, { keyId }) => get(`/keys/${keyId}/edit`),
  "POST /keys/:id/edit": (_, { keyId }) =>
    post(`/keys/${keyId}/edit`, keyForm("Renamed", { version })),
  "GET /keys/:id/ask/disable": (_, { keyId }) =>
    get(`/keys/${keyId}/ask/disable`),
  "GET /keys/:id/ask/delete": (_, { keyId }) =>
    get(`/keys/${keyId}/ask/delete`),
  "GET /keys/:id/ask/rotate": (_, { keyId }) =>
    get(`/keys/${keyId}/ask/rotate`),
  "POST /keys/:id/enable": async ({ deps }, { ownerId, keyId }) => {
    const actor = { by: "test", ip: "" };
    await deps.keys.disable({ ownerId, keyId, version: null, actor });
    return post(`/keys/${keyId}/enable`, { version: "2" });
  },
  "POST /keys/:id/disable": (_, { keyId }) =>
    post(`/keys/${keyId}/disable`, { version, stop_running: "on" }),
  "POST /keys/:id/delete": (_, { keyId }) =>
    post(`/keys/${keyId}/delete`, { version, sure: "on" }),
  "POST /keys/:id/rotate": (_, { keyId }) =>
    post(
      `/keys/${keyId}/rotate`,
      { version, old: "now", nonce: "a".repeat(43) },
      201,
    ),
  "GET /usage": () => get("/usage"),
  "GET /audit": () => get("/audit"),
  "GET /audit.csv": () => get("/audit.csv"),
  "GET /account": () => get("/account"),
  "POST /account/password": () =>
    post("/account/password", {
      password: PASSWORD,
      new_password: NEW_PASSWORD,
      end_others: "on",
    }),
  "GET /account/second-factor": () => get("/account/second-factor"),
  "POST /account/second-factor": async (site, { client }) => {
    const page = await client.get("/account/second-factor");
    const secret = /secret=([A-Z2-7]{32})/.exec(page.text)?.[1] ?? "";
    const code = totpCode(secret, Math.floor(site.clock.nowMs / 30_000));
    return post("/account/second-factor", { code, password: PASSWORD }, 200);
  },
  "POST /account/second-factor/off": () =>
    post("/account/second-factor/off", { password: PASSWORD }),
  "POST /account/sessions/end": async ({ deps }, { ownerId }) => {
    const [session] = await deps.sessions.list(ownerId);
    return post("/account/sessions/end", { session: session?.id ?? "" });
  },
  "POST /account/sessions/end-all": () => post("/account/sessions/end-all", {}),
  "GET /confirm": () => get("/confirm"),
  "POST /confirm": () =>
    post("/confirm", { password: PASSWORD, next: "/keys" }),
  "POST /sign-out": () => post("/sign-out", {}),
};

/** Every route of the console. Fails when one is not in the tables above. */
export function routeCases({ routes }: TestConsole): RouteCase[] {
  assert.deepEqual(
    [...Object.keys(PUBLIC), ...Object.keys(PRIVATE)].sort(),
    [...routes].sort(),
    "every route has a valid request here",
  );
  return routes.map((route) => ({
    route,
    isPost: route.startsWith("POST "),
    isPrivate: Object.hasOwn(PRIVATE, route),
    namesKey: route.includes("/keys/:id"),
    request: async (site, owner) => {
      const make = PUBLIC[route] ?? PRIVATE[route] ?? assert.fail(route);
      return await make(site, owner);
    },
  }));
}

/** Sends a request as our own pages do. */
export const sendRequest = (
  client: TestClient,
  { path, form }: RouteRequest,
): Promise<Answer> =>
  form === null ? client.get(path) : client.post(path, form);

/** The `n`th owner, signed in, with one key. Each has a network of their own. */
export async function routeOwner(
  site: TestConsole,
  n: number,
): Promise<RouteOwner> {
  const email = `owner${n}@example.org`;
  const client = await site.signedIn(email, `2001:db8:0:${n.toString(16)}::1`);
  const ownerId = await site.deps.owners.find(email) ?? assert.fail(email);
  const { id } = await storedKey(site, ownerId, {
    description: `Secret project ${n}`,
  });
  return { email, ownerId, client, keyId: id };
}

async function invitation({ deps }: TestConsole): Promise<string> {
  const email = "invited@example.org";
  const ownerId = await deps.owners.ensure(email);
  return `/link/${await deps.links.make({ kind: "invite", ownerId, email })}`;
}
