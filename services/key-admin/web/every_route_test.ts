/**
 * Guarantee: on every route, only the owner's own request, sent from our own pages,
 * shows or changes anything, and it does what it says. The routes come from the
 * console itself: the test fails for a route without a valid request in
 * `valid_requests_fixture.ts`. The usual run tries some of many variations on each
 * route, the full one all of them (`tests/support/amount.ts`).
 */
import assert from "node:assert/strict";
import { addRoutes, createConsole } from "../app.tsx";
import { ORIGIN } from "../client_fixture.ts";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { makeKey } from "../forms_fixture.ts";
import { type RouteOwner, routeOwner } from "../routes_fixture.ts";
import { RouteCheck, sidOf } from "./route_check_fixture.ts";
import { projectRequest } from "./project_requests_fixture.ts";
import { PROJECT_ROOT } from "./request/key_scope.ts";
import {
  INVITED,
  VALID_REQUESTS,
  type ValidRequest,
} from "./valid_requests_fixture.ts";

/** Routes that need no sign-in. */
const PUBLIC: readonly string[] = [
  "GET /",
  "GET /assets/:version/:name",
  "GET /reference",
  "GET /runbooks",
  "GET /sign-in",
  "POST /sign-in",
  "GET /sign-in/oidc",
  "GET /sign-in/oidc/callback",
  "GET /link/:secret",
  "POST /link/:secret",
];

/** The request that is valid for a route and its owner. */
async function validRequest(
  site: TestConsole,
  route: string,
  owner: RouteOwner,
): Promise<ValidRequest> {
  const isForOperators = /^\w+ \/(people|models)/.test(route);
  if (isForOperators) await site.deps.owners.giveRole(owner.ownerId);
  site.clock.nowMs += 1_000;
  if (route.includes(PROJECT_ROOT)) {
    return await projectRequest(site, route, owner);
  }
  const make = VALID_REQUESTS[route] ??
    (route.startsWith("POST") ? assert.fail(`no request: ${route}`) : {});
  const request = typeof make === "function" ? await make(site, owner) : make;
  if (!isForOperators) return request;
  const id = await site.deps.owners.ensure(INVITED);
  const [, pattern = ""] = route.split(" ");
  return { path: pattern.replace(":id", id), ...request };
}

/** Fails if the fixture has a request for a route that does not exist. */
function checkRoutesOfFixture(routes: readonly string[]): void {
  const unknown = Object.keys(VALID_REQUESTS)
    .filter((route) => !routes.includes(route));
  assert.deepEqual(unknown, [], "no such routes");
}

Deno.test("every route", async (t) => {
  // As the deployed Redis user, whose permissions have to suffice.
  await using site = await startConsole({
    redisUser: "key-admin",
    projectsCreatedBy: "everyone",
  });
  const other = await routeOwner(site, 0);
  const { value: keyValue } = await makeKey(other.client, "For the API");
  const routes = site.routes;
  checkRoutesOfFixture(routes);
  const sessions: string[] = [];
  await site.keep();
  for (const [n, route] of routes.entries()) {
    // So that what is stored has the same size for each.
    await site.restore();
    await t.step(route, async (t) => {
      const owner = await routeOwner(site, n + 1);
      const request = await validRequest(site, route, owner);
      const isPrivate = !PUBLIC.includes(route);
      const isTwin = routes.includes(route.replace(PROJECT_ROOT, "")) &&
        route.includes(PROJECT_ROOT);
      const parts = { route, isPrivate, owner, other, keyValue, request };
      const check = new RouteCheck(site, parts);
      sessions.push(sidOf(owner));
      // Records the last use of these sessions, so that refused requests change
      // nothing.
      for (const { client } of [owner, other]) await client.get("/keys");
      const before = await site.stored();
      await t.step(
        "API1, API2, API5, ASVS 7.2.2, 8.2.1, 8.2.2, 8.4.1, 14.2.1: only the owner gets in",
        () => check.refusesOthers(),
      );
      if (isTwin) {
        // The other checks have run on the same page of an owner.
        await t.step("an admin is served", () => check.servesOwner(before));
        return;
      }
      await t.step(
        "ASVS 3.5.1, 3.5.2 (CSRF): other sites and other media types are refused",
        () => check.refusesOtherSites(),
      );
      await t.step(
        "API3, ASVS 1.5.3, 2.2.1, 2.2.2, 15.3.3: other fields and odd bodies are refused",
        () => check.refusesOtherForms(),
      );
      await t.step(
        "ASVS 3.5.3, 4.1.4: other methods are 405",
        () => check.refusesOtherMethods(),
      );
      assert.deepEqual(await site.stored(), before, "nothing has changed");
      await t.step(
        "ASVS 1.3.2, 3.4.1-3.4.6, 4.1.1, 14.3.2, 16.3.1, API8: the owner's request is served safely",
        () => check.servesOwner(before),
      );
    });
  }
  const log = site.logLines.join("\n");
  for (const session of sessions) assert.ok(!log.includes(session));
});

Deno.test("ASVS 8.2.1: a route is private unless it is one of these", async () => {
  await using site = await startConsole();
  assert.deepEqual(PUBLIC.filter((route) => !site.routes.includes(route)), []);
  assert.equal(PUBLIC.length, 10);
  const app = createConsole(site.deps);
  addRoutes(app, { "/just-added": { GET: (c) => c.text("secret") } });
  const headers = { host: new URL(ORIGIN).host };
  const answer = await app.request(`${ORIGIN}/just-added`, { headers });
  assert.equal(answer.headers.get("location"), "/sign-in?next=%2Fjust-added");
});
