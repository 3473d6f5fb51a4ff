/** The admin API as it is described: every route is there, and answers as it says. */
import assert from "node:assert/strict";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { storedKey } from "../console_fixture.ts";
import { logRequest } from "../usage_fixture.ts";
import { run } from "../web/running_fixture.ts";
import {
  routeOf,
  type Sent,
  startAdmin,
  type TestAdmin,
} from "./admin_fixture.ts";
import { documentPath } from "./document.ts";
import { ADMIN_BASE, ADMIN_ROUTES } from "./routes.ts";

/** Requests of all routes but those that tests of their own send, in this order. */
const REQUESTS: readonly [line: string, body?: unknown][] = [
  ["GET /owners/first"],
  ["GET /owners?search=ada"],
  ["GET /owners?sort=name"],
  ["GET /owners?email=ada@example.org"],
  ["POST /owners", { email: "new@example.org", invite: true }],
  ["PUT /owners/:ada", { limits: { concurrency: 4 } }],
  ["PATCH /owners/:ada", { limits: { budget_day: "2.5" } }],
  ["PUT /owners/:ada/operator", {}],
  ["PUT /owners/:bob/operator", {}],
  ["DELETE /owners/:ada/operator"],
  ["POST /owners/:ada/invite", {}],
  ["POST /owners/:ada/reset_password", {}],
  ["DELETE /owners/:cleo/second_factor"],
  ["DELETE /owners/:ada/sessions"],
  ["POST /projects", { name: "Search", admin: ":ada", limits: {} }],
  ["GET /projects"],
  ["GET /projects?name=Shop"],
  ["GET /projects?sort=-keys"],
  ["GET /projects/:project"],
  ["PUT /projects/:project", { name: "Shop", limits: { concurrency: 1 } }],
  ["PATCH /projects/:project", { state: "disabled", stop_running: true }],
  ["PUT /projects/:project/members/:ada", { role: "member" }],
  ["PUT /projects/:project/members/:ada", { role: "admin" }],
  ["GET /projects/:project/members"],
  ["DELETE /projects/:project/members/:bob"],
  ["GET /accounts/:ada/key_defaults"],
  ["PUT /accounts/:project/key_defaults", { expires_after_days: 30 }],
  ["GET /accounts/:ada/audit?action=owner.&rows=2"],
  ["GET /accounts/:ada/audit.csv"],
  ["POST /admin_keys", { description: "Build", scopes: ["keys"] }],
  ["GET /admin_keys"],
  ["DELETE /admin_keys/:other"],
  ["GET /models"],
  ["PUT /models/small-1/disabled", { reason: "Too slow" }],
  ["DELETE /models/small-1/disabled"],
  ["PUT /models/small-1/servers/:server/drained", {}],
  ["PUT /models/small-1/servers/:server/weight", { weight: 3 }],
  ["GET /models"],
  ["DELETE /models/small-1/servers/:server/weight"],
  ["DELETE /models/small-1/servers/:server/drained"],
  ["GET /requests?outcome=refused&from=1h"],
  ["GET /requests.csv?account=:ada"],
  ["GET /running?account=:ada"],
  ["POST /running/:request/stop", { reason: "Runs away" }],
  ["GET /usage"],
  ["GET /usage?by=account&range=7d&zone=Europe/Berlin"],
  ["GET /usage?account=:ada&by=key&range=today"],
  ["GET /usage?key=:key&by=model"],
  ["GET /usage?by=key"],
  ["GET /usage.csv?by=key&range=today"],
  ["GET /usage.csv?account=:ada&by=endpoint"],
  ["GET /usage/months"],
  ["GET /usage/months/:month"],
  ["GET /keys?account=:ada&state=enabled"],
  ["GET /keys?state=unused&sort=-tokens"],
  ["POST /keys", { account: ":ada", description: "Build" }],
  ["GET /keys/:key"],
  ["PUT /keys/:key", { description: "Build" }],
  ["PATCH /keys/:key", { limits: { concurrency: 1 }, reason: "Too many" }],
  ["POST /keys/:key/rotate", { old: "24h" }],
  ["POST /keys/:key/stop", {}],
  ["POST /keys/disable", { keys: [":key"], stop_running: true }],
  ["DELETE /keys/:key?stop_running=true&reason=Leaked"],
];

/** What the requests are about, by the names in their lines. */
async function stage(
  { site, ask, key }: TestAdmin,
) {
  const { owners, projects, adminKeys } = site.deps;
  const [ada, bob, cleo] = await Promise.all(
    ["ada", "bob", "cleo"].map((name) => owners.ensure(`${name}@example.org`)),
  );
  assert.ok(ada && bob && cleo);
  await owners.enableTotp(cleo, "SECRET");
  const by = { by: "test", ip: "", ownerId: null, as: "operator" as const };
  const project = await projects.create(by, { name: "Shop", adminId: bob });
  const wanted = { ...key, description: "Other" };
  const { key: other } = await adminKeys.create(wanted, by);
  const { id } = await storedKey(site, ada);
  const account = { ownerId: ada, keyId: id };
  const nowMs = site.deps.now();
  const redis = await site.server.connect();
  const row = { timeMs: nowMs, writtenMs: nowMs };
  await logRequest({ deps: { redis } }, account, row);
  const { json: { models } } = await ask("GET", "/models");
  const small = models.find(({ id }: { id: string }) => id === "small-1");
  const names = {
    ada,
    bob,
    cleo,
    project: project.id,
    other: other.id,
    key: id,
    server: small.servers[0].name,
    request: run(site, account),
    month: new Date(nowMs).toISOString().slice(0, 7),
  };
  return new Map<string, string>(Object.entries(names));
}

Deno.test("every route answers as it is described, and again when a request is repeated", async () => {
  const started = await startAdmin();
  const { site, ask } = started;
  await using _ = site;
  const names = await stage(started);
  const filled = (text: string) =>
    text.replace(/:([a-z]+)/g, (whole, name) => names.get(name) ?? whole);
  const routes = new Set<unknown>();
  for (const [line, body] of REQUESTS) {
    const [method = "", path = ""] = filled(line).split(" ");
    const sent: Sent = body === undefined
      ? {}
      : { body: filled(JSON.stringify(body)) };
    const { status, text, etag } = await ask(method, path, sent);
    assert.ok(status < 300, `${line}: ${text}`);
    routes.add(routeOf(method, path));
    if (method !== "PUT") continue;
    const before = await site.stored("own:*");
    const again = await ask(method, path, sent);
    assert.deepEqual([again.status, again.etag], [status, etag], line);
    assert.deepEqual(await site.stored("own:*"), before, line);
  }
  const silent = ADMIN_ROUTES.filter((route) => !routes.has(route));
  assert.deepEqual(silent.map(({ method, path }) => `${method} ${path}`), []);
});

Deno.test("the documentation names every path with its scope", async () => {
  const file = new URL("../../../docs/admin_api.md", import.meta.url);
  const text = await Deno.readTextFile(file);
  for (const { path, scope } of ADMIN_ROUTES) {
    const line = text.split("\n").find((line) =>
      line.startsWith("| `") && line.includes(`\`${documentPath(path)}\``)
    );
    assert.ok(line?.includes(`\`${scope}\``), `${path} ${scope}`);
  }
});

Deno.test("the description is OpenAPI 3.1, has every route with its scope, and needs no key", async () => {
  const { site, ask } = await startAdmin();
  await using _ = site;
  const { json } = await ask("GET", "/admin/openapi.json", { key: "" });
  const validator = new Validator();
  const { valid, errors } = await validator.validate(structuredClone(json));
  assert.ok(valid, JSON.stringify(errors));
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  for (const { method, path, summary, scope } of ADMIN_ROUTES) {
    const operation = json.paths[ADMIN_BASE + documentPath(path)]
      ?.[method.toLowerCase()];
    assert.equal(operation?.summary, summary);
    assert.match(operation.description, new RegExp(`\`${scope}\``));
    const content = operation.responses["2XX"].content?.["application/json"];
    if (content) {
      assert.doesNotThrow(() => ajv.compile(content.schema), summary);
    }
  }
  const { properties } = json.paths["/admin/v1/keys"].post.requestBody
    .content["application/json"].schema;
  assert.ok("allowed_cidrs" in properties && "account" in properties);
});
