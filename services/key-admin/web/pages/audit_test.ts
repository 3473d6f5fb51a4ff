/** The audit log on pages and in files. */
import assert from "node:assert/strict";
import { ORIGIN } from "../../client_fixture.ts";
import { startConsole, storedKey } from "../../console_fixture.ts";
import { keyForm, signIn } from "../../forms_fixture.ts";
import { entries, routeOwner } from "../../routes_fixture.ts";

/**
 * Guarantee: the audit log and the service's log record what an owner did and attacks
 * on the account.
 */

Deno.test("ASVS 16.3.1: refused sign-ins and passwords are recorded", async () => {
  await using site = await startConsole();
  const { client, ownerId, email } = await routeOwner(site, 1);
  const before = (await entries(site, ownerId)).length;
  await signIn(site.client("198.51.100.7"), email, { password: "a guess" });
  await client.post("/account/second-factor/off", { password: "a guess" });
  const added = (await entries(site, ownerId)).slice(before);
  assert.deepEqual(added.map(({ action, ip }) => [action, ip]), [
    ["session.refused", "198.51.100.7"],
    ["session.refused", "2001:db8:0:1::1"],
  ]);
  assert.ok(site.logLines.some((line) => line.includes("sign_in_refused")));
  assert.ok(!site.logLines.join().includes("a guess"));
});

Deno.test("ASVS 16.3.1: a refused change changes nothing and leaves no audit entry", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const nonce = "n".repeat(43);
  const refused: [path: string, form: Parameters<typeof client.post>[1]][] = [
    ["/keys/new", keyForm("A key", { nonce: "not one of ours" })],
    [`/keys/${keyId}/edit`, keyForm("Renamed", { version: "9" })],
    [`/keys/${keyId}/disable`, { version: "9" }],
    [`/keys/${keyId}/delete`, { version: "1" }],
    [`/keys/${keyId}/rotate`, { version: "9", old: "1h", nonce }],
    [`/keys/key_${"a".repeat(20)}/delete`, { version: "1", sure: "on" }],
    ["/account/password", { new_password: "short" }],
    ["/account/sessions/end", { session: "x" }],
  ];
  const before = await site.stored(`*${keyId}*`);
  const earlier = (await entries(site, ownerId)).length;
  for (const [path, form] of refused) {
    assert.ok((await client.post(path, form)).status >= 400, path);
  }
  assert.deepEqual(await site.stored(`*${keyId}*`), before);
  const added = (await entries(site, ownerId)).slice(earlier);
  assert.deepEqual(added.map(({ action }) => action), ["session.refused"]);
});

Deno.test("ASVS 16.4.1: input cannot break out of its entry, in the log or in the audit log", async () => {
  await using site = await startConsole();
  const evil = 'x"}\r\n{"level":"info","event":"forged"}\u2028';
  const agent = "Mozilla \u0001 forged";
  const form = { email: evil, password: evil, code: evil, next: evil };
  const headers = { origin: ORIGIN, "user-agent": agent };
  const answer = await site.client().post("/sign-in", form, { headers });
  assert.equal(answer.status, 401);
  const owner = await routeOwner(site, 1);
  const edit = `/keys/${owner.keyId}/edit?${encodeURIComponent(evil)}`;
  await owner.client.post(edit, { [evil]: evil });
  assert.ok(site.logLines.length >= 2);
  for (const line of site.logLines) {
    assert.ok(!/[\r\n]/.test(line), line);
    assert.notEqual(JSON.parse(line).event, "forged");
  }
  const csv = await owner.client.get("/audit.csv");
  const rows = await entries(site, owner.ownerId);
  assert.equal(csv.text.trimEnd().split("\r\n").length, rows.length + 1);
});

Deno.test("the audit log names deleted keys and links to those that exist", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const { id: keptId } = await storedKey(site, ownerId, {
    description: "Kept",
  });
  const form = { version: "1", sure: "on" };
  await client.post(`/keys/${keyId}/delete`, form);
  const { text } = await client.get("/audit");
  const linked = [...text.matchAll(/href="\/keys\/(\w+)"/g)];
  assert.deepEqual(linked.map(([, id]) => id), [keptId]);
  assert.match(text, /Key deleted[\s\S]*<bdi>Secret project 1<\/bdi>/);
});

Deno.test("the audit log shows the entries that match a filter, newest first, as pages and as CSV", async () => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const actions = ["session.signed_in", "account.password_changed"] as const;
  const detailsOf = (text: string) =>
    [...text.matchAll(/entry (\d+)\./g)].map(([, n]) => Number(n));
  const all = Array.from({ length: 120 }, (_, n) => 119 - n);
  for (const n of all.toReversed()) {
    const action = actions[n % 3 - 1] ?? "key.edited";
    const entry = { by: "", ip: "", detail: `entry ${n}.` };
    await site.deps.audit.add(ownerId, { action, ...entry });
  }
  const filters = ["key.", "session.", "account.", "", "nonsense"];
  for (const [rest, action] of filters.entries()) {
    const expected = all.filter((n) => rest > 2 || n % 3 === rest);
    const counts: number[] = [];
    let next: string | undefined = `/audit?action=${action}`;
    for (let pages = 0; next !== undefined && pages < 10; pages++) {
      const { text } = await client.get(next);
      const details = detailsOf(text);
      assert.ok(details.length <= 50);
      counts.push(...details);
      next = /href="([^"]*before=[^"]*)"[^>]*>Older/.exec(text)?.[1]
        ?.replaceAll("&amp;", "&");
    }
    assert.deepEqual(counts, expected, action);
    const { text, headers } = await client.get(`/audit.csv?action=${action}`);
    assert.match(text, /^\uFEFF?time,action,by,ip,key_id,key,/);
    assert.deepEqual(detailsOf(text), expected, action);
    assert.match(headers.get("content-type") ?? "", /^text\/csv; char/);
    assert.match(headers.get("content-disposition") ?? "", /attachment/);
  }
});
