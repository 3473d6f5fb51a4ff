/**
 * Promise: only admin keys use the admin API, within their scopes; it changes what it
 * says, and names the mistake in a request.
 */
import assert from "node:assert/strict";
import { ORIGIN } from "../client_fixture.ts";
import { storedKey } from "../console_fixture.ts";
import { countUse } from "../usage_fixture.ts";
import { makeKey } from "../forms_fixture.ts";
import { IP, MAKER, send, startAdmin as start } from "./admin_fixture.ts";
import { ADMIN_ROUTES } from "./routes.ts";

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
    keep_seconds: 900,
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
    keep_seconds: 900,
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
  assert.equal(replaced.etag, '"2"', replaced.text);
  assert.partialDeepStrictEqual(replaced.json, {
    state: "disabled",
    models: [],
    expires_at: null,
    limits: { requests_per_minute: 0, budget_day: 0 },
    keep_seconds: 0,
  });
  assert.equal((await ask("PUT", path, { body: put })).etag, '"2"');
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
  const { site, ask } = await start(["accounts"]);
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

/** Two keys of one owner, of which the second is used, and one of another. */
async function startListed() {
  const started = await start();
  const { site, ask } = started;
  const { owners } = site.deps;
  const [ada = "", bob = ""] = await Promise.all(
    ["ada@example.org", "bob@example.org"].map((email) => owners.ensure(email)),
  );
  const keys = await Promise.all(
    [[ada, "B"], [ada, "C"], [bob, "A"]].map((
      [ownerId = "", description = ""],
    ) => storedKey(site, ownerId, { description })),
  );
  const [first = "", second = "", third = ""] = keys.map(({ id }) => id);
  const redis = await site.server.connect();
  const used = { ownerId: ada, keyId: second };
  await countUse({ deps: { redis } }, used, {
    atMs: site.clock.nowMs,
    counts: { requests: 3 },
  });
  /** The ids of the rows of a list. */
  const listed = async (list: string, query: string): Promise<string[]> => {
    const { json } = await ask("GET", `/${list}?${query}`);
    assert.ok(!("partial" in json), "all rows were compared");
    return json[list].map(({ id }: { id: string }) => id);
  };
  return { ...started, ada, bob, first, second, third, listed };
}

Deno.test("lists have an order, which pages keep", async () => {
  const { site, ask, listed, ...ids } = await startListed();
  await using _ = site;
  const { ada, bob, first, second, third } = ids;
  assert.deepEqual(await listed("keys", "sort=description"), [
    third,
    first,
    second,
  ]);
  assert.deepEqual(await listed("keys", `account=${ada}&sort=-description`), [
    second,
    first,
  ]);
  assert.deepEqual((await listed("keys", "sort=-requests"))[0], second);
  assert.deepEqual((await listed("owners", "sort=-requests"))[0], ada);
  const byKeys = await listed("owners", "sort=keys");
  assert.deepEqual(byKeys.slice(-2), [bob, ada]);
  const page = await ask("GET", "/keys?sort=description&rows=2");
  const next = await listed("keys", `sort=description&after=${page.json.next}`);
  assert.deepEqual(next, [second]);
});

Deno.test("keys of several accounts are disabled together, all or none", async () => {
  const { site, ask, key, listed, ...ids } = await startListed();
  await using _ = site;
  const { ada, bob, first, second, third } = ids;
  const gone = `key_${"0".repeat(20)}`;
  const all = [first, third, first];
  const some = await ask("POST", "/keys/disable", {
    body: { keys: [...all, gone] },
  });
  assert.equal(some.status, 404);
  assert.deepEqual(await listed("keys", "state=disabled"), []);
  const other = await ask("POST", "/keys/disable", {
    body: { keys: all, account: ada },
  });
  assert.equal(other.status, 404, "they are not all of this account");
  for (const _ of ["once", "twice"]) {
    const { status, json } = await ask("POST", "/keys/disable", {
      body: { keys: all, stop_running: true, reason: "Not used" },
    });
    assert.equal(status, 200);
    assert.partialDeepStrictEqual(json.keys, [
      { id: first, state: "disabled", version: 2 },
      { id: third, state: "disabled", version: 2 },
    ]);
  }
  assert.deepEqual(site.stops.slice(0, 2), [
    { keyId: first, ownerId: ada },
    { keyId: third, ownerId: bob },
  ]);
  assert.deepEqual(await listed("keys", "state=enabled"), [second]);
  const query = { action: "key.disabled", keyId: "", before: "", rows: 20 };
  const { rows } = await site.deps.audit.read(bob, query);
  assert.partialDeepStrictEqual(rows, [
    { keyId: third, by: `admin key ${key.id}`, detail: "Not used" },
  ]);
});

/** Changes of the same version, and what begins the path that they are sent to. */
const RIVALS = [
  { path: "/owners/:owner", bodies: [{ state: "disabled" }, {}] },
  { path: "/projects/:project", bodies: [{ name: "A" }, { name: "B" }] },
  { path: "/keys/:key", bodies: [{ description: "A" }, { description: "B" }] },
].map(({ path, bodies }) => ({
  path,
  bodies: bodies.map((body) => ({ limits: { concurrency: 1 }, ...body })),
}));

Deno.test("of two changes of one version only one is made, whatever lies between", async () => {
  const { site, ask } = await start();
  await using _ = site;
  const { owners, projects } = site.deps;
  const owner = await owners.ensure("ada@example.org");
  const by = { ...MAKER, as: "operator" as const };
  const { id: project } = await projects.create(by, {
    name: "Shop",
    adminId: null,
  });
  const made = await ask("POST", "/keys", {
    body: { account: owner, description: "Mine" },
  });
  const ids = new Map([
    [":owner", owner],
    [":project", project],
    [":key", made.json.id],
  ]);
  for (const { path: pattern, bodies } of RIVALS) {
    const path = pattern.replace(/:\w+/, (name) => ids.get(name) ?? name);
    const { etag } = await ask("GET", path);
    const headers = { "if-match": etag };
    const answers = await Promise.all(
      [...bodies, ...bodies].map((body) =>
        ask("PATCH", path, { body, headers })
      ),
    );
    const statuses = answers.map(({ status }) => status).sort();
    assert.deepEqual(statuses, [200, 412, 412, 412], pattern);
    const bad = { body: {}, headers: { "if-match": '"x"' } };
    assert.equal((await ask("PATCH", path, bad)).status, 412);
  }
  const defaults = `/accounts/${owner}/key_defaults`;
  const { etag } = await ask("GET", defaults);
  const sets = await Promise.all([1, 2].map((days) =>
    ask("PUT", defaults, {
      body: { expires_after_days: days },
      headers: { "if-match": etag },
    })
  ));
  assert.deepEqual(sets.map(({ status }) => status).sort(), [200, 412]);
});

Deno.test("an admin key makes others with no more than it has, once", async () => {
  const { site, ask, value } = await start(["accounts", "usage"]);
  await using _ = site;
  const body = { description: "CD", scopes: ["usage"] };
  const headers = { "idempotency-key": "cd-1" };
  const made = await ask("POST", "/admin_keys", { body, headers });
  assert.equal(made.status, 201, made.text);
  assert.equal(
    (await ask("POST", "/admin_keys", { body, headers })).status,
    409,
  );
  const more = { ...body, scopes: ["usage", "keys"] };
  const refused = await ask("POST", "/admin_keys", { body: more });
  assert.match(refused.text, /"code":"forbidden".*lacks keys itself/);
  const { key } = made.json;
  const months = await ask("GET", "/usage/months", { key });
  assert.equal(months.status, 200);
  const soon = await site.deps.adminKeys.create({
    description: "Soon",
    scopes: ["accounts", "usage"],
    expiresAtMs: site.clock.nowMs + 60_000,
  }, MAKER);
  const forever = await ask("POST", "/admin_keys", { body, key: soon.value });
  assert.match(forever.text, /"param":"expires_at"/);
  const gone = await ask("DELETE", `/admin_keys/${made.json.id}`);
  assert.equal(gone.json.id, made.json.id);
  assert.equal((await ask("GET", "/usage/months", { key })).status, 401);
  assert.ok(!JSON.stringify(await site.stored("admin_keys")).includes(value));
});

Deno.test("usage is counted for an account, its keys and the gateway, as the page has it", async () => {
  const { site, ask } = await start(["usage"]);
  await using _ = site;
  const ada = await site.deps.owners.ensure("ada@example.org");
  const { id: keyId } = await storedKey(site, ada);
  const redis = await site.server.connect();
  const atMs = site.clock.nowMs;
  const counts = { requests: 3, prompt_tokens: 40 };
  await countUse({ deps: { redis } }, { ownerId: ada, keyId }, {
    atMs,
    counts,
  });
  for (
    const query of [
      "",
      `?account=${ada}&by=key`,
      "?by=key",
      `?key=${keyId}`,
      "?by=account",
    ]
  ) {
    const { json } = await ask("GET", `/usage${query}`);
    assert.equal(json.total.requests, 3, query);
    assert.equal(json.unit, "hour");
    assert.equal(json.buckets.length, json.marks.length);
    assert.equal(json.buckets.at(-1).requests, 3);
    if (!query.includes("by=")) continue;
    const [group] = json.groups;
    assert.deepEqual(
      [group.id, group.name],
      query.includes("key") ? [keyId, "A key"] : [ada, "ada@example.org"],
    );
    assert.equal(group.total.requests, 3);
  }
  const { text } = await ask("GET", `/usage.csv?account=${ada}&range=7d`);
  assert.equal(text.trimEnd().split("\r\n").length, 8);
  const byKey = (await ask("GET", "/usage.csv?by=key&range=7d")).text;
  const [head = "", line = "", ...others] = byKey.trimEnd().split("\r\n");
  assert.match(head, /^\uFEFF?day,account_id,account,key_id,key,description,/);
  assert.match(line, new RegExp(`,${ada},ada@example.org,${keyId},.*,3,`));
  assert.deepEqual(others, []);
});

Deno.test("a month with usage is exported as CSV, and any other is not found", async () => {
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
  for (const { method, path, scope, alsoWith = [] } of ADMIN_ROUTES) {
    const place = path.replace(/:\w+/g, "any");
    for (const wrong of ["", userKey, `${value.slice(0, -1)}!`, "sk-admin-x"]) {
      const refused = await ask(method, place, { key: wrong });
      assert.equal(refused.status, 401, `${method} ${path}`);
      assert.equal(refused.headers.get("www-authenticate"), "Bearer");
    }
    if (scope === "usage" || alsoWith.includes("usage")) continue;
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
