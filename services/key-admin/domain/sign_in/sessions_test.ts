/** Sessions: their cookies, bounds and ends, and what needs the password again. */
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  fieldsOf,
  type Form,
  hiddenField,
  type TestClient,
} from "../../client_fixture.ts";
import { startConsole, storedKey } from "../../console_fixture.ts";
import { isSignedIn, keyForm, PASSWORD, signIn } from "../../forms_fixture.ts";
import { changedLink } from "../../../../tests/support/servers/redis_link.ts";
import { startRedis } from "../../redis_fixture.ts";
import { limitsOf } from "../keys/settings.ts";
import { asTexts } from "../store/redis.ts";
import { KeyStore } from "../keys/key_store.ts";
import { SESSION_LIMITS, SessionStore } from "./sessions.ts";

const ADA = "ada@example.org";
const OWNER = "own_aaaaaaaaaaaaaaaaaaaa";
const MINUTE_MS = 60_000;
const SESSION = "__Host-sid";

const areSignedIn = (...clients: TestClient[]) =>
  Promise.all(clients.map(isSignedIn));

Deno.test("ASVS 3.3.1-3.3.4, 7.2.2-7.2.4: each sign-in sets a new cookie of 256 random bits for us alone", async () => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const client = site.client();
  const planted = "A".repeat(43);
  client.cookies.set(SESSION, planted);
  const cookies = new Set([planted]);
  for (let n = 0; n < 10; n++) {
    const { headers } = await signIn(client, ADA);
    const line = headers.getSetCookie()
      .find((cookie) => cookie.startsWith(`${SESSION}=`)) ?? "";
    assert.match(line, /^__Host-sid=[0-9A-Za-z]{43};/);
    for (const part of ["Path=/", "HttpOnly", "Secure", "SameSite=Lax"]) {
      assert.ok(line.includes(part), line);
    }
    assert.doesNotMatch(line, /domain=/i);
    cookies.add(client.cookies.get(SESSION) ?? "");
  }
  assert.equal(cookies.size, 11);
  assert.ok(43 * Math.log2(62) >= 256);
  assert.equal(await isSignedIn(client), true);
  for (const earlier of [...cookies].slice(0, -1)) {
    client.cookies.set(SESSION, earlier);
    assert.equal(await isSignedIn(client), false, "ended by the next sign-in");
  }
});

Deno.test("ASVS 7.3.1, 7.3.2: a session ends exactly at its bounds", async () => {
  const busy = 20 * MINUTE_MS;
  const { idleMs, absoluteMs } = SESSION_LIMITS;
  const cases = [
    { name: "idle 30 min - 1 ms", stepMs: 0, lastMs: idleMs - 1, stays: true },
    { name: "idle 30 min", stepMs: 0, lastMs: idleMs, stays: false },
    { name: "12 h - 1 ms", stepMs: busy, lastMs: absoluteMs - 1, stays: true },
    { name: "12 h", stepMs: busy, lastMs: absoluteMs, stays: false },
  ];
  await using site = await startConsole();
  for (const [n, { name, stepMs, lastMs, stays }] of cases.entries()) {
    const client = await site.signedIn(`owner${n}@example.org`);
    const startMs = site.clock.nowMs;
    const busyMs = stepMs === 0 ? 0 : absoluteMs;
    for (let atMs = stepMs; atMs < busyMs; atMs += stepMs) {
      site.clock.nowMs = startMs + atMs;
      assert.equal(await isSignedIn(client), true, `${atMs}`);
    }
    site.clock.nowMs = startMs + lastMs;
    assert.equal(await isSignedIn(client), stays, name);
  }
});

Deno.test("ASVS 7.4.1, 7.5.2: sessions are listed and can be ended: another one, all, or by signing out", async () => {
  await using site = await startConsole();
  const here = await site.signedIn(ADA);
  const there = await site.signedIn(ADA, "192.0.2.77");
  const page = await here.get("/account");
  assert.match(page.text, /This device.*192\.0\.2\.77/s, "this one first");
  const session = hiddenField(page.text, "session");
  const answer = await here.post("/account/sessions/end", { session });
  assert.equal(answer.status, 303);
  assert.deepEqual(await areSignedIn(here, there), [true, false]);
  const again = await site.signedIn(ADA, "192.0.2.78");
  await here.post("/account/sessions/end-all");
  assert.deepEqual(await areSignedIn(here, again), [false, false]);
  const last = await site.signedIn(ADA, "192.0.2.79");
  const cookie = last.cookies.get(SESSION) ?? "";
  const out = await last.post("/sign-out");
  assert.match(out.headers.get("clear-site-data") ?? "", /cache/);
  assert.equal(last.cookies.has(SESSION), false);
  last.cookies.set(SESSION, cookie);
  assert.equal(await isSignedIn(last), false, "ended on the server");
});

Deno.test("ASVS 6.2.2, 6.2.3, 7.4.3: a new password needs the old one and ends all other sessions", async () => {
  await using site = await startConsole();
  const here = await site.signedIn(ADA);
  const there = await site.signedIn(ADA, "192.0.2.77");
  const better = { new_password: "a better passphrase 7", end_others: "on" };
  const change = async (password: string) =>
    (await here.post("/account/password", { password, ...better })).status;
  assert.equal(await change("wrong"), 400);
  const { hasher, hasher: { verify } } = site.deps;
  hasher.verify = async (...args) => {
    hasher.verify = verify;
    assert.equal(await change(PASSWORD), 303);
    return await verify(...args);
  };
  const late = await site.signedIn(ADA);
  assert.deepEqual(await areSignedIn(here, there, late), [true, false, false]);
  assert.equal((await signIn(site.client(), ADA)).status, 401);
});

Deno.test("ASVS 7.5.3: an hour after the password was entered, changes of keys and owners ask for it again", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const ownerId = await site.addOwner(ADA);
  await site.deps.owners.giveRole(ownerId);
  const person = `/people/${await site.deps.owners.ensure("eve@x.org")}`;
  const limits = { ...limitsOf(() => ""), concurrency: "1" };
  const { id } = await storedKey(site, ownerId);
  const nonce = hiddenField((await client.get("/keys/new")).text, "nonce");
  const requests: [path: string, form: Form][] = [
    ["/keys/new", keyForm("Late", { nonce })],
    [`/keys/${id}/rotate`, { version: "1", old: "1h", nonce: "r".repeat(43) }],
    [`/keys/${id}/delete`, { version: "2", sure: "on" }],
    ["/people", { email: "new@example.org" }],
    [`${person}/limits`, limits],
    [person, { what: "disable" }],
  ];
  for (let minutes = 0; minutes < 60; minutes += 20) {
    site.clock.nowMs += 20 * MINUTE_MS;
    assert.equal(await isSignedIn(client), true);
  }
  site.clock.nowMs -= 1;
  const early = keyForm("Early", { nonce: "e".repeat(43) });
  assert.equal((await client.post("/keys/new", early)).status, 201);
  site.clock.nowMs += 1;
  const before = await site.stored("[^s]*");
  /** Sends the form that the page has kept. */
  const sendKept = ([path, form]: [string, Form], password: string) =>
    client.post(path, { ...form, confirmed_password: password });
  for (const [path, form] of requests) {
    const page = await client.post(path, form);
    assert.equal(page.status, 401, path);
    assert.match(page.text, /"password" .*autocomplete="current-password"/);
    for (const [name, value] of fieldsOf(form)) {
      const input = `<input type="hidden" name="${name}" value="${value}"/>`;
      assert.ok(page.text.includes(input), `${path} ${name}`);
    }
    const last = await sendKept([path, form], "x".repeat(129));
    assert.equal(last.status, 401, "too long to be checked");
  }
  const disabling = await client.get(`/keys/${id}/ask/disable`);
  assert.equal(disabling.status, 200, "it may be urgent");
  assert.deepEqual(await site.stored("[^s]*"), before);
  const wrong = await sendKept(["/people", { email: "x@x.org" }], "no");
  assert.match(wrong.text, /The password is wrong/);
  for (const request of requests) {
    const { status } = await sendKept(request, PASSWORD);
    assert.ok([201, 303].includes(status), `${request[0]} ${status}`);
    site.clock.nowMs += 20 * MINUTE_MS;
  }
  assert.equal((await client.get(`/keys/${id}`)).status, 404, "deleted");
});

Deno.test("a form that arrives after the end of the session is kept, without a password", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const form = keyForm("<b>Late</b>", { nonce: "n".repeat(43) });
  site.clock.nowMs += 30 * MINUTE_MS;
  const fields = { ...form, confirmed_password: PASSWORD };
  const page = await client.post("/keys/new", fields);
  assert.equal(page.status, 401);
  assert.ok(!page.text.includes(PASSWORD));
  assert.ok(page.text.includes('value="&lt;b&gt;Late&lt;/b&gt;"'), page.text);
  const refused = await client.post("/account/password", { password: "x" });
  assert.equal(refused.headers.get("location"), "/sign-in?next=%2Fkeys");
  await signIn(client, ADA);
  assert.equal((await client.post("/keys/new", form)).status, 201);
});

Deno.test("ASVS 6.5.2, 7.2.2: only digests of secrets are stored, and a digest grants no access", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const ownerId = await site.addOwner(ADA);
  const { redis, owners, links, sessions } = site.deps;
  const link = await links.make({ kind: "reset", ownerId });
  const codes = await owners.enableTotp(ownerId, "GEZDGNBV");
  const names = asTexts(await redis.command(["KEYS", "*"]));
  const stored = (await Promise.all(
    names.map(async (name) => `${name} ${await redis.command(["DUMP", name])}`),
  )).join();
  for (const secret of [...client.cookies.values(), link]) {
    assert.ok(secret.length > 40 && !stored.includes(secret));
  }
  // 119 random bits each, so a fast digest is enough.
  assert.equal(new Set(codes).size, 10);
  for (const code of codes) {
    assert.match(code, /^([0-9A-Za-z]{5}-){3}[0-9A-Za-z]{5}$/);
    assert.ok(!stored.includes(code.replaceAll("-", "")));
    assert.ok(!stored.includes(code));
  }
  const [session] = await sessions.list(ownerId);
  client.cookies.set(SESSION, session?.id ?? assert.fail("no session"));
  assert.equal(await isSignedIn(client), false);
});

Deno.test("ASVS 7.4.1: a session whose deletion was interrupted is over or can be ended again", async () => {
  await using server = await startRedis();
  const link = await server.connect();
  let breaksAt = "";
  const redis = changedLink(link, {
    command: (args, options) =>
      args[0] === breaksAt
        ? Promise.reject(new RedisUnavailableError("deadline", "no answer"))
        : link.command(args, options),
  });
  const keys = new KeyStore({ redis, writer: redis, randomBytes });
  const store = new SessionStore({ redis, randomBytes, keys, now: Date.now });
  for (const command of ["DEL", "ZREM"]) {
    const cookie = await store.start(OWNER, { ip: "", userAgent: "" });
    const { id } = await store.find(cookie) ?? assert.fail("no session");
    breaksAt = command;
    await assert.rejects(store.end(OWNER, id), RedisUnavailableError);
    breaksAt = "";
    assert.equal(await store.end(OWNER, id), true, command);
    assert.equal(await store.find(cookie), null, command);
    assert.equal(await store.end(OWNER, id), false, command);
  }
});
