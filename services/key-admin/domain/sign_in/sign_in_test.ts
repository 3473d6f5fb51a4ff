/** Sign-in with password and second factor, and one-time links. */
import assert from "node:assert/strict";
import type { TestClient } from "../../client_fixture.ts";
import { codeOf, invitation, startConsole } from "../../console_fixture.ts";
import { isSignedIn, PASSWORD, signIn } from "../../forms_fixture.ts";
import { asTexts } from "../store/redis.ts";
import { digest } from "../store/secret.ts";
import { localPath } from "../../web/request/session.ts";

/**
 * Guarantee: no access by guessing, by timing, by default passwords or by replaying a
 * code or a link.
 */

const ADA = "ada@example.org";
const SESSION = "__Host-sid";

Deno.test("ASVS 6.3.8: unknown address, wrong password and wrong code look the same", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  await site.addOwner("eve@example.org");
  await site.deps.owners.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");
  const answers = await Promise.all([
    signIn(site.client("192.0.2.11"), "nobody@example.org"),
    signIn(site.client("192.0.2.12"), "eve@example.org", { password: "x" }),
    signIn(site.client("192.0.2.13"), ADA, { code: "000000" }),
    signIn(site.client("192.0.2.14"), ADA),
    signIn(site.client("192.0.2.15"), "no address"),
  ]);
  const plain = answers.map(({ status, text }) => [
    status,
    text.replace(/value="[^"]*"/g, "").replace(/[0-9a-f]{32}/g, ""),
  ]);
  for (const answer of plain) assert.deepEqual(answer, plain[0]);
  assert.equal(plain[0]?.[0], 401);
  assert.equal(site.hashing.verified, answers.length, "one hash each");
});

Deno.test("ASVS 2.4.1, 6.1.1, 6.3.1, 6.3.5: guesses are slowed down, lock nobody out, and warn the owner", async () => {
  await using site = await startConsole();
  const ownBrowser = await site.signedIn(ADA);
  const statuses: number[] = [];
  for (let tries = 0; tries < 7; tries++) {
    const stranger = site.client(`198.51.100.${tries}`);
    statuses.push((await signIn(stranger, ADA, { password: "guess" })).status);
  }
  assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429, 429]);
  const client = site.client("198.51.100.99");
  const right = await signIn(client, ADA);
  assert.equal(right.status, 429, "the right password has to wait, too");
  assert.ok(Number(right.headers.get("retry-after")) >= 1);
  assert.match(right.text, /Try again in 1 second\./);
  ownBrowser.cookies.delete(SESSION);
  const own = await signIn(ownBrowser, ADA);
  assert.equal(own.status, 303, "the owner's own device does not");
  const { redis } = site.deps;
  for (const name of asTexts(await redis.command(["KEYS", "try:*"]))) {
    await redis.command(["HDEL", name, "until"]);
  }
  const answer = await signIn(client, ADA);
  assert.equal(answer.headers.get("location"), "/keys?done=failed_tries");
  const page = await client.get("/keys?done=failed_tries");
  assert.match(page.text, /attempts to sign in to your account failed/);
  const audit = await client.get("/audit?action=session.");
  assert.match(audit.text, /after 5 failed attempts[\s\S]*Sign-in refused/);
});

Deno.test("ASVS 6.2.9: a password of 129 characters is refused before any work, one of 128 emoji is not", async () => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const rows: { password: string; status: number; verifications: number }[] = [
    { password: "a".repeat(129), status: 400, verifications: 0 },
    { password: "a".repeat(1_000_000), status: 413, verifications: 0 },
    { password: "🔑".repeat(128), status: 401, verifications: 1 },
  ];
  for (const { password, status, verifications } of rows) {
    const answer = await signIn(site.client(), ADA, { password });
    assert.equal(answer.status, status);
    assert.equal(site.hashing.verified, verifications);
  }
});

Deno.test("ASVS 6.3.2, 6.4.1: nobody signs in before the set-up; the first owner finds the earlier keys", async () => {
  await using site = await startConsole();
  for (const [email, password] of [["admin", "admin"], ["", ""], [ADA, ""]]) {
    const answer = await signIn(site.client(), email ?? "", { password });
    assert.equal(answer.status, 401);
  }
  const ownerId = await site.deps.owners.first();
  const account = await site.deps.owners.read(ownerId);
  assert.equal(account?.passwordHash, null);
  const links = await Promise.all(
    [1, 2].map(() => site.deps.links.make({ kind: "set_up", ownerId })),
  );
  const client = site.client();
  assert.match((await client.get("/sign-in")).text, /owners set-up/);
  const path = `/link/${links[0]}`;
  for (const time of ["first", "second, since opening does not use it up"]) {
    assert.equal((await client.get(path)).status, 200, time);
  }
  const choose = async (browser: TestClient, path: string, password: string) =>
    (await browser.post(path, {
      email: "Ada@Example.org",
      new_password: password,
    })).status;
  assert.equal(await choose(client, path, "password1234"), 400);
  assert.equal(await choose(client, path, PASSWORD), 303);
  assert.equal(await isSignedIn(client), true);
  assert.equal((await client.get(path)).status, 404, "used up");
  assert.equal(await site.deps.owners.find(ADA), ownerId);
  assert.equal((await client.get("/people")).status, 200, "an operator");
  const second = `/link/${links[1]}`;
  assert.equal(await choose(site.client(), second, PASSWORD), 404, "is void");
  const page = await site.client().get("/sign-in");
  assert.ok(!page.text.includes("owners set-up"));
  assert.match(page.text, /Forgot your password\? Ask your operator\./);
  assert.equal((await signIn(site.client(), ADA)).status, 303);
});

Deno.test("ASVS 6.4.1, 11.5.1: a link has 256 random bits, works once, and that of a set-up for 15 minutes", async () => {
  await using site = await startConsole();
  const invited = await invitation(site, ADA);
  const chosen = { email: ADA, new_password: PASSWORD };
  const answers = await Promise.all(
    Array.from({ length: 5 }, () => site.client().post(invited, chosen)),
  );
  assert.equal(answers.filter(({ status }) => status === 303).length, 1);
  const { redis, owners, links } = site.deps;
  const ownerId = await owners.first();
  const secret = await links.make({ kind: "set_up", ownerId });
  assert.match(secret, /^[0-9A-Za-z]{43}$/);
  const name = `ticket:link:${digest(secret)}`;
  assert.equal(await redis.command(["TTL", name]), 15 * 60);
  await redis.command(["DEL", name]);
  const form = { email: ADA, new_password: "short" };
  for (const wrong of [secret, "x", "a".repeat(43), "%00"]) {
    const path = `/link/${wrong}`;
    assert.equal((await site.client().get(path)).status, 404);
    assert.equal((await site.client().post(path, form)).status, 404);
  }
});

Deno.test("a reset cannot change the address, does not bypass the second factor, and voids earlier links", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  await site.deps.owners.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");
  const make = () => site.deps.links.make({ kind: "reset", ownerId });
  const [earlier, secret] = [await make(), await make()];
  const client = site.client();
  const page = await client.get(`/link/${secret}`);
  assert.match(page.text, />Save and continue</, "this does not sign in");
  const password = "another long passphrase";
  const form = { email: "eve@example.org", new_password: password };
  site.clock.nowMs += 1;
  const answer = await client.post(`/link/${secret}`, form);
  assert.equal((await client.post(`/link/${earlier}`, form)).status, 404);
  assert.equal(await isSignedIn(client), false);
  const next = await client.get(answer.headers.get("location") ?? "");
  assert.match(next.text, /password is saved\. .* a code[\s\S]*name="code"/);
  const code = codeOf(site, "GEZDGNBVGY3TQOJQ");
  assert.equal((await signIn(client, ADA, { password, code })).status, 303);
  assert.equal(await site.deps.owners.find("eve@example.org"), null);
});

Deno.test("ASVS 6.3.3, 7.5.1: two-step sign-in asks for the password, from setting it up to switching it off", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const page = await client.get("/account/second-factor");
  const secret = /secret=([A-Z2-7]{32})/.exec(page.text)?.[1] ?? "";
  const on = (code: string, password: string) =>
    client.post("/account/second-factor", { code, password });
  assert.equal((await on("000000", PASSWORD)).status, 400);
  assert.equal((await on(codeOf(site, secret), "wrong")).status, 400);
  const done = await on(codeOf(site, secret), PASSWORD);
  assert.equal(done.status, 200);
  const codes = done.text.match(/\b(?:[0-9A-Za-z]{5}-){3}[0-9A-Za-z]{5}\b/g);
  assert.equal(codes?.length, 10);
  const device = site.client();
  assert.equal((await signIn(device, ADA)).status, 401, "no code");
  const used = await signIn(device, ADA, { code: codeOf(site, secret) });
  assert.equal(used.status, 401, "the code of the set-up was used");
  const recovery = { code: ` ${codes?.[0]} ` };
  assert.equal((await signIn(device, ADA, recovery)).status, 303);
  const off = (password: string) =>
    client.post("/account/second-factor/off", { password });
  const wrong = await off("wrong");
  assert.equal(wrong.status, 400);
  assert.match(wrong.text, />The password is wrong\.<\/p>/);
  assert.match(wrong.text, /id="off_password"/, "to try again");
  await off(PASSWORD);
  assert.equal((await signIn(site.client("192.0.2.50"), ADA)).status, 303);
});

Deno.test("ASVS 3.7.2: redirects after sign-in stay on the console", async () => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const form = { email: ADA, password: PASSWORD, code: "" };
  for (const next of ["//evil.test", "/usage"]) {
    const answer = await site.client().post("/sign-in", { ...form, next });
    assert.equal(answer.headers.get("location"), localPath(next));
  }
  const hostile = [
    "https://evil.test/",
    "//evil.test",
    "/\\evil.test",
    "",
    "javascript:alert(1)",
    "/keys\r\nset-cookie: a=b",
  ];
  for (const next of hostile) assert.equal(localPath(next), "/keys", next);
});

Deno.test("ASVS 6.5.1: the same code sent many times at once works once", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  const secret = "GEZDGNBVGY3TQOJQ";
  const [recovery = ""] = await site.deps.owners.enableTotp(ownerId, secret);
  const rounds: { name: string; code: string; successes: number }[] = [
    { name: "this step", code: codeOf(site, secret), successes: 1 },
    { name: "the same again", code: codeOf(site, secret), successes: 0 },
    { name: "the step before", code: codeOf(site, secret, -1), successes: 1 },
    {
      name: "the step before again",
      code: codeOf(site, secret, -1),
      successes: 0,
    },
    { name: "the next step", code: codeOf(site, secret, 1), successes: 1 },
    { name: "two steps on", code: codeOf(site, secret, 2), successes: 0 },
    { name: "a recovery code", code: recovery, successes: 1 },
    { name: "the recovery code again", code: recovery, successes: 0 },
  ];
  const browsers = await Promise.all([1, 2, 3].map(async (n) => {
    const device = site.client(`198.51.100.${n}`);
    await signIn(device, ADA);
    return device;
  }));
  for (const { name, code, successes } of rounds) {
    const names = asTexts(await site.deps.redis.command(["KEYS", "try:*"]));
    if (names.length > 0) await site.deps.redis.command(["DEL", ...names]);
    const answers = await Promise.all(
      browsers.map((browser) => signIn(browser, ADA, { code })),
    );
    const count = (expected: number) =>
      answers.filter(({ status }) => status === expected).length;
    assert.deepEqual(
      [count(303), count(401)],
      [successes, 3 - successes],
      name,
    );
  }
});

Deno.test("ASVS 6.2.6, 6.2.7: password fields are masked, and managers may fill them in", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const pages: [client: typeof owner, path: string][] = [
    [site.client(), "/sign-in"],
    [site.client(), await invitation(site, "new@example.org")],
    [owner, "/account"],
    [owner, "/account/second-factor"],
  ];
  for (const [client, path] of pages) {
    const { text } = await client.get(path);
    const fields = text.match(/<input[^>]*name="(?:new_)?password"[^>]*>/g);
    for (const field of fields ?? assert.fail(text)) {
      assert.match(field, / type="password"/);
      assert.match(field, / autocomplete="(current|new)-password"/);
      // A bound in the page would silently truncate a pasted password.
      assert.ok(!/maxlength|onpaste|readonly/.test(field), field);
    }
  }
  const file = site.deps.assets.files.get(site.deps.assets.script);
  assert.ok(file !== undefined && !/["']paste["']/.test(file.body));
});
