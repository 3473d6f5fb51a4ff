import assert from "node:assert/strict";
import { Hono } from "hono";
import {
  hiddenField,
  makeKey,
  ORIGIN,
  startConsole,
  type TestConsole,
} from "../console_fixture.ts";
import { addRoutes } from "./app.tsx";
import type { ConsoleEnv } from "./context.ts";
import { routeCases, type RouteOwner, routeOwner } from "./routes_fixture.ts";

/** Guarantee: nobody sees or changes what is another owner's, or gets in without a session of his own. */

/** All that is stored of one owner. */
const storedOf = (site: TestConsole, { ownerId }: RouteOwner) =>
  site.stored(`*${ownerId}*`);

Deno.test("API1, ASVS 8.2.1, 8.2.2, 8.4.1 (IDOR): another owner's key is 404 on every route that names one", async (t) => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const bob = await routeOwner(site, 2);
  const routes = routeCases(site).filter(({ namesKey }) => namesKey);
  assert.equal(routes.length, 8);
  for (const { route, requests } of routes) {
    const hers = await requests(site, ada);
    const before = await storedOf(site, ada);
    for (const { path, form } of hers) {
      await t.step(`${route}: ${path.replace(ada.keyId, "…")}`, async () => {
        const answer = form === null
          ? await bob.client.get(path)
          : await bob.client.post(path, form);
        assert.equal(answer.status, 404);
        assert.ok(!answer.text.includes("Secret project 1"), answer.text);
      });
    }
    assert.deepEqual(await storedOf(site, ada), before, route);
  }
  assert.deepEqual(site.stops.sent, [], "nothing of hers was stopped");
});

Deno.test("API1: lists, usage and audit log of one owner hold nothing of another", async (t) => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const bob = await routeOwner(site, 2);
  const paths = [
    ...["/keys", `/keys?search=${ada.keyId}`, "/keys?search=secret+project+1"],
    ...["/keys?last", "/usage", "/usage?range=30d", "/audit", "/audit.csv"],
    ...["/audit?action=key.", "/audit.csv?action=key.", "/account"],
  ];
  for (const path of paths) {
    await t.step(path, async () => {
      const answer = await bob.client.get(path);
      assert.equal(answer.status, 200);
      for (const secret of [ada.email, "Secret project 1", ada.ownerId]) {
        assert.ok(!answer.text.includes(secret), secret);
      }
      // What was searched for stands in the search box.
      if (!path.includes("search")) assert.ok(!answer.text.includes(ada.keyId));
    });
  }
  await t.step("a session", async () => {
    const [session] = await site.deps.sessions.list(ada.ownerId);
    const form = { session: session?.id ?? "" };
    const answer = await bob.client.post("/account/sessions/end", form);
    assert.equal(answer.status, 404);
    assert.equal((await ada.client.get("/keys")).status, 200);
  });
  await t.step("a second factor that is being set up", async () => {
    const page = await ada.client.get("/account/second-factor");
    const ticket = hiddenField(page.text, "ticket");
    const form = { ticket, code: "000000", password: "x" };
    const answer = await bob.client.post("/account/second-factor", form);
    assert.equal(answer.status, 409);
  });
});

Deno.test("ASVS 8.2.1: without a session every private route leads to the sign-in and changes nothing", async (t) => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const routes = routeCases(site).filter(({ isPrivate }) => isPrivate);
  for (const { route, requests } of routes) {
    await t.step(route, async () => {
      for (const { path, form } of await requests(site, ada)) {
        const before = await storedOf(site, ada);
        const stranger = site.client();
        const answer = form === null
          ? await stranger.get(path)
          : await stranger.post(path, form);
        assert.equal(answer.status, 302);
        assert.match(answer.headers.get("location") ?? "", /^\/sign-in\?next=/);
        assert.ok(!answer.text.includes("Secret project"));
        assert.deepEqual(await storedOf(site, ada), before);
      }
    });
  }
});

Deno.test("ASVS 8.2.1: a route is private unless it is one of these", async (t) => {
  await using site = await startConsole();
  const open = [
    "GET /",
    "GET /assets/:version/:name",
    "GET /link/:secret",
    "GET /sign-in",
    "GET /sign-in/oidc",
    "GET /sign-in/oidc/callback",
    "POST /link/:secret",
    "POST /sign-in",
  ];
  const routes = routeCases(site);
  assert.deepEqual(
    routes.filter(({ isPrivate }) => !isPrivate)
      .map(({ route }) => route).sort(),
    open,
  );
  await t.step("one that was only just added", async () => {
    const app = new Hono<ConsoleEnv>();
    addRoutes(app, site.deps, {
      "/just-added": { GET: (c) => c.text("secret") },
    });
    const answer = await app.request(`${ORIGIN}/just-added`);
    assert.equal(answer.status, 302);
    assert.equal(
      answer.headers.get("location"),
      "/sign-in?next=%2Fjust-added",
    );
  });
});

Deno.test("API2, API5, ASVS 7.2.2: a data-plane key is 401 on every route, as a bearer credential and as a cookie", async (t) => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const { value } = await makeKey(ada.client, "For the API");
  const ways: [name: string, headers: Record<string, string>][] = [
    ["bearer", { authorization: `Bearer ${value}` }],
    ["basic", { authorization: `Basic ${btoa(`key:${value}`)}` }],
    ["cookie", { cookie: `__Host-sid=${value}` }],
  ];
  for (const { route, requests, isPost } of routeCases(site)) {
    await t.step(route, async () => {
      const [request] = await requests(site, ada);
      const before = await storedOf(site, ada);
      for (const [name, headers] of ways) {
        // Without a cookie of its own, and with a good session beside the key.
        const clients = name === "cookie"
          ? [site.client()]
          : [site.client(), ada.client];
        for (const client of clients) {
          const answer = await client.send(request?.path ?? "", {
            method: isPost ? "POST" : "GET",
            headers,
          });
          assert.equal(answer.status, 401, name);
          assert.ok(!answer.text.includes("Secret project"), name);
        }
      }
      assert.deepEqual(await storedOf(site, ada), before);
    });
  }
});

Deno.test("API2, ASVS 14.2.1: a key or a session in the address is ignored", async (t) => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const { value } = await makeKey(ada.client, "For the API");
  const session = ada.client.cookies.get("__Host-sid") ?? "";
  const queries = [
    `api_key=${value}`,
    `sid=${session}`,
    `__Host-sid=${session}`,
  ];
  for (const { route, requests, isPost } of routeCases(site)) {
    if (isPost || !route.startsWith("GET /keys")) continue;
    for (const query of queries) {
      await t.step(`${route}?${query.split("=")[0]}`, async () => {
        for (const { path } of await requests(site, ada)) {
          const answer = await site.client().get(`${path}?${query}`);
          assert.equal(answer.status, 302);
          // Where to go on is the path alone: the address of the sign-in is logged by others.
          assert.ok(
            !answer.headers.get("location")?.includes(query.slice(-20)),
          );
        }
      });
    }
  }
  const log = site.logLines.join("\n");
  assert.ok(!log.includes(value) && !log.includes(session));
  for (const page of site.answers) {
    assert.ok(!/(?:href|action|src)="[^"]*sk-/.test(page), page);
  }
});
