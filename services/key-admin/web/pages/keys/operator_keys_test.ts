/** Operators change keys of others, and both sides see it. */
import assert from "node:assert/strict";
import { leaseKey } from "@gateway/shared/keys/record";
import { startConsole } from "../../../console_fixture.ts";
import { keyForm } from "../../../forms_fixture.ts";
import { entries, routeOwner } from "../../../routes_fixture.ts";

/** A console with an operator, and an owner with a key. */
async function startWithOperator() {
  const site = await startConsole({ redisUser: "key-admin" });
  const operator = await routeOwner(site, 1);
  await site.deps.owners.giveRole(operator.ownerId);
  const owner = await routeOwner(site, 2);
  const page = `/people/${owner.ownerId}/keys/${owner.keyId}`;
  return { site, operator, owner, page };
}

Deno.test("an operator finds any key, disables it for a reason, and the owner reads why", async () => {
  const { site, operator, owner, page } = await startWithOperator();
  await using _ = site;
  const list = await operator.client.get(`/people/keys?search=${owner.keyId}`);
  assert.ok(list.text.includes(`href="${page}"`), "the list leads to the key");
  const question = await operator.client.get(`${page}/ask/disable`);
  assert.match(question.text, /id="reason"[^>]*required/);
  const form = { version: "1", stop_running: "on", reason: "Found on a forum" };
  const done = await operator.client.post(`${page}/disable`, form);
  assert.equal(done.headers.get("location"), `${page}?done=stopping`);
  const key = await site.deps.keys.find(owner.ownerId, owner.keyId);
  assert.equal(key.state, "disabled");
  const { text } = await owner.client.get(`/keys/${owner.keyId}`);
  assert.match(text, /Found on a forum/);
  assert.ok(
    text.includes(`by ${operator.email}`),
    "the owner reads who did it",
  );
  const [entry] = (await entries(site, operator.ownerId)).slice(-2);
  assert.equal(entry?.detail, `${owner.email}: Found on a forum`);
});

Deno.test("an operator changes the limits of somebody else's key, and enables and deletes it", async () => {
  const { site, operator, owner, page } = await startWithOperator();
  await using _ = site;
  const { keys } = site.deps;
  const reason = "Agreed by phone";
  const settings = { version: "1", tokensPerDay: "500", reason };
  await operator.client.post(`${page}/edit`, keyForm("Billing", settings));
  const edited = await keys.find(owner.ownerId, owner.keyId);
  assert.equal(edited.limits.tokensPerDay, 500);
  await operator.client.post(`${page}/disable`, { version: "2", reason });
  const shown = await operator.client.get(page);
  assert.ok(shown.text.includes(`href="${page}/ask/enable"`));
  await operator.client.post(`${page}/enable`, { version: "3", reason });
  assert.equal((await keys.get(owner.ownerId, owner.keyId))?.state, "enabled");
  const final = { version: "4", sure: "on", reason };
  const deleted = await operator.client.post(`${page}/delete`, final);
  const owners = `/people/${owner.ownerId}?done=deleted`;
  assert.equal(deleted.headers.get("location"), owners);
  assert.equal(await keys.get(owner.ownerId, owner.keyId), null);
});

Deno.test("a change without a reason, or of a key that is not in the named account, is refused", async () => {
  const { site, operator, owner, page } = await startWithOperator();
  await using _ = site;
  const own = `/people/${operator.ownerId}/keys`;
  const unknown = `/people/own_${"0".repeat(20)}/keys/${owner.keyId}`;
  const long = "x".repeat(201);
  const reason = "Leaked";
  const cases = [
    { path: page, form: {}, status: 400 },
    { path: page, form: { reason: "" }, status: 400 },
    { path: page, form: { reason: "  " }, status: 400 },
    { path: page, form: { reason: long }, status: 400 },
    { path: page, form: { reason, version: "7" }, status: 409 },
    { path: `${own}/${owner.keyId}`, form: {}, status: 404 },
    { path: unknown, form: { reason }, status: 404 },
  ];
  for (const { path, form, status } of cases) {
    const fields = { version: "1", ...form };
    const answer = await operator.client.post(`${path}/disable`, fields);
    assert.equal(answer.status, status, JSON.stringify({ path, form }));
  }
  const key = await site.deps.keys.find(owner.ownerId, owner.keyId);
  assert.equal(key.state, "enabled");
});

Deno.test("an operator disables an owner, with or without what runs", async () => {
  const { site, operator, owner } = await startWithOperator();
  await using _ = site;
  const administrator = await site.server.connect();
  const principal = { ownerId: owner.ownerId, keyId: owner.keyId };
  await administrator.command(["ZADD", leaseKey(principal), "1", "a request"]);
  const person = `/people/${owner.ownerId}`;
  const change = (what: string, more: Record<string, string> = {}) =>
    operator.client.post(person, { what, ...more });
  await change("disable");
  assert.deepEqual(site.stops, []);
  await change("enable");
  const stopped = await change("disable", { stop_running: "on" });
  const shown = `${person}?done=owner_stopping`;
  assert.equal(stopped.headers.get("location"), shown);
  assert.deepEqual(site.stops, [principal]);
  assert.match((await operator.client.get(shown)).text, /being stopped/);
  await change("enable");
  site.deps.sendStop = () => Promise.reject(new Error("No answer"));
  const failed = await change("disable", { stop_running: "on" });
  const page = await operator.client.get(failed.headers.get("location") ?? "");
  assert.match(page.text, /NATS or Redis did not answer/);
});

Deno.test("an operator disables selected keys of several accounts with a reason, which each log has", async () => {
  const { site, operator, owner } = await startWithOperator();
  await using _ = site;
  const value = `${owner.ownerId}.${owner.keyId}`;
  const own = `${operator.ownerId}.${operator.keyId}`;
  const question = await operator.client.get(
    `/people/keys/disable?keys=${value}&keys=${own}&keys=own_x.key_y`,
  );
  assert.equal(question.text.match(/name="keys"[^>]*checked/g)?.length, 2);
  const form = { keys: [value, own] };
  const missing = await operator.client.post("/people/keys/disable", form);
  assert.equal(missing.status, 400);
  const reason = "Not used since the migration";
  const answer = await operator.client.post("/people/keys/disable", {
    ...form,
    reason,
  });
  assert.equal(
    answer.headers.get("location"),
    "/people/keys?done=keys_disabled",
  );
  const ofOwner = (await entries(site, owner.ownerId)).at(-1);
  assert.equal(ofOwner?.action, "key.disabled");
  assert.ok(ofOwner?.detail.includes(reason), JSON.stringify(ofOwner));
  const noted = (await entries(site, operator.ownerId))
    .filter(({ action }) => action === "key.disabled");
  assert.equal(noted.length, 2);
  const page = await owner.client.get(`/keys/${owner.keyId}`);
  assert.ok(page.text.includes(reason));
});
