/**
 * Promise: only admin keys use the admin API, within their scopes; it changes what it
 * says, and names the mistake in a request.
 */
import assert from "node:assert/strict";
import { ORIGIN } from "../client_fixture.ts";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { makeKey } from "../forms_fixture.ts";
import {
  ADMIN_SCOPES,
  type AdminScope,
} from "../domain/admin_keys/admin_key_store.ts";
import { ADMIN_ROUTES } from "./admin_api.ts";

const IP = "192.0.2.77";
const MAKER = { by: "op@example.org", ip: IP, ownerId: null };

/** A request of a program. */
interface Sent {
  key?: string;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A console, and a program with an admin key of these scopes. */
async function start(scopes: readonly AdminScope[] = ADMIN_SCOPES) {
  const site = await startConsole({ redisUser: "key-admin" });
  const wanted = { description: "CI", scopes: [...scopes], expiresAtMs: null };
  const { key, value } = await site.deps.adminKeys.create(wanted, MAKER);
  const ask = (method: string, path: string, sent: Sent = {}) =>
    send(site, `${method} ${path}`, { key: value, ...sent });
  return { site, ask, key, value };
}

async function send(
  site: TestConsole,
  line: string,
  { key = "", body, headers = {} }: Sent,
) {
  const [method = "", path = ""] = line.split(" ");
  const url = `${ORIGIN}${path.startsWith("/admin") ? "" : "/admin/v1"}${path}`;
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
  const isJson = /json/.test(response.headers.get("content-type") ?? "");
  return {
    status: response.status,
    etag: response.headers.get("etag") ?? "",
    headers: response.headers,
    text: answer,
    json: isJson ? JSON.parse(answer) : undefined,
  };
}

Deno.test("a key for a CI job is created once, replaced by its version, and deleted", async () => {
  const { site, ask } = await start();
  await using _ = site;
  const ada = await site.deps.owners.ensure("ada@example.org");
  const body = {
    account: ada,
    description: "Nightly build",
    scopes: ["chat"],
    models: ["small-1"],
    allowed_cidrs: ["10.0.0.0/8"],
    limits: { requests_per_minute: 60, budget_day: "2.50" },
    expires_at: "2099-01-31",
  };
  const headers = { "idempotency-key": "build-7" };
  const made = await ask("POST", "/keys", { body, headers });
  assert.equal(made.status, 201, made.text);
  assert.match(made.json.key, /^sk-Cg\w{46}$/);
  assert.partialDeepStrictEqual(made.json, {
    owner_id: ada,
    state: "enabled",
    allowed_cidrs: ["10.0.0.0/8"],
    limits: { requests_per_minute: 60, budget_day: "2.5", tokens_per_day: 0 },
    expires_at: "2099-01-31T23:59:59.000Z",
  });
  const again = await ask("POST", "/keys", { body, headers });
  assert.equal(again.status, 409, again.text);
  const path = `/keys/${made.json.id}`;
  assert.equal((await ask("GET", path)).etag, '"1"');

  const { account: _account, ...whole } = body;
  const same = await ask("PUT", path, { body: whole });
  assert.equal(same.etag, '"1"', "what is so already is no change");
  const put = { description: "Build", scopes: ["chat"], state: "disabled" };
  const replaced = await ask("PUT", path, {
    body: put,
    headers: { "if-match": '"1"' },
  });
  assert.equal(replaced.etag, '"3"', replaced.text);
  assert.partialDeepStrictEqual(replaced.json, {
    state: "disabled",
    models: [],
    expires_at: null,
    limits: { requests_per_minute: 0, budget_day: 0 },
  });
  assert.equal((await ask("PUT", path, { body: put })).etag, '"3"');
  const late = await ask("PATCH", path, {
    body: { state: "enabled" },
    headers: { "if-match": '"1"' },
  });
  assert.equal(late.json.error.code, "precondition_failed");
  assert.equal((await ask("DELETE", path)).status, 204);
  assert.equal((await ask("DELETE", path)).status, 404);
});

Deno.test("a key is changed in part, rotated and stopped, and the audit log names the admin key", async () => {
  const { site, ask, key } = await start();
  await using _ = site;
  const ada = await site.deps.owners.ensure("ada@example.org");
  const body = { account: ada, description: "Nightly build" };
  const made = await ask("POST", "/keys", { body });
  const path = `/keys/${made.json.id}`;
  const end_users = "user rpm=5";
  const patch = { state: "enabled", end_users, limits: { concurrency: 2 } };
  const patched = await ask("PATCH", path, { body: patch });
  assert.equal(patched.json.limits.concurrency, 2);
  assert.equal(patched.json.end_users, end_users);
  const rotated = await ask("POST", `${path}/rotate`, { body: { old: "24h" } });
  assert.equal(rotated.json.replaces, made.json.id);
  const stopped = await ask("POST", `${path}/stop`);
  assert.equal(stopped.json.state, "disabled");
  assert.deepEqual(site.stops, [{ keyId: made.json.id, ownerId: ada }]);
  const listed = await ask("GET", `/keys?account=${ada}&state=enabled`);
  const ids = listed.json.keys.map(({ id }: { id: string }) => id);
  assert.deepEqual(ids, [rotated.json.id]);
  const query = { action: "", keyId: made.json.id, before: "", rows: 20 };
  const { rows } = await site.deps.audit.read(ada, query);
  const by = new Set(rows.map(({ by, ip }) => `${by} ${ip}`));
  assert.deepEqual([...by], [`admin key ${key.id} ${IP}`]);
});

Deno.test("a person is taken off board: disabled, with what runs, and their keys refused", async () => {
  const { site, ask } = await start(["owners"]);
  await using _ = site;
  const email = "bob@example.org";
  const added = await ask("POST", "/owners", { body: { email, invite: true } });
  assert.equal(added.status, 201);
  assert.ok(added.json.invitation_url.startsWith(`${ORIGIN}/link/`));
  const again = await ask("POST", "/owners", { body: { email } });
  assert.equal(again.status, 200);
  const path = `/owners/${added.json.id}`;
  const limits = { tokens_per_day: 5_000 };
  const changed = await ask("PATCH", path, {
    body: { limits },
    headers: { "if-match": added.etag },
  });
  assert.equal(changed.json.limits.tokens_per_day, 5_000);
  const late = { body: { limits }, headers: { "if-match": added.etag } };
  assert.equal((await ask("PATCH", path, late)).status, 412);
  const off = { state: "disabled", stop_running: true };
  for (const _ of ["once", "twice"]) {
    const { status, json } = await ask("PATCH", path, { body: off });
    assert.equal(status, 200);
    assert.equal(json.state, "disabled");
  }
  const { json: { owners } } = await ask("GET", "/owners?search=bob");
  assert.partialDeepStrictEqual(owners, [{ email, state: "disabled" }]);
});

Deno.test("a month is exported as CSV, and others are not there", async () => {
  const { site, ask } = await start(["usage"]);
  await using _ = site;
  const { json: { months: [month] } } = await ask("GET", "/usage/months");
  const { status, text, headers } = await ask("GET", `/usage/months/${month}`);
  assert.equal(status, 200);
  assert.match(headers.get("content-type") ?? "", /^text\/csv/);
  assert.match(text, /^month,account,account_id,key_id/);
  assert.equal((await ask("GET", "/usage/months/1999-01")).status, 404);
});

Deno.test("API2, API5: only an admin key with the scope gets through, and no key of another kind", async () => {
  const { site, ask, key, value } = await start(["usage"]);
  await using _ = site;
  const browser = await site.signedIn("ada@example.org");
  const { value: userKey } = await makeKey(browser, "Mine");
  for (const { method, path, scope } of ADMIN_ROUTES) {
    const place = path.replace(":id", "any");
    for (const wrong of ["", userKey, `${value.slice(0, -1)}!`, "sk-admin-x"]) {
      const refused = await ask(method, place, { key: wrong });
      assert.equal(refused.status, 401, `${method} ${path}`);
      assert.equal(refused.headers.get("www-authenticate"), "Bearer");
    }
    if (scope === "usage") continue;
    const { status, json } = await ask(method, place);
    assert.equal(status, 403);
    assert.ok(json.error.message.includes(`lacks the scope ${scope}`));
  }
  const mistaken = await ask("GET", "/usage/months", { key: userKey });
  assert.match(mistaken.json.error.message, /^This is an API key/);
  const page = await send(site, "GET /admin/../keys", { key: value });
  assert.equal(page.status, 401, "the console takes no keys");
  await site.deps.adminKeys.delete(key.id, MAKER);
  assert.equal((await ask("GET", "/usage/months")).status, 401);
  const expiresAtMs = site.clock.nowMs + 1_000;
  const soon = { description: "Soon", scopes: ["usage" as const], expiresAtMs };
  const { value: ends } = await site.deps.adminKeys.create(soon, MAKER);
  assert.equal((await ask("GET", "/usage/months", { key: ends })).status, 200);
  site.clock.nowMs += 1_000;
  assert.equal((await ask("GET", "/usage/months", { key: ends })).status, 401);
  const stored = await site.stored("admin_keys");
  assert.ok(!JSON.stringify(stored).includes(value.slice(9)));
});

/** A request, of a key ":key" and an owner ":owner", and what it is told. */
const MISTAKES: { line: string; sent?: Sent; status: number; says: RegExp }[] =
  [
    {
      line: "PUT /keys/:key",
      sent: { body: "{" },
      status: 400,
      says: /not JSON/,
    },
    {
      line: "PUT /keys/:key",
      sent: { body: {} },
      status: 400,
      says: /description/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: [] },
      status: 400,
      says: /object/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { hash: "x" } },
      status: 400,
      says: /hash/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { limits: { rpm: 1 } } },
      status: 400,
      says: /no such limit.*"param":"limits\.rpm"/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { limits: { concurrency: -1 } } },
      status: 400,
      says: /whole number/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { models: ["small"] } },
      status: 400,
      says: /did you mean 'small-1'/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { allowed_cidrs: ["office"] } },
      status: 400,
      says: /office: Not an IP/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { expires_at: "2020-01-01" } },
      status: 400,
      says: /passed/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: { description: "x".repeat(300_000) } },
      status: 413,
      says: /at most 262144/,
    },
    {
      line: "PATCH /keys/:key",
      sent: { body: {}, headers: { "if-match": "3" } },
      status: 400,
      says: /If-Match/,
    },
    {
      line: "POST /keys/:key/rotate",
      sent: { body: { old: "soon" } },
      status: 400,
      says: /One of now/,
    },
    {
      line: "GET /keys/key_00000000000000000000",
      status: 404,
      says: /no key of this id/,
    },
    {
      line: "DELETE /keys/key_00000000000000000000",
      status: 404,
      says: /no key of this id/,
    },
    { line: "GET /keys?rows=10000", status: 400, says: /rows/ },
    { line: "GET /keys?after=x", status: 400, says: /cursor/ },
    { line: "GET /keys?colour=red", status: 400, says: /colour/ },
    {
      line: "GET /keys?account=own_00000000000000000000",
      status: 404,
      says: /no account/,
    },
    {
      line: "POST /keys",
      sent: { body: { account: "me", description: "x" } },
      status: 400,
      says: /own_…/,
    },
    {
      line: "POST /owners",
      sent: { body: { email: "me" } },
      status: 400,
      says: /e-mail/,
    },
    {
      line: "PATCH /owners/:owner",
      sent: { body: { stop_running: true } },
      status: 400,
      says: /disabled owner/,
    },
    { line: "PUT /owners", sent: { body: {} }, status: 405, says: /GET, POST/ },
    { line: "GET /admin/v2/keys", status: 404, says: /no such path/ },
  ];

Deno.test("mistakes change nothing and say what is wrong", async () => {
  const { site, ask } = await start();
  await using _ = site;
  const ada = await site.deps.owners.ensure("ada@example.org");
  const { id } = (await ask("POST", "/keys", {
    body: { account: ada, description: "Mine" },
  })).json;
  const before = await site.stored();
  for (const { line, sent, status, says } of MISTAKES) {
    const [method = "", place = ""] = line.split(" ");
    const path = place.replace(":key", id).replace(":owner", ada);
    const answer = await ask(method, path, sent);
    assert.equal(answer.status, status, `${line}: ${answer.text}`);
    assert.match(answer.text, says);
    assert.match(answer.text, /^\{"error":\{"code":"/);
  }
  assert.deepEqual(await site.stored(), before);
});

Deno.test("the description has every route, and needs no key", async () => {
  const { site, ask } = await start();
  await using _ = site;
  const { json } = await ask("GET", "/admin/openapi.json", { key: "" });
  assert.equal(json.openapi, "3.1.0");
  for (const { method, path, summary } of ADMIN_ROUTES) {
    const operation = json.paths[`/admin/v1${path.replace(":id", "{id}")}`]
      ?.[method.toLowerCase()];
    assert.equal(operation?.summary, summary);
  }
  const { properties } = json.paths["/admin/v1/keys"].post.requestBody
    .content["application/json"].schema;
  assert.ok("allowed_cidrs" in properties && "account" in properties);
});
