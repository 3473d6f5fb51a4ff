import assert from "node:assert/strict";
import { ORIGIN, startConsole } from "../console_fixture.ts";
import { routeCases, routeOwner } from "./routes_fixture.ts";

/** Guarantee: a request that does not come from our own pages changes nothing, whatever the route. */

const OURS = { origin: ORIGIN, "sec-fetch-site": "same-origin" };
const NAME = new URL(ORIGIN).host;

const FOREIGN: [name: string, headers: Record<string, string>][] = [
  ["no Origin, no Sec-Fetch-Site", {}],
  ["Origin: null", { origin: "null" }],
  ["another origin", { origin: "https://evil.test" }],
  ["our name on http", { origin: `http://${NAME}` }],
  ["our name on another port", { origin: `${ORIGIN}:8443` }],
  ["a name that begins like ours", { origin: `${ORIGIN}.evil.test` }],
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

Deno.test("ASVS 3.5.1, 3.5.2 (CSRF): on every route that changes something, what comes from elsewhere is refused and changes nothing", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  for (const [n, route] of posts.entries()) {
    const owner = await routeOwner(site, n);
    site.clock.nowMs += 1_000;
    const { client } = owner;
    for (const request of await route.requests(site, owner)) {
      const token = await client.formToken();
      const body = (formToken: string | null) => {
        const form = new URLSearchParams();
        if (formToken !== null) form.set("form_token", formToken);
        for (const [name, values] of Object.entries(request.form ?? {})) {
          for (const value of [values].flat()) form.append(name, value);
        }
        return form;
      };
      const before = await site.stored();
      const ask = async (init: RequestInit) =>
        (await client.send(request.path, { method: "POST", ...init })).status;
      for (const [name, headers] of FOREIGN) {
        await t.step(`${route.route}: ${name}`, async () => {
          assert.equal(await ask({ headers, body: body(token) }), 403);
        });
      }
      for (const type of TYPES) {
        await t.step(`${route.route}: ${type || "no type"}`, async () => {
          const headers = { ...OURS, "content-type": type };
          const text = body(token).toString();
          assert.equal(await ask({ headers, body: text }), 415);
          const from = { "content-type": type, origin: "https://evil.test" };
          assert.equal(await ask({ headers: from, body: text }), 403);
        });
      }
      const wrong = [
        null,
        "",
        "x",
        token.slice(1),
        `${token}a`,
        "ä".repeat(43),
      ];
      for (const formToken of route.isPrivate ? wrong : []) {
        await t.step(`${route.route}: token ${formToken}`, async () => {
          const init = { headers: OURS, body: body(formToken) };
          assert.equal(await ask(init), 403);
        });
      }
      assert.deepEqual(await site.stored(), before, route.route);
      await t.step(`${route.route}: our own form`, async () => {
        const init = { headers: OURS, body: body(token) };
        assert.equal(await ask(init), request.status);
        assert.notDeepEqual(await site.stored(), before, "and it does change");
      });
    }
  }
});

Deno.test("ASVS 3.5.1: another owner's form token does not fit", async () => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const bob = await routeOwner(site, 2);
  const answer = await ada.client.send("/sign-out", {
    method: "POST",
    headers: OURS,
    body: new URLSearchParams({ form_token: await bob.client.formToken() }),
  });
  assert.equal(answer.status, 403);
  assert.equal((await ada.client.get("/keys")).status, 200);
});

Deno.test("ASVS 3.5.3, 4.1.4: nothing changes on GET, and other methods are 405", async (t) => {
  await using site = await startConsole();
  const owner = await routeOwner(site, 1);
  const routes = routeCases(site);
  const methodsOf = (pattern: string) => {
    const has = (method: string) =>
      routes.some(({ route }) => route === `${method} ${pattern}`);
    return [has("GET") && "GET, HEAD", has("POST") && "POST"]
      .filter(Boolean).join(", ");
  };
  // What their pages keep for a form to come is no change of anything that was there.
  const prepares = ["GET /account/second-factor", "GET /sign-in/oidc"];
  for (const { route, isPost, requests } of routes) {
    const [request] = await requests(site, owner);
    const path = request?.path ?? assert.fail(route);
    const pattern = route.replace(/^\w+ /, "");
    const before = await site.stored();
    if (!isPost) {
      await t.step(route, async () => {
        await owner.client.get(path);
        if (prepares.includes(route)) return;
        assert.deepEqual(await site.stored(), before);
      });
    } else if (methodsOf(pattern) === "POST") {
      await t.step(`GET ${pattern}`, async () => {
        const answer = await owner.client.get(path);
        assert.equal(answer.status, 405);
        assert.equal(answer.headers.get("allow"), "POST");
      });
    }
    for (const method of ["PUT", "DELETE", "PATCH", "OPTIONS"]) {
      await t.step(`${method} ${pattern}`, async () => {
        const answer = await owner.client.send(path, {
          method,
          headers: {
            ...OURS,
            "content-type": "application/x-www-form-urlencoded",
          },
          body: `form_token=${await owner.client.formToken()}`,
        });
        const bare = await owner.client.send(path, { method, headers: OURS });
        for (const { status, headers } of [answer, bare]) {
          assert.equal(status, 405);
          assert.equal(headers.get("allow"), methodsOf(pattern));
        }
      });
    }
    if (isPost) assert.deepEqual(await site.stored(), before, route);
  }
});
