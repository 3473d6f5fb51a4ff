/**
 * Guarantee: what somebody may do in a project is decided with each request, and is no
 * more than their role allows.
 */
import assert from "node:assert/strict";
import { TOTAL_WINDOW } from "@gateway/shared/keys/budget_calendar";
import {
  startConsole,
  storedKey,
  type TestConsole,
} from "../../../console_fixture.ts";
import { hiddenField, type TestClient } from "../../../client_fixture.ts";
import { limitsOf } from "../../../domain/keys/settings.ts";
import { keyForm, tryForm } from "../../../forms_fixture.ts";
import { countUse, logRequest, useBudgets } from "../../../usage_fixture.ts";
import { entries } from "../../../routes_fixture.ts";

const EMAILS = {
  ada: "ada@example.org",
  bob: "bob@example.org",
  eve: "eve@example.org",
};

/** A project of Ada, an admin, and Bob, a member, with a key of each. */
async function startTeam(site: TestConsole) {
  const clients: Record<keyof typeof EMAILS, TestClient> = {
    ada: await site.signedIn(EMAILS.ada),
    bob: await site.signedIn(EMAILS.bob, "192.0.2.2"),
    eve: await site.signedIn(EMAILS.eve, "192.0.2.3"),
  };
  const { projects, owners } = site.deps;
  const idOf = async (email: string) =>
    await owners.find(email) ?? assert.fail(email);
  const [ada, bob] = [await idOf(EMAILS.ada), await idOf(EMAILS.bob)];
  const actor = { by: EMAILS.ada, ip: "", ownerId: ada, as: "member" } as const;
  const { id } = await projects.create(actor, { name: "Search", adminId: ada });
  await projects.addOwner(actor, id, { memberId: bob, role: "member" });
  const key = async (description: string, createdBy: string) =>
    (await storedKey(site, id, { description, createdBy })).id;
  return {
    ...clients,
    ids: { ada, bob },
    actor,
    id,
    root: `/projects/${id}`,
    adasKey: await key("Indexer", ada),
    bobsKey: await key("Crawler", bob),
  };
}

Deno.test("API1: a member sees and changes only the keys they created, an admin all", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { ada, bob, root, adasKey, bobsKey } = await startTeam(site);
  const list = async (who: TestClient) =>
    (await who.get(`${root}/keys`)).text.match(/Indexer|Crawler/g) ?? [];
  assert.deepEqual(new Set(await list(ada)), new Set(["Crawler", "Indexer"]));
  assert.deepEqual(new Set(await list(bob)), new Set(["Crawler"]));
  const pages = ["", "/edit", "/ask/disable", "/ask/rotate"];
  for (const page of [...pages, "/export.csv"]) {
    const theirs = await bob.get(`${root}/keys/${adasKey}${page}`);
    assert.equal(theirs.status, 404, page);
    assert.ok(!theirs.text.includes("Indexer"), page);
    assert.equal((await bob.get(`${root}/keys/${bobsKey}${page}`)).status, 200);
    assert.equal((await ada.get(`${root}/keys/${bobsKey}${page}`)).status, 200);
  }
  const log = (query: string) => bob.get(`${root}/requests${query}`);
  assert.equal((await log(`?key=${adasKey}`)).status, 400);
  assert.equal((await log("")).status, 200);
  const before = await site.stored("key:*");
  const forms = [
    ["disable", { version: "1" }],
    ["delete", { version: "1", sure: "on" }],
    ["rotate", { version: "1", old: "now", nonce: "a".repeat(43) }],
    ["edit", keyForm("Mine", { version: "1" })],
  ] as const;
  for (const [what, form] of forms) {
    const answer = await bob.post(`${root}/keys/${adasKey}/${what}`, form);
    assert.equal(answer.status, 404, what);
  }
  assert.deepEqual(await site.stored("key:*"), before);
  const disable = { version: "1" };
  const done = await ada.post(`${root}/keys/${bobsKey}/disable`, disable);
  assert.equal(done.status, 303, "an admin changes the key of a member");
});

Deno.test("a member lowers the budget in total of their key, and only an admin or operator raises it", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { ada, bob, id, root, bobsKey } = await startTeam(site);
  const totalOf = async () =>
    (await site.deps.keys.find(id, bobsKey)).limits.budgetTotal / 1e9;
  const change = async (who: TestClient, budgetTotal: string) => {
    const { version } = await site.deps.keys.find(id, bobsKey);
    const form = keyForm("Crawler", { version: String(version), budgetTotal });
    return await who.post(`${root}/keys/${bobsKey}/edit`, form);
  };
  assert.equal((await change(bob, "50")).status, 303, "there was none");
  assert.equal((await change(ada, "20")).status, 303);
  for (const more of ["20.000000001", "50", "", "0"]) {
    const answer = await change(bob, more);
    assert.match(answer.text, /Only an admin of the project or an operator/);
    assert.equal(await totalOf(), 20, more);
  }
  assert.equal((await change(bob, "20")).status, 303, "nothing is raised");
  assert.equal((await change(bob, "10")).status, 303);
  assert.equal((await change(ada, "30")).status, 303);
  assert.equal(await totalOf(), 30);
});

Deno.test("a key of a project says who created it, and its page and form name the project", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { ada, bob, ids, id, root } = await startTeam(site);
  const page = await bob.get(`${root}/keys/new`);
  assert.match(page.text, /<bdi>Search<\/bdi>/, "the header shows the account");
  const nonce = hiddenField(page.text, "nonce");
  const form = keyForm("Ranking", { nonce });
  const made = await bob.post(`${root}/keys/new`, form);
  assert.equal(made.status, 201);
  assert.match(made.text, new RegExp(`action="${root}/keys"`));
  const day = { filter: "all", search: "Ranking", after: "", rows: 9 } as const;
  const { rows } = await site.deps.keys.list(id, { ...day, day: "20260101" });
  assert.equal(rows[0]?.key.createdBy, ids.bob);
  const list = (await ada.get(`${root}/keys`)).text.replaceAll("<wbr/>", "");
  assert.match(list, /Ranking.*bob@example\.org/s);
  const byBob = (await ada.get(`${root}/keys?by=${ids.bob}`)).text;
  assert.ok(byBob.includes("Ranking") && !byBob.includes("Indexer"));
  const own = (await bob.get("/keys")).text;
  assert.ok(!own.includes("Ranking"), "it is not in the own account");
});

Deno.test("a page that is still open does nothing for who was removed meanwhile", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const team = await startTeam(site);
  const { ada, bob, ids, id, root, bobsKey } = team;
  const page = await bob.get(`${root}/keys/new`);
  const nonce = hiddenField(page.text, "nonce");
  await bob.post(`${root}/try`, tryForm("Hi"));
  const remove = { member: ids.bob };
  const gone = await ada.post(`${root}/members/remove`, remove);
  assert.equal(gone.status, 303);
  const requests = site.requests.length;
  const before = await site.stored("key:*");
  const posts = [
    ["/keys/new", keyForm("Late", { nonce })],
    [`/keys/${bobsKey}/edit`, keyForm("Late", { version: "1" })],
    [`/keys/${bobsKey}/disable`, { version: "1" }],
    ["/try", tryForm("Hi")],
    ["/try/stream", tryForm("Hi")],
    ["/members", { email: EMAILS.eve, role: "admin" }],
    ["/members/remove", { member: ids.ada }],
    ["/name", { name: "Mine" }],
  ] as const;
  for (const [path, form] of posts) {
    const answer = await bob.post(root + path, form);
    assert.equal(answer.status, 404, path);
    assert.match(answer.text, /not one of its members/, path);
  }
  for (const path of ["", "/keys", "/usage", "/audit.csv", "/members"]) {
    assert.equal((await bob.get(root + path)).status, 404, path);
  }
  assert.deepEqual(await site.stored("key:*"), before);
  assert.equal(site.requests.length, requests, "nothing was sent");
  assert.equal((await site.deps.keys.find(id, bobsKey)).state, "enabled");
  assert.ok(!(await bob.get("/keys")).text.includes("Search"));
});

Deno.test("a role that was taken away does nothing from the next request on", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { ada, bob, ids, actor, id, root, adasKey } = await startTeam(site);
  const bobIs = (role: "admin" | "member") =>
    site.deps.projects.setRole(actor, id, { memberId: ids.bob, role });
  await bobIs("admin");
  assert.equal((await bob.get(`${root}/keys/${adasKey}`)).status, 200);
  await bobIs("member");
  assert.equal((await bob.get(`${root}/keys/${adasKey}`)).status, 404);
  const eve = { email: EMAILS.eve, role: "member" };
  const answer = await bob.post(`${root}/members`, eve);
  assert.equal(answer.status, 409);
  assert.match(answer.text, /Only an admin/);
  const last = await ada.post(`${root}/members/remove`, { member: ids.ada });
  assert.equal(last.status, 409);
  assert.match(last.text, /needs an admin/);
  assert.match((await bob.get(`${root}/members`)).text, />Leave</);
  const left = await bob.post(`${root}/members/remove`, { member: ids.bob });
  assert.equal(left.headers.get("location"), "/projects?done=member_left");
});

Deno.test("API1: a member's log of requests has those with the keys they created, an admin's all", async () => {
  await using site = await startConsole();
  const { ada, bob, id, root, adasKey, bobsKey } = await startTeam(site);
  assert.match((await bob.get(`${root}/requests`)).text, /No requests/);
  for (const keyId of [adasKey, bobsKey]) {
    await logRequest(site, { ownerId: id, keyId }, { model: keyId });
  }
  const logged = async (who: TestClient, query = "") =>
    (await who.get(`${root}/requests.csv${query}`)).text
      .match(/key_\w{20}/g) ?? [];
  const both = new Set([adasKey, bobsKey]);
  assert.deepEqual(new Set(await logged(ada)), both);
  for (const query of ["", `?key=${bobsKey}`, `?model=${bobsKey}`]) {
    assert.deepEqual(new Set(await logged(bob, query)), new Set([bobsKey]));
  }
  assert.deepEqual(await logged(bob, `?model=${adasKey}`), []);
  const page = await bob.get(`${root}/requests`);
  assert.equal(page.status, 200);
  assert.match(page.text, /Crawler/);
  assert.doesNotMatch(page.text, /Indexer/);
});

Deno.test("a member's files name only their keys, and add up to what the project used", async () => {
  await using site = await startConsole();
  const { ada, bob, id, root, adasKey, bobsKey } = await startTeam(site);
  for (const keyId of [adasKey, bobsKey]) {
    const counts = { requests: 5, promptTokens: 10 };
    const use = { atMs: site.clock.nowMs, counts };
    await countUse(site, { ownerId: id, keyId }, use);
  }
  const file = async (who: TestClient) =>
    (await who.get(`${root}/usage/export.csv`)).text;
  assert.match(await file(ada), /Crawler.*Indexer|Indexer.*Crawler/s);
  const bobs = await file(bob);
  assert.match(bobs, /Crawler.*all other keys/s);
  assert.doesNotMatch(bobs, /Indexer/);
  const gone = { ownerId: id, keyId: `key_${"9".repeat(20)}` };
  const counts = { requests: 2 };
  await countUse(site, gone, { atMs: site.clock.nowMs, counts });
  const page = async (who: TestClient) =>
    (await who.get(`${root}/usage`)).text.replace(/<[^>]*>/g, " ")
      .replace(/\s+/g, " ");
  const [adas, bobsPage] = [await page(ada), await page(bob)];
  assert.match(
    adas,
    /By key .*Indexer sk-Cg…\S+ 5 .*Deleted keys and Try it 2/,
  );
  assert.match(
    adas,
    /By member (?=.* ada @example \.org 5 )(?=.* bob @example \.org 5 ).*Try it 2/,
  );
  assert.match(bobsPage, /By key .*Crawler sk-Cg…\S+ 5 .*Other keys 7/);
  assert.doesNotMatch(bobsPage, /Indexer|By member/);
  await ada.post(`${root}/keys/${adasKey}/disable`, { version: "1" });
  assert.match((await ada.get(`${root}/audit.csv`)).text, /Indexer/);
  assert.doesNotMatch((await bob.get(`${root}/audit.csv`)).text, /Indexer/);
  assert.match((await bob.get(`${root}/audit`)).text, /member added/);
});

Deno.test("Try it spends for the account that the page shows", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { bob, ids, id, root } = await startTeam(site);
  for (const from of [root, "", root]) {
    assert.equal((await bob.post(`${from}/try`, tryForm("Hi"))).status, 200);
  }
  const made = async (ownerId: string) =>
    (await entries(site, ownerId)).filter(({ description }) =>
      description === "Try it"
    ).length;
  assert.deepEqual([await made(id), await made(ids.bob)], [1, 1]);
  await bob.post("/sign-out");
  assert.deepEqual((await site.stored("key:*")).length, 2, "both are deleted");
});

Deno.test("PROJECTS_CREATED_BY: everyone creates projects, or only operators", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const eve = await site.signedIn(EMAILS.eve);
  const form = { name: "Mine", nonce: "b".repeat(43) };
  assert.equal((await eve.get("/projects/new")).status, 404);
  assert.equal((await eve.post("/projects/new", form)).status, 404);
  assert.ok(!(await eve.get("/keys")).text.includes("Own account"));
  site.deps.projectsCreatedBy = "everyone";
  assert.equal((await eve.get("/projects/new")).status, 200);
  const bad = await eve.post("/projects/new", { ...form, name: "a\u0007b" });
  assert.equal(bad.status, 400);
  assert.match(bad.text, /control characters/);
  const made = await eve.post("/projects/new", form);
  assert.match(
    made.headers.get("location") ?? "",
    /^.projects.prj_\w+.members$/,
  );
  assert.equal((await eve.post("/projects/new", form)).status, 409, "once");
  const named = await eve.post("/projects/new", {
    ...form,
    admin: EMAILS.ada,
    nonce: "c".repeat(43),
  });
  assert.equal(named.status, 303, "only operators name somebody else");
  const eveId = await site.deps.owners.find(EMAILS.eve) ?? "";
  assert.equal((await site.deps.projects.membershipsOf(eveId)).length, 2);
});

Deno.test("operators see all projects, and change keys and members of any", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const op = await site.signedIn("op@example.org", "192.0.2.9");
  const operatorId = await site.deps.owners.find("op@example.org") ?? "";
  await site.deps.owners.giveRole(operatorId);
  const list = async (query = "") =>
    (await op.get(`/people/projects${query}`)).text;
  assert.match(await list(), />No projects</);
  assert.match(await list("?search=x"), />Nothing found</);
  const { ada, id, ids, root, adasKey } = await startTeam(site);
  assert.match(await list(), />Search</);
  const page = `/people/projects/${id}`;
  assert.match((await op.get(page)).text, /bob@<?/);
  assert.match((await op.get(`/people/keys?search=${id}`)).text, /Indexer/);
  const key = `/people/${id}/keys/${adasKey}`;
  assert.match((await op.get(key)).text, /Search/);
  const form = { version: "1", reason: "Leaked" };
  assert.equal((await op.post(`${key}/disable`, form)).status, 303);
  assert.equal((await op.get(`${root}/keys`)).status, 404, "as no member");
  await op.post(`${page}/members/remove`, { member: ids.ada });
  assert.equal((await ada.get(`${root}/keys`)).status, 404);
  await op.post(`${page}/state`, { state: "disabled" });
  assert.match((await op.get(page)).text, />Disabled</);
  const limits = { ...limitsOf(() => ""), concurrency: "-1" };
  const answer = await op.post(`${page}/limits`, limits);
  assert.equal(answer.status, 400);
});

Deno.test("operators see what is used of the limits that they set for a project or an owner", async () => {
  await using site = await startConsole();
  const { id, ids } = await startTeam(site);
  const op = await site.signedIn("op@example.org", "192.0.2.9");
  const operatorId = await site.deps.owners.find("op@example.org") ?? "";
  await site.deps.owners.giveRole(operatorId);
  const accounts = [
    { path: `/people/projects/${id}`, ownerId: id, whose: "project" },
    { path: `/people/${ids.bob}`, ownerId: ids.bob, whose: "owner" },
  ];
  for (const { path, ownerId, whose } of accounts) {
    const page = async () =>
      (await op.get(path)).text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ");
    assert.match(await page(), /No limit is set/);
    const limits = { budgetTotal: "2.5", queueWeight: "150", concurrency: "4" };
    const form = { ...limitsOf(() => ""), ...limits };
    assert.equal((await op.post(`${path}/limits`, form)).status, 303, path);
    const spent = { [TOTAL_WINDOW]: { spent: 2_000_000_000 } };
    await useBudgets(site, { ownerId, keyId: null }, spent);
    const text = await page();
    const keys = `All keys of the ${whose}`;
    assert.match(text, new RegExp(`${keys} \\$2\\.00 of \\$2\\.50`));
    assert.match(text, new RegExp(`${keys} 0 of 4`));
    assert.match(text, /budget in total of all keys of the \w+\. 80% is used/);
    assert.match(text, /Queue weight: 150 %/);
    assert.match(text, /A budget counts what is admitted from the time it is/);
  }
});
