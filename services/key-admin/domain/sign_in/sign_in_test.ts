import assert from "node:assert/strict";
import {
  type Form,
  hiddenField,
  keyForm,
  PASSWORD,
  signIn,
  startConsole,
  storedKey,
  type TestClient,
  type TestConsole,
} from "../../console_fixture.ts";
import { linkKey } from "../store/names.ts";
import { asTexts } from "../store/redis.ts";
import { digest } from "../store/secret.ts";
import { SESSION_LIMITS } from "./sessions.ts";
import { totpCode } from "./totp.ts";

const ADA = "ada@example.org";
const MINUTE_MS = 60_000;
const SESSION = "__Host-sid";

async function isIn(client: TestClient): Promise<boolean> {
  return (await client.get("/keys")).status === 200;
}

/** The time base of one-time codes, which Redis does not share: the console's clock. */
const codeNow = (site: TestConsole, secret: string) =>
  totpCode(secret, Math.floor(site.clock.nowMs / 30_000));

Deno.test("ASVS 3.3.1-3.3.4, 7.2.2-7.2.4: each sign-in sets a new cookie of 256 random bits, which cannot be read by scripts, planted or sent elsewhere", async () => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const client = site.client();
  const planted = "A".repeat(43);
  client.cookies.set(SESSION, planted);
  const seen = new Set([planted]);
  for (let n = 0; n < 10; n++) {
    const answer = await signIn(client, ADA);
    const line = answer.headers.getSetCookie()
      .find((cookie) => cookie.startsWith(`${SESSION}=`)) ?? "";
    assert.match(line, /^__Host-sid=[0-9A-Za-z]{43};/);
    for (const part of ["Path=/", "HttpOnly", "Secure", "SameSite=Lax"]) {
      assert.ok(line.includes(part), line);
    }
    assert.ok(!/domain=/i.test(line), line);
    seen.add(client.cookies.get(SESSION) ?? "");
  }
  assert.equal(seen.size, 11);
  assert.ok(43 * Math.log2(62) >= 256);
  assert.equal(await isIn(client), true);
  for (const earlier of [...seen].slice(0, -1)) {
    client.cookies.set(SESSION, earlier);
    assert.equal(await isIn(client), false, "ended by the next sign-in");
  }
});

Deno.test("ASVS 7.3.1, 7.3.2: a session ends exactly at its bounds", async (t) => {
  const busy = 20 * MINUTE_MS;
  const { idleMs, absoluteMs } = SESSION_LIMITS;
  const cases: [name: string, stepMs: number, lastMs: number, isIn: boolean][] =
    [
      ["idle 30 min - 1 ms", 0, idleMs - 1, true],
      ["idle 30 min", 0, idleMs, false],
      ["12 h - 1 ms", busy, absoluteMs - 1, true],
      ["12 h", busy, absoluteMs, false],
      ["12 h 1 min", busy, absoluteMs + MINUTE_MS, false],
    ];
  await using site = await startConsole();
  for (const [n, [name, stepMs, lastMs, stays]] of cases.entries()) {
    await t.step(name, async () => {
      const client = await site.signedIn(`owner${n}@example.org`);
      const startMs = site.clock.nowMs;
      const busyMs = stepMs === 0 ? 0 : SESSION_LIMITS.absoluteMs;
      for (let atMs = stepMs; atMs < busyMs; atMs += stepMs) {
        site.clock.nowMs = startMs + atMs;
        assert.equal(await isIn(client), true, `${atMs}`);
      }
      site.clock.nowMs = startMs + lastMs;
      assert.equal(await isIn(client), stays);
    });
  }
});

Deno.test("ASVS 7.4.1: signing out ends the session on the server", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const cookie = client.cookies.get(SESSION) ?? "";
  const answer = await client.post("/sign-out");
  assert.equal(answer.status, 303);
  assert.match(answer.headers.get("clear-site-data") ?? "", /cache/);
  assert.equal(client.cookies.has(SESSION), false);
  client.cookies.set(SESSION, cookie);
  assert.equal(await isIn(client), false);
});

Deno.test("ASVS 7.5.2: sessions are listed and can be ended, one or all", async () => {
  await using site = await startConsole();
  const here = await site.signedIn(ADA);
  const there = await site.signedIn(ADA, "192.0.2.77");
  const page = await here.get("/account");
  assert.match(page.text, /This device.*192\.0\.2\.77/s, "this one first");
  const session = hiddenField(page.text, "session");
  const answer = await here.post("/account/sessions/end", { session });
  assert.equal(answer.status, 303);
  assert.deepEqual([await isIn(here), await isIn(there)], [true, false]);

  const again = await site.signedIn(ADA, "192.0.2.78");
  await here.post("/account/sessions/end-all");
  assert.deepEqual([await isIn(here), await isIn(again)], [false, false]);
});

Deno.test("ASVS 6.2.2, 6.2.3, 7.4.3: a new password needs the old one and ends the other sessions", async () => {
  await using site = await startConsole();
  const here = await site.signedIn(ADA);
  const there = await site.signedIn(ADA, "192.0.2.77");
  const wrong = await here.post("/account/password", {
    password: "not my password",
    new_password: "a much better passphrase 7",
  });
  assert.equal(wrong.status, 400);
  const answer = await here.post("/account/password", {
    password: PASSWORD,
    new_password: "a much better passphrase 7",
    end_others: "on",
  });
  assert.equal(answer.status, 303);
  assert.deepEqual([await isIn(here), await isIn(there)], [true, false]);
  assert.equal((await signIn(site.client(), ADA)).status, 401);
});

Deno.test("ASVS 7.5.3: an hour after the password was entered, creating, rotating and deleting keys asks for it again", async (t) => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const ownerId = await site.addOwner(ADA);
  const { id } = await storedKey(site, ownerId);
  const nonce = hiddenField((await client.get("/keys/new")).text, "nonce");
  const rotation = { version: "1", old: "1h", nonce: "r".repeat(43) };
  const requests: [path: string, form: Form | null, next: string][] = [
    ["/keys/new", null, "/keys/new"],
    ["/keys", keyForm("Late", { nonce }), "/keys/new"],
    [`/keys/${id}/ask/rotate`, null, `/keys/${id}/ask/rotate`],
    [`/keys/${id}/rotate`, rotation, `/keys/${id}/ask/rotate`],
    [`/keys/${id}/ask/delete`, null, `/keys/${id}/ask/delete`],
    [`/keys/${id}/delete`, {
      version: "2",
      sure: "on",
    }, `/keys/${id}/ask/delete`],
  ];
  const ask = (path: string, form: Form | null) =>
    form === null ? client.get(path) : client.post(path, form);
  for (let minutes = 0; minutes < 60; minutes += 20) {
    site.clock.nowMs += 20 * MINUTE_MS;
    assert.equal(await isIn(client), true);
  }
  site.clock.nowMs -= 1;
  assert.equal((await client.get("/keys/new")).status, 200);
  site.clock.nowMs += 1;
  const before = await site.stored(`*{${ownerId}}*`);
  for (const [path, form, next] of requests) {
    await t.step(`${form === null ? "GET" : "POST"} ${path} asks`, async () => {
      const answer = await ask(path, form);
      assert.equal(
        answer.headers.get("location"),
        `/confirm?next=${encodeURIComponent(next)}`,
      );
    });
  }
  await t.step("disabling a key asks for no password", async () => {
    assert.equal((await client.get(`/keys/${id}/ask/disable`)).status, 200);
  });
  assert.deepEqual(await site.stored(`*{${ownerId}}*`), before);
  const next = "/keys/new";
  const wrong = await client.post("/confirm", { password: "no", next });
  assert.equal(wrong.status, 400);
  const still = await client.get("/keys/new");
  assert.match(still.headers.get("location") ?? "", /confirm/);
  const right = await client.post("/confirm", { password: PASSWORD, next });
  assert.equal(right.headers.get("location"), next);
  for (const [path, form] of requests) {
    await t.step(`${path} after it`, async () => {
      const { status } = await ask(path, form);
      assert.ok([200, 201, 303].includes(status), `${status}`);
    });
  }
  assert.equal((await client.get(`/keys/${id}`)).status, 404, "deleted");
});

Deno.test("ASVS 6.3.8: unknown address, wrong password and wrong code look the same", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  await site.addOwner("eve@example.org");
  await site.deps.accounts.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");
  const answers = [
    await signIn(site.client("192.0.2.11"), "nobody@example.org"),
    await signIn(site.client("192.0.2.12"), "eve@example.org", {
      password: "x",
    }),
    await signIn(site.client("192.0.2.13"), ADA, { code: "000000" }),
    await signIn(site.client("192.0.2.14"), ADA, { code: "" }),
    await signIn(site.client("192.0.2.15"), "no address"),
  ];
  const plain = answers.map(({ status, text }) => [
    status,
    text.replace(/value="[^"]*"/g, "").replace(/[0-9a-f]{32}/g, ""),
  ]);
  for (const answer of plain) assert.deepEqual(answer, plain[0]);
  assert.equal(plain[0]?.[0], 401);
  assert.equal(site.hashing.verified, answers.length, "one hash each");
});

Deno.test("ASVS 2.4.1, 6.1.1, 6.3.1: guessing one account is slowed down, not locked out", async () => {
  await using site = await startConsole();
  const known = await site.signedIn(ADA);
  const statuses: number[] = [];
  for (let tries = 0; tries < 7; tries++) {
    const stranger = site.client(`198.51.100.${tries}`);
    statuses.push((await signIn(stranger, ADA, { password: "guess" })).status);
  }
  assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429, 429]);
  const right = await signIn(site.client("198.51.100.99"), ADA);
  assert.equal(right.status, 429, "the right password has to wait, too");
  assert.ok(Number(right.headers.get("retry-after")) >= 1);
  known.cookies.delete(SESSION);
  assert.equal(
    (await signIn(known, ADA)).status,
    303,
    "the owner's own device does not have to wait",
  );
});

Deno.test("ASVS 6.2.9: a password of 129 characters is refused before any work, one of 128 emoji is not", async () => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const rows: [password: string, status: number, verified: number][] = [
    ["a".repeat(129), 400, 0],
    ["a".repeat(1_000_000), 413, 0],
    ["🔑".repeat(128), 401, 1],
  ];
  for (const [password, status, verified] of rows) {
    const answer = await signIn(site.client(), ADA, { password });
    assert.equal(answer.status, status);
    assert.equal(site.hashing.verified, verified);
  }
});

Deno.test("ASVS 6.3.5: after five failed attempts the owner is warned at once", async () => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const client = site.client();
  for (let tries = 0; tries < 5; tries++) {
    await signIn(client, ADA, { password: "guess" });
  }
  const { redis } = site.deps;
  for (const name of asTexts(await redis.command(["KEYS", "try:*"]))) {
    await redis.command(["HDEL", name, "until"]);
  }
  const answer = await signIn(client, ADA);
  assert.equal(answer.headers.get("location"), "/keys?done=failed_tries");
  const page = await client.get("/keys?done=failed_tries");
  assert.match(page.text, /attempts to sign in to your account failed/);
  const audit = await client.get("/audit?action=session.");
  assert.match(
    audit.text,
    /Sign-in refused[\s\S]*after 5 failed attempts|after 5 failed attempts[\s\S]*Sign-in refused/,
  );
});

Deno.test("before the set-up, the sign-in page explains how to begin", async () => {
  await using site = await startConsole();
  assert.match((await site.client().get("/sign-in")).text, /owners set-up/);
  const ownerId = await site.deps.owners.first();
  await site.deps.owners.claim(ownerId, ADA);
  await site.deps.accounts.setPassword(ownerId, "quick x");
  const page = await site.client().get("/sign-in");
  assert.ok(!page.text.includes("owners set-up"));
});

Deno.test("ASVS 6.4.1: the set-up link works once, and the first owner finds the earlier keys", async () => {
  await using site = await startConsole();
  const ownerId = await site.deps.owners.first();
  const links = await Promise.all(
    [1, 2].map(() => site.deps.links.make({ kind: "set_up", ownerId })),
  );
  const client = site.client();
  const path = `/link/${links[0]}`;
  assert.equal((await client.get(path)).status, 200);
  assert.equal(
    (await client.get(path)).status,
    200,
    "opening a link does not use it up",
  );
  const weak = await client.post(path, {
    email: ADA,
    new_password: "password1234",
  });
  assert.equal(weak.status, 400);
  const form = { email: "Ada@Example.org", new_password: PASSWORD };
  assert.equal((await client.post(path, form)).status, 303);
  assert.equal(await isIn(client), true);
  assert.equal((await client.get(path)).status, 404, "used up");
  assert.equal(await site.deps.owners.find(ADA), ownerId);

  const late = site.client();
  const takeover = await late.post(`/link/${links[1]}`, {
    email: "eve@example.org",
    new_password: PASSWORD,
  });
  assert.equal(takeover.status, 404, "the second link is void");
  assert.equal((await signIn(site.client(), ADA)).status, 303);
});

Deno.test("a link used twice at the same time admits one", async () => {
  await using site = await startConsole();
  const ownerId = await site.deps.owners.ensure(ADA);
  const invite = { kind: "invite", ownerId, email: ADA } as const;
  const path = `/link/${await site.deps.links.make(invite)}`;
  const form = { email: ADA, new_password: PASSWORD };
  const answers = await Promise.all(
    Array.from({ length: 5 }, () => site.client().post(path, form)),
  );
  assert.equal(answers.filter(({ status }) => status === 303).length, 1);
});

Deno.test("ASVS 6.4.1, 11.5.1: a set-up link has 256 random bits and works for 15 minutes", async () => {
  await using site = await startConsole();
  const ownerId = await site.deps.owners.first();
  const make = () => site.deps.links.make({ kind: "set_up", ownerId });
  const links = new Set(await Promise.all(Array.from({ length: 50 }, make)));
  assert.equal(links.size, 50);
  for (const link of links) assert.match(link, /^[0-9A-Za-z]{43}$/);
  for (const secret of ["x", "a".repeat(43), "%00"]) {
    assert.equal((await site.client().get(`/link/${secret}`)).status, 404);
  }
  const secret = await make();
  const name = linkKey(digest(secret));
  const { redis } = site.deps;
  assert.equal(await redis.command(["TTL", name]), 15 * 60);
  await redis.command(["DEL", name]);
  const form = { email: ADA, new_password: "short" };
  const path = `/link/${secret}`;
  assert.equal((await site.client().get(path)).status, 404);
  assert.equal((await site.client().post(path, form)).status, 404);
});

Deno.test("an invitation cannot change the address, and a reset does not bypass the second factor", async () => {
  await using site = await startConsole();
  const ownerId = await site.addOwner(ADA);
  await site.deps.accounts.enableTotp(ownerId, "GEZDGNBVGY3TQOJQ");
  const secret = await site.deps.links.make({
    kind: "reset",
    ownerId,
    email: ADA,
  });
  const client = site.client();
  const answer = await client.post(`/link/${secret}`, {
    email: "eve@example.org",
    new_password: "another long passphrase",
  });
  assert.equal(answer.headers.get("location"), "/sign-in");
  assert.equal(await isIn(client), false);
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
  assert.equal((await on(codeNow(site, secret), "wrong")).status, 400);
  const done = await on(codeNow(site, secret), PASSWORD);
  assert.equal(done.status, 200);
  const codes = done.text.match(/\b(?:[0-9A-Za-z]{5}-){3}[0-9A-Za-z]{5}\b/g);
  assert.equal(codes?.length, 10);

  const device = site.client();
  assert.equal((await signIn(device, ADA)).status, 401, "no code");
  const used = codeNow(site, secret);
  const replay = await signIn(device, ADA, { code: used });
  assert.equal(replay.status, 401, "the code of the set-up was used");
  site.clock.nowMs += 30_000;
  const code = codeNow(site, secret);
  assert.equal((await signIn(device, ADA, { code })).status, 303);
  assert.equal((await signIn(device, ADA, { code })).status, 401, "replayed");
  const recovery = codes?.[0] ?? "";
  const rescued = await signIn(device, ADA, { code: ` ${recovery} ` });
  assert.equal(rescued.status, 303);
  assert.equal((await signIn(device, ADA, { code: recovery })).status, 401);

  const wrong = await client.post("/account/second-factor/off", {
    password: "wrong",
  });
  assert.equal(wrong.status, 400);
  assert.match(wrong.text, />The password is wrong\.<\/p>/);
  assert.match(wrong.text, /id="off_password"/, "to try again");
  await client.post("/account/second-factor/off", { password: PASSWORD });
  assert.equal((await signIn(site.client("192.0.2.50"), ADA)).status, 303);
});

Deno.test("ASVS 7.2.2: only digests of secrets are stored, and a digest grants no access", async () => {
  await using site = await startConsole();
  const client = await site.signedIn(ADA);
  const email = "new@example.org";
  const ownerId = await site.deps.owners.ensure(email);
  const link = await site.deps.links.make({ kind: "invite", ownerId, email });
  const { redis } = site.deps;
  const names = asTexts(await redis.command(["KEYS", "*"]));
  const stored = (await Promise.all(
    names.map(async (name) => `${name} ${await redis.command(["DUMP", name])}`),
  )).join();
  for (const secret of [...client.cookies.values(), link]) {
    assert.ok(secret.length > 40 && !stored.includes(secret));
  }
  const [session] = await site.deps.sessions.list(await site.addOwner(ADA));
  client.cookies.set(SESSION, session?.id ?? assert.fail("no session"));
  assert.equal(await isIn(client), false);
});

Deno.test("ASVS 3.7.2: redirects after sign-in stay on the console", async (t) => {
  await using site = await startConsole();
  await site.addOwner(ADA);
  const hostile = [
    ...["https://evil.test/", "//evil.test", "/\\evil.test", ""],
    ...["javascript:alert(1)", "/keys\r\nset-cookie: a=b"],
  ];
  for (const next of hostile) {
    await t.step(JSON.stringify(next), async () => {
      const form = { email: ADA, password: PASSWORD, code: "", next };
      const answer = await site.client().post("/sign-in", form);
      assert.equal(answer.headers.get("location"), "/keys");
    });
  }
});
