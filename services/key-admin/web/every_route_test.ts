import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import {
  type Answer,
  codeOf,
  fieldsOf,
  type Form,
  invitation,
  keyForm,
  makeKey,
  ORIGIN,
  PASSWORD,
  startConsole,
  type TestClient,
  type TestConsole,
  tryForm,
} from "../console_fixture.ts";
import { addRoutes, createConsole } from "../app.tsx";
import type { AuditAction } from "../domain/audit/audit_log.ts";
import { limitsOf } from "../domain/keys/settings.ts";
import { checkHeaders, entries, routeOwner } from "../routes_fixture.ts";

/**
 * Guarantee: on every route, only the owner's own request, sent from our own pages,
 * shows or changes anything, and it does what it says. The routes come from the
 * console itself: the test fails for a route without a valid request below.
 */

const FORM_TYPE = "application/x-www-form-urlencoded";
const OURS = { origin: ORIGIN, "sec-fetch-site": "same-origin" };
const NAME = new URL(ORIGIN).host;

const FOREIGN: [name: string, headers: Record<string, string>][] = [
  ["no Origin, no Sec-Fetch-Site", {}],
  ["Origin: null", { origin: "null" }],
  ["another origin", { origin: "https://evil.test" }],
  ["our host over http", { origin: `http://${NAME}` }],
  ["our host on another port", { origin: `${ORIGIN}:8443` }],
  ["a host that begins like ours", { origin: `${ORIGIN}.evil.test` }],
  ["Sec-Fetch-Site: cross-site", { "sec-fetch-site": "cross-site" }],
  ["Sec-Fetch-Site: same-site", { "sec-fetch-site": "same-site" }],
  ["Sec-Fetch-Site: none", { "sec-fetch-site": "none" }],
  ["cross-site with our Origin", {
    "sec-fetch-site": "cross-site",
    origin: ORIGIN,
  }],
  ["same-origin with another Origin", {
    "sec-fetch-site": "same-origin",
    origin: "https://evil.test",
  }],
  ["no Origin, but our Referer", { referer: `${ORIGIN}/keys` }],
];

const TYPES = [
  "application/json",
  "text/plain",
  "multipart/form-data; boundary=x",
  "",
];

/**
 * Fields that an attacker might try to set: members of keys, of accounts and of every
 * object.
 */
const EXTRAS = [
  "own",
  "owner",
  "ownerId",
  "owner_id",
  "st",
  "state",
  "kid",
  "id",
  "hash",
  "hint",
  "ver",
  "createdAtMs",
  "limits",
  "is_admin",
  "role",
  "__proto__",
  "constructor",
  "prototype",
  "toString",
];

const BODIES: [name: string, status: number, body: BodyInit][] = [
  ["32 KiB and a byte", 413, `a=${"a".repeat(32 * 1024 - 1)}`],
  ["1 MiB", 413, "a".repeat(1024 * 1024)],
  ["no UTF-8", 400, Uint8Array.of(0x61, 0x3d, 0xff)],
  ["overlong", 400, Uint8Array.of(0x61, 0x3d, 0xc0, 0xaf)],
  ["surrogate", 400, Uint8Array.of(0x61, 0x3d, 0xed, 0xa0, 0x80)],
  ["cut", 400, Uint8Array.of(0x61, 0x3d, 0xe4, 0xbd)],
  // Read, and refused for its field.
  ["32 KiB", 400, `a=${"a".repeat(32 * 1024 - 2)}`],
];

/** Their pages store a one-time token for the form; no other GET changes anything. */
const PREPARES = ["GET /account/second-factor"];

/**
 * A valid request of an owner, and what it leads to: entries in the audit log and a
 * status, by default 200 for a GET and 303 for a form. The id in the path is that of
 * the owner's key, or of somebody else on pages of operators.
 */
type Request = readonly [
  form?: Form,
  events?: readonly AuditAction[],
  status?: number,
  path?: string,
];
type Owner = Awaited<ReturnType<typeof routeOwner>>;
type Make = (site: TestConsole, owner: Owner) => Request | Promise<Request>;

const INVITED = "invited@example.org";
/** There is no such video; `web/try_test.ts` has one. */
const VIDEO = `/try/videos/video_${"0".repeat(32)}`;
/** The version of a new key. */
const version = "1";
const nonce = "a".repeat(43);

/** Routes that need no sign-in. */
const PUBLIC: readonly string[] = [
  "GET /",
  "GET /assets/:version/:name",
  "GET /reference",
  "GET /sign-in",
  "POST /sign-in",
  "GET /sign-in/oidc",
  "GET /sign-in/oidc/callback",
  "GET /link/:secret",
  "POST /link/:secret",
];

const REQUESTS: Record<string, Request | Make> = {
  "GET /": [{}, [], 302],
  "GET /assets/:version/:name": (
    { deps: { assets } },
  ) => [{}, [], 200, assets.stylesheet],
  "GET /sign-in": [{}, [], 302],
  "POST /sign-in": (_, { email }) => [
    { email, password: PASSWORD, code: "", next: "/keys" },
    ["session.signed_in"],
  ],
  "GET /link/:secret": async (
    site,
  ) => [{}, [], 200, await invitation(site, INVITED)],
  "POST /link/:secret": async (site) => [
    { email: "", new_password: PASSWORD },
    ["account.created", "session.signed_in"],
    303,
    await invitation(site, INVITED),
  ],
  // There is no provider here; `sign_in/oidc_test.ts` has one.
  "GET /sign-in/oidc": [{}, [], 404],
  "GET /sign-in/oidc/callback": [{}, [], 404],
  "POST /keys/new": [keyForm("One more", { nonce }), ["key.created"], 201],
  "POST /keys/:id/edit": [keyForm("Renamed", { version }), ["key.edited"]],
  "POST /keys/:id/enable": async ({ deps }, { ownerId, keyId }) => {
    const actor = { by: "test", ip: "" };
    await deps.keys.disable({ ownerId, keyId, version: null, actor });
    return [{ version: "2" }, ["key.enabled"]];
  },
  "POST /keys/:id/disable": [
    { version, stop_running: "on" },
    ["key.disabled", "key.stop_requested"],
  ],
  "POST /keys/:id/delete": [{ version, sure: "on" }, ["key.deleted"]],
  "POST /keys/:id/rotate": [
    { version, old: "now", nonce },
    ["key.created", "key.rotated"],
    201,
  ],
  "POST /try": [tryForm("Hi"), ["key.created"], 200],
  "POST /try/stream": [tryForm("Hi"), ["key.created"], 200],
  "POST /try/videos/:id": [tryForm("Hi"), ["key.created"], 404, VIDEO],
  "GET /try/videos/:id/content": async (_, { client }) => {
    await client.post("/try", tryForm("Makes the key of the session"));
    return [{}, [], 404, `${VIDEO}/content`];
  },
  "POST /account/password": [
    { password: PASSWORD, new_password: "quite another phrase" },
    ["session.confirmed", "account.password_changed"],
  ],
  "POST /account/second-factor": async (site, { client }) => {
    const page = await client.get("/account/second-factor");
    const secret = /secret=([A-Z2-7]{32})/.exec(page.text)?.[1] ?? "";
    return [
      { code: codeOf(site, secret), password: PASSWORD },
      ["session.confirmed", "account.second_factor_on"],
      200,
    ];
  },
  "POST /account/second-factor/off": [
    { password: PASSWORD },
    ["session.confirmed", "account.second_factor_off"],
  ],
  "POST /account/sessions/end": async ({ deps }, { ownerId }) => {
    const [session] = await deps.sessions.list(ownerId);
    return [{ session: session?.id ?? "" }, ["session.revoked"]];
  },
  "POST /account/sessions/end-all": [{}, ["session.revoked"]],
  "POST /account/notice": async ({ deps }, { ownerId }) => {
    await deps.owners.disableTotp(ownerId, "op@example.org");
    return [];
  },
  "POST /sign-out": [{}, ["session.signed_out"]],
  "POST /people": [{ email: "new@example.org" }, ["owner.invited"], 201],
  "POST /people/:id": [{ what: "disable" }, ["owner.disabled"]],
  "POST /people/:id/limits": [
    { ...limitsOf(() => ""), concurrency: "4" },
    ["owner.limits_changed"],
  ],
};

Deno.test("every route", async (t) => {
  // As the deployed Redis user, whose permissions have to suffice.
  await using site = await startConsole({ redisUser: "key-admin" });
  const other = await routeOwner(site, 0);
  const { value } = await makeKey(other.client, "For the API");
  const { routes } = site;
  const unknown = Object.keys(REQUESTS).filter((it) => !routes.includes(it));
  assert.deepEqual(unknown, [], "no such routes");
  const sessions: string[] = [];
  for (const [n, route] of routes.entries()) {
    await t.step(route, async (t) => {
      const [method = "", pattern = ""] = route.split(" ");
      const isPost = method === "POST";
      const isPrivate = !PUBLIC.includes(route);
      const isForOperators = pattern.startsWith("/people");
      const owner = await routeOwner(site, n + 1);
      const { client, ownerId } = owner;
      if (isForOperators) await site.deps.owners.giveRole(ownerId);
      site.clock.nowMs += 1_000;
      const id = isForOperators
        ? await site.deps.owners.ensure(INVITED)
        : owner.keyId;
      const make = REQUESTS[route] ?? (isPost ? assert.fail(route) : []);
      const [
        form = {},
        events = [],
        status = isPost ? 303 : 200,
        path = pattern.replace(":id", id),
      ] = typeof make === "function" ? await make(site, owner) : make;
      const ask = (who: TestClient, { query = "", more = {} } = {}) =>
        isPost
          ? who.post(path + query, { ...form, ...more })
          : who.get(path + query);
      // Records the last use of these sessions, so that refused requests change
      // nothing.
      for (const who of [client, other.client]) await who.get("/keys");
      const before = await site.stored();
      const send = (headers: Record<string, string>, body: BodyInit) =>
        client.send(path, { method: "POST", headers, body });
      const refuses = (answer: Answer, status: number, name: string) => {
        assert.equal(answer.status, status, name);
        assert.ok(!answer.text.includes("Secret project"), name);
      };
      await t.step(
        "API1, API2, API5, ASVS 7.2.2, 8.2.1, 8.2.2, 8.4.1, 14.2.1: neither a stranger nor another owner nor an API key gets in",
        async () => {
          if (isForOperators || pattern.startsWith("/keys/:id")) {
            const answer = await ask(other.client);
            refuses(answer, 404, "another owner");
            if (isForOperators) assert.match(answer.text, /This page does not/);
          }
          const sendWith = (headers: Record<string, string>) =>
            site.client().send(path, {
              method,
              headers: { ...OURS, ...headers },
              ...isPost && { body: fieldsOf(form) },
            });
          const bearer = { authorization: `bearer ${value}` };
          refuses(await sendWith(bearer), 401, "an API key");
          if (!isPrivate) return;
          // A secret in the URL grants nothing and is not passed on, since proxies log
          // URLs.
          const session = client.cookies.get("__Host-sid") ?? "";
          sessions.push(session);
          const queries = ["", `?api_key=${value}`, `?__Host-sid=${session}`];
          const strangers = [
            ...queries.map((query) => ask(site.client(), { query })),
            sendWith({ cookie: `__Host-sid=${value}` }),
          ];
          const isKept = isPost && !/^.(account|sign-out)/.test(path);
          for (const answer of await Promise.all(strangers)) {
            refuses(answer, isKept ? 401 : 302, "a stranger");
            const location = answer.headers.get("location") ??
              "/sign-in?next=-";
            assert.match(location, /^\/sign-in\?next=[-.\w%]+$/);
          }
        },
      );
      await t.step(
        "ASVS 3.5.1, 3.5.2 (CSRF): other sites and other media types are refused",
        async () => {
          if (!isPost) return;
          const body = fieldsOf(form);
          for (const [name, headers] of FOREIGN) {
            refuses(await send(headers, body), 403, name);
          }
          for (const type of TYPES) {
            const given = { "content-type": type };
            refuses(await send({ ...OURS, ...given }, `${body}`), 415, type);
            const foreign = { ...given, origin: "https://evil.test" };
            refuses(await send(foreign, `${body}`), 403, type);
          }
        },
      );
      await t.step(
        "API3, ASVS 1.5.3, 2.2.1, 2.2.2, 15.3.3 (mass assignment): unknown and repeated fields, and forms that are too large or not UTF-8 are refused",
        async () => {
          if (!isPost) return;
          for (const extra of EXTRAS) {
            const answer = await ask(client, { more: { [extra]: "x" } });
            refuses(answer, 400, extra);
            assert.match(answer.text, /malformed or unknown field/, extra);
          }
          for (const name of Object.keys(form)) {
            // The lists.
            if (["scopes", "models"].includes(name)) continue;
            const more = { [name]: ["1", "1"] };
            refuses(await ask(client, { more }), 400, `${name} twice`);
          }
          const type = { "content-type": FORM_TYPE };
          for (const [name, status, body] of BODIES) {
            refuses(await send({ ...OURS, ...type }, body), status, name);
          }
        },
      );
      await t.step("ASVS 3.5.3, 4.1.4: other methods are 405", async () => {
        const methods = ["GET", "POST"]
          .filter((method) => routes.includes(`${method} ${pattern}`));
        const allow = methods.join(", ").replace("GET", "GET, HEAD");
        const others = ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"]
          .filter((method) => !methods.includes(method));
        for (const method of others) {
          const answer = await client.send(path, { method, headers: OURS });
          refuses(answer, 405, method);
          assert.equal(answer.headers.get("allow"), allow);
        }
      });
      assert.deepEqual(await site.stored(), before, "nothing has changed");
      await t.step(
        "ASVS 1.3.2, 3.4.1-3.4.6, 4.1.1, 14.3.2, 16.3.1, API8: the owner's own request does what it says, is audited with who, when and from where, and answered with the security headers, a charset, no-store and nothing inline",
        async () => {
          const isFile = pattern.startsWith("/assets/");
          const isInvited = pattern.startsWith("/link/");
          checkHeaders(await site.client().get(path), isFile);
          const audited = isInvited
            ? await site.deps.owners.ensure(INVITED)
            : ownerId;
          const earlier = (await entries(site, audited)).length;
          const answer = await ask(client);
          assert.equal(answer.status, status, site.logLines.at(-1));
          checkHeaders(answer, isFile);
          const inline =
            /\sstyle=|<style|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)/i;
          assert.ok(isFile || !inline.test(answer.text), answer.text);
          if (PREPARES.includes(route)) return;
          const changed = !isDeepStrictEqual(await site.stored(), before);
          assert.equal(changed, isPost, "only a form changes something");
          const added = (await entries(site, audited)).slice(earlier);
          assert.deepEqual(added.map(({ action }) => action), events);
          for (const { by, ip, timeMs, action, keyId, hint } of added) {
            assert.equal(by, isInvited ? INVITED : owner.email);
            assert.equal(ip, owner.ip);
            assert.ok(Math.abs(timeMs - Date.now()) < 60_000);
            const isOfKey = keyId !== "" && hint !== "";
            assert.equal(isOfKey, action.startsWith("key."));
          }
        },
      );
    });
  }
  const log = site.logLines.join("\n");
  for (const session of sessions) assert.ok(!log.includes(session));
});

Deno.test("ASVS 8.2.1: a route is private unless it is one of these", async () => {
  await using site = await startConsole();
  assert.deepEqual(PUBLIC.filter((route) => !site.routes.includes(route)), []);
  assert.equal(PUBLIC.length, 9);
  const app = createConsole(site.deps);
  addRoutes(app, { "/just-added": { GET: (c) => c.text("secret") } });
  const headers = { host: NAME };
  const answer = await app.request(`${ORIGIN}/just-added`, { headers });
  assert.equal(answer.headers.get("location"), "/sign-in?next=%2Fjust-added");
});
