/** The page of admin keys: made by operators, shown once, used, and deleted. */
import assert from "node:assert/strict";
import { send } from "../../../api/admin_fixture.ts";
import { startConsole, type TestConsole } from "../../../console_fixture.ts";

const OPERATOR = "op@example.org";
const FORM = {
  description: "Nightly build",
  scopes: ["usage"],
  expires: "2099-01-31",
  nonce: "a".repeat(43),
};

async function operatorAt(site: TestConsole) {
  const browser = await site.signedIn(OPERATOR);
  const ownerId = await site.deps.owners.ensure(OPERATOR);
  await site.deps.owners.giveRole(ownerId);
  return { browser, ownerId };
}

Deno.test("an admin key is shown once, works in its scopes, and no more once it is deleted", async () => {
  await using site = await startConsole();
  const { browser, ownerId } = await operatorAt(site);
  const created = await browser.post("/people/admin-keys", FORM);
  assert.equal(created.status, 201, created.text);
  const [key = ""] = /sk-admin-[\w-]+/.exec(created.text) ?? [];
  assert.equal((await send(site, "GET /usage/months", { key })).status, 200);
  assert.equal((await send(site, "GET /keys", { key })).status, 403);
  const twice = await browser.post("/people/admin-keys", FORM);
  assert.equal(twice.status, 409);
  assert.match(twice.text, /already created/);
  const { text } = await browser.get("/people/admin-keys");
  assert.match(text, /Nightly build/);
  assert.ok(!text.includes(key), "shown once");
  const [path = ""] = /\/people\/admin-keys\/adm_\w+\/delete/.exec(text) ?? [];
  assert.match((await browser.get(path)).text, /Delete this admin key\?/);
  assert.equal((await browser.post(path, {})).status, 303);
  assert.equal((await send(site, "GET /usage/months", { key })).status, 401);
  assert.equal((await browser.get(path)).status, 404);
  assert.equal((await browser.post(path, {})).status, 404);
  const query = { action: "admin_key.", keyId: "", before: "", rows: 9 };
  const { rows } = await site.deps.audit.read(ownerId, query);
  assert.deepEqual(rows.map(({ action, by }) => [action, by]), [
    ["admin_key.deleted", OPERATOR],
    ["admin_key.created", OPERATOR],
  ]);
});

const MISTAKES: readonly [Partial<typeof FORM>, RegExp][] = [
  [{ description: "" }, /Say what the key is for/],
  [{ scopes: [] }, /Choose at least one/],
  [{ scopes: ["root"] }, /Correct the marked/],
  [{ expires: "2020-01-01" }, /Choose today or a later day/],
];

Deno.test("a form of an admin key with mistakes is shown again, with what was entered", async () => {
  await using site = await startConsole();
  const { browser } = await operatorAt(site);
  for (const [wrong, says] of MISTAKES) {
    const form = { ...FORM, ...wrong };
    const answer = await browser.post("/people/admin-keys", form);
    assert.equal(answer.status, 400);
    assert.match(answer.text, says);
    assert.match(answer.text, new RegExp(`value="${form.description}"`));
  }
  assert.deepEqual(await site.deps.adminKeys.list(), []);
});
