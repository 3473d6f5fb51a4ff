import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import type { Answer, Form } from "../console_fixture.ts";
import { fieldsOf, makeKey, ORIGIN, startConsole } from "../console_fixture.ts";
import {
  checkHeaders,
  entries,
  PUBLIC,
  routeCases,
  routeOwner,
  sendRequest,
} from "../routes_fixture.ts";
import { addRoutes, createConsole } from "../app.tsx";

/**
 * Guarantee: on every route, only the owner's own request, sent from our own pages,
 * shows or changes anything, and it does what it says.
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
    ...{ "sec-fetch-site": "cross-site", origin: ORIGIN },
  }],
  ["same-origin with another Origin", {
    ...{ "sec-fetch-site": "same-origin", origin: "https://evil.test" },
  }],
  ["no Origin, but our Referer", { referer: `${ORIGIN}/keys` }],
];

const TYPES = [
  ...["application/json", "text/plain", "multipart/form-data; boundary=x", ""],
];

/** Fields that an attacker might try to set: members of keys, of accounts and of every object. */
const EXTRAS = [
  ...["own", "owner", "ownerId", "owner_id", "st", "state", "kid", "id"],
  ...["hash", "hint", "ver", "createdAtMs", "limits", "is_admin", "role"],
  ...["__proto__", "constructor", "prototype", "toString"],
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

Deno.test("every route", async (t) => {
  // As the deployed Redis user, whose permissions have to suffice.
  await using site = await startConsole({ redisUser: "key-admin" });
  const other = await routeOwner(site, 0);
  const { value } = await makeKey(other.client, "For the API");
  const routes = routeCases(site);
  const sessions: string[] = [];
  for (const [n, [route, { pattern, request, ...is }]] of routes.entries()) {
    await t.step(route, async (t) => {
      const { isPost, isPrivate, isForOperators } = is;
      const owner = await routeOwner(site, n + 1);
      const { client, ownerId } = owner;
      if (isForOperators) await site.deps.owners.giveRole(ownerId);
      site.clock.nowMs += 1_000;
      const right = await request(site, owner);
      const { path, status, events } = right;
      // Records the last use of this session, so that its refused requests change nothing.
      await other.client.get("/keys");
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
            const answer = await sendRequest(other.client, right);
            refuses(answer, 404, "another owner");
            if (isForOperators) assert.match(answer.text, /This page does not/);
          }
          const method = isPost ? "POST" : "GET";
          const credentials = [
            { authorization: `bearer ${value}` },
            { authorization: "basic a:b" },
            { cookie: `__Host-sid=${value}` },
          ];
          for (const headers of credentials) {
            const init = { method, headers };
            refuses(await site.client().send(path, init), 401, "no session");
            // A session beside the key does not help.
            if (headers.authorization) {
              refuses(await client.send(path, init), 401, "a session");
            }
          }
          // A secret in the URL grants nothing and is not passed on, since proxies log URLs.
          const session = client.cookies.get("__Host-sid") ?? "";
          sessions.push(session);
          const queries = ["", `?api_key=${value}`, `?__Host-sid=${session}`];
          for (const query of isPrivate ? queries : []) {
            const answer = await sendRequest(site.client(), {
              ...right,
              path: path + query,
            });
            refuses(answer, 302, query);
            const location = answer.headers.get("location") ?? "";
            assert.match(location, /^\/sign-in\?next=[-.\w%]+$/);
          }
        },
      );

      await t.step(
        "ASVS 3.5.1, 3.5.2 (CSRF): other sites and other media types are refused",
        async () => {
          if (!isPost) return;
          const body = fieldsOf(right.form ?? {});
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
          const add = (more: Form) =>
            sendRequest(client, { path, form: { ...right.form, ...more } });
          for (const extra of EXTRAS) {
            const answer = await add({ [extra]: "x" });
            refuses(answer, 400, extra);
            assert.match(answer.text, /malformed or unknown field/, extra);
          }
          for (const name of Object.keys(right.form ?? {})) {
            // The lists.
            if (["scopes", "models"].includes(name)) continue;
            refuses(await add({ [name]: ["1", "1"] }), 400, `${name} twice`);
          }
          const type = { "content-type": FORM_TYPE };
          for (const [name, status, body] of BODIES) {
            refuses(await send({ ...OURS, ...type }, body), status, name);
          }
        },
      );

      await t.step("ASVS 3.5.3, 4.1.4: other methods are 405", async () => {
        const methods = routes.filter(([, other]) => other.pattern === pattern)
          .map(([, { isPost }]) => isPost ? "POST" : "GET, HEAD").sort();
        const others = ["PUT", "DELETE", "PATCH", "OPTIONS"];
        if (!methods.includes("GET, HEAD")) others.push("GET");
        for (const method of others) {
          const answer = await client.send(path, { method, headers: OURS });
          refuses(answer, 405, method);
          assert.equal(answer.headers.get("allow"), methods.join(", "));
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
            ? await site.deps.owners.ensure("invited@example.org")
            : ownerId;
          const earlier = (await entries(site, audited)).length;
          const answer = await sendRequest(client, right);
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
            assert.equal(by, isInvited ? "invited@example.org" : owner.email);
            assert.equal(ip, owner.ip);
            assert.ok(Math.abs(timeMs - Date.now()) < 60_000);
            assert.equal(
              keyId !== "" && hint !== "",
              action.startsWith("key."),
            );
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
