import assert from "node:assert/strict";
import {
  hiddenField,
  keyForm,
  makeKey,
  ORIGIN,
  startConsole,
  storedKey,
  type TestClient,
} from "../console_fixture.ts";
import { until } from "../redis_fixture.ts";

/** Who may do what through the web: the rows of ASVS 5.0 and the OWASP API Top 10 that are about access. */

const HEADERS: [name: string, value: RegExp][] = [
  ["content-security-policy", /default-src 'none'.*frame-ancestors 'none'/],
  ["strict-transport-security", /max-age=31536000/],
  ["x-content-type-options", /^nosniff$/],
  ["x-frame-options", /^DENY$/],
  ["referrer-policy", /^same-origin$/],
  ["cross-origin-opener-policy", /^same-origin$/],
  ["x-request-id", /^[0-9a-f]{32}$/],
];

Deno.test("ASVS 3.4.1-3.4.6, 14.3.2: every answer has the security headers", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  const stranger = site.client();
  const key = await makeKey(owner, "A key");
  const cases: [name: string, answer: Promise<{ headers: Headers }>][] = [
    ["list", owner.get("/keys")],
    ["new", owner.get("/keys/new")],
    ["key", owner.get(`/keys/${key.id}`)],
    ["usage", owner.get("/usage")],
    ["audit", owner.get("/audit")],
    ["csv", owner.get("/audit.csv")],
    ["account", owner.get("/account")],
    ["sign-in", stranger.get("/sign-in")],
    ["redirect", stranger.get("/keys")],
    ["404", stranger.get("/nothing")],
    ["405", owner.get(`/keys/${key.id}/delete`)],
    ["401", stranger.get("/keys", { authorization: "Bearer x" })],
    ["403", stranger.send("/sign-in", { method: "POST" })],
    ["421", stranger.get("/sign-in", { host: "evil.test" })],
    ["used link", stranger.get(`/link/${"a".repeat(43)}`)],
  ];
  for (const [name, pending] of cases) {
    await t.step(name, async () => {
      const { headers } = await pending;
      for (const [header, value] of HEADERS) {
        assert.match(headers.get(header) ?? "", value, header);
      }
      const policy = headers.get("content-security-policy") ?? "";
      assert.ok(!/unsafe-inline|unsafe-eval|\*/.test(policy), policy);
      assert.equal(headers.get("cache-control"), "no-store");
      assert.equal(headers.get("access-control-allow-origin"), null);
      if (headers.has("content-type")) {
        assert.match(headers.get("content-type") ?? "", /charset=utf-8/i);
      }
    });
  }
});

Deno.test("the console's own files are kept by browsers, under names of their content", async () => {
  await using site = await startConsole();
  const page = await site.client().get("/sign-in");
  const paths = [...page.text.matchAll(/(?:href|src)="(\/assets\/[^"]+)"/g)]
    .map((match) => match[1] ?? "");
  assert.equal(paths.length, 3);
  for (const path of paths) {
    const file = await site.client().get(path);
    assert.equal(file.status, 200);
    assert.match(file.headers.get("cache-control") ?? "", /immutable/);
    assert.match(
      file.headers.get("content-security-policy") ?? "",
      /default-src 'none'/,
    );
  }
  const other = await site.client().get("/assets/000000000000/site.css");
  assert.equal(other.status, 404);
});

Deno.test("no page has inline scripts, styles or event handlers", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  const key = await makeKey(owner, "A key");
  await owner.get("/account/second-factor");
  await owner.get(`/keys/${key.id}/ask/delete`);
  for (const page of site.answers) {
    assert.ok(!/\sstyle=|<style|\son[a-z]+=|javascript:/i.test(page), page);
    assert.ok(!/<script(?![^>]*\ssrc=)/i.test(page));
  }
});

Deno.test("only the configured host is answered (DNS rebinding, absolute form)", async (t) => {
  await using site = await startConsole();
  const client = site.client();
  for (const host of ["evil.test", "site.test:8443", "localhost", ""]) {
    await t.step(`Host: ${host}`, async () => {
      assert.equal((await client.get("/sign-in", { host })).status, 421);
    });
  }
  await t.step("absolute form with another host", async () => {
    const answer = await client.send("https://evil.test/sign-in", {});
    assert.equal(answer.status, 421);
  });
});

const REFUSED_ORIGINS: [name: string, headers: Record<string, string>][] = [
  ["no Origin, no Sec-Fetch-Site", {}],
  ["Origin: null", { origin: "null" }],
  ["another origin", { origin: "https://evil.test" }],
  ["our name on http", { origin: "http://site.test" }],
  ["our name on another port", { origin: `${ORIGIN}:8443` }],
  ["a name that begins like ours", { origin: `${ORIGIN}.evil.test` }],
  ["Sec-Fetch-Site: cross-site", { "sec-fetch-site": "cross-site" }],
  ["Sec-Fetch-Site: same-site", { "sec-fetch-site": "same-site" }],
  ["Sec-Fetch-Site: none", { "sec-fetch-site": "none" }],
  ["cross-site with our Origin", {
    "sec-fetch-site": "cross-site",
    origin: ORIGIN,
  }],
  ["same-origin with another Origin", {
    "sec-fetch-site": "same-origin",
    origin: "https://evil.test",
  }],
];

Deno.test("ASVS 3.5.1 (CSRF): a change from another site is refused and changes nothing", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  const ownerId = await site.addOwner("ada@example.org");
  const key = await storedKey(site, ownerId);
  const token = await owner.formToken();
  const body = () =>
    new URLSearchParams({ form_token: token, version: String(key.version) });
  const disable = `/keys/${key.id}/disable`;
  const ours = { origin: ORIGIN, "sec-fetch-site": "same-origin" };
  for (const [name, headers] of REFUSED_ORIGINS) {
    await t.step(name, async () => {
      const init = { method: "POST", headers, body: body() };
      assert.equal((await owner.send(disable, init)).status, 403);
    });
  }
  const otherTypes = ["application/json", "text/plain", "multipart/form-data"];
  for (const type of otherTypes) {
    await t.step(`${type} from our origin`, async () => {
      const answer = await owner.send(disable, {
        method: "POST",
        headers: { ...ours, "content-type": type },
        body: body().toString(),
      });
      assert.equal(answer.status, 415);
    });
  }
  const tokens = ["", "x", token.slice(1), token + "a", "ä".repeat(43)];
  for (const wrong of tokens) {
    await t.step(`our origin with the form token "${wrong}"`, async () => {
      const form = body();
      form.set("form_token", wrong);
      const init = { method: "POST", headers: ours, body: form };
      assert.equal((await owner.send(disable, init)).status, 403);
    });
  }
  assert.equal((await site.deps.keys.get(ownerId, key.id))?.version, 1);
  await t.step("and our own form works", async () => {
    const init = { method: "POST", headers: ours, body: body() };
    assert.equal((await owner.send(disable, init)).status, 303);
  });
});

Deno.test("ASVS 3.5.1: another owner's form token does not fit", async () => {
  await using site = await startConsole();
  const ada = await site.signedIn("ada@example.org");
  const bob = await site.signedIn("bob@example.org", "192.0.2.2");
  const answer = await ada.send("/sign-out", {
    method: "POST",
    headers: { origin: ORIGIN, "sec-fetch-site": "same-origin" },
    body: new URLSearchParams({ form_token: await bob.formToken() }),
  });
  assert.equal(answer.status, 403);
  assert.equal((await ada.get("/keys")).status, 200);
});

Deno.test("ASVS 3.5.3, 4.1.4: nothing changes on GET, and other methods are 405", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  const ownerId = await site.addOwner("ada@example.org");
  const { id } = await storedKey(site, ownerId);
  const changes = [
    `/keys/${id}/enable`,
    `/keys/${id}/disable`,
    `/keys/${id}/delete`,
    `/keys/${id}/rotate`,
    "/account/password",
    "/account/second-factor/off",
    "/account/sessions/end",
    "/account/sessions/end-all",
    "/sign-out",
  ];
  for (const path of changes) {
    await t.step(`GET ${path}`, async () => {
      const answer = await owner.get(path);
      assert.equal(answer.status, 405);
      assert.equal(answer.headers.get("allow"), "POST");
    });
  }
  for (const method of ["PUT", "DELETE", "PATCH", "OPTIONS"]) {
    await t.step(`${method} /keys`, async () => {
      const answer = await owner.send("/keys", {
        method,
        headers: {
          origin: ORIGIN,
          "sec-fetch-site": "same-origin",
          "content-type": "application/x-www-form-urlencoded",
        },
        body: `form_token=${await owner.formToken()}`,
      });
      assert.equal(answer.status, 405);
      assert.equal(answer.headers.get("allow"), "GET, HEAD, POST");
    });
  }
  assert.equal((await site.deps.keys.get(ownerId, id))?.version, 1);
});

Deno.test("API5: a data-plane key on the console is 401", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  const { value } = await makeKey(owner, "A key");
  for (const client of [site.client(), owner]) {
    const answer = await client.get("/keys", {
      authorization: `Bearer ${value}`,
    });
    assert.equal(answer.status, 401);
    assert.ok(!answer.text.includes("A key"));
  }
});

/** Every route that names a key, with a form that would be right for its owner. */
function keyRequests(id: string, version: string) {
  const edited = keyForm("Taken over", { version });
  const reads = [
    `/keys/${id}`,
    `/keys/${id}?range=30d`,
    `/keys/${id}/edit`,
    `/keys/${id}/ask/disable`,
    `/keys/${id}/ask/delete`,
    `/keys/${id}/ask/rotate`,
  ];
  const nonce = "a".repeat(43);
  const writes: [path: string, form: Record<string, string | string[]>][] = [
    [`/keys/${id}/edit`, edited],
    [`/keys/${id}/enable`, { version }],
    [`/keys/${id}/disable`, { version, stop_running: "on" }],
    [`/keys/${id}/delete`, { version, sure: "on" }],
    [`/keys/${id}/rotate`, { version, old: "now", nonce }],
  ];
  return { reads, writes };
}

Deno.test("API1, ASVS 8.2.2, 8.4.1 (IDOR): another owner's key is 404 on every route", async (t) => {
  await using site = await startConsole();
  const adaId = await site.addOwner("ada@example.org");
  const bob = await site.signedIn("bob@example.org");
  const { id } = await storedKey(site, adaId, "Adas secret project");
  const { reads, writes } = keyRequests(id, "1");
  for (const path of reads) {
    await t.step(`GET ${path}`, async () => {
      const answer = await bob.get(path);
      assert.equal(answer.status, 404);
      assert.ok(!answer.text.includes("Adas secret"));
    });
  }
  for (const [path, form] of writes) {
    await t.step(`POST ${path}`, async () => {
      assert.equal((await bob.post(path, form)).status, 404);
    });
  }
  for (const path of [`/keys?search=${id}`, "/keys?search=adas", "/audit"]) {
    await t.step(`GET ${path}`, async () => {
      const answer = await bob.get(path);
      assert.ok(!answer.text.includes("Adas secret"), answer.text);
    });
  }
  const ada = await site.signedIn("ada@example.org", "192.0.2.9");
  await t.step("another owner's session", async () => {
    const sessions = await site.deps.sessions.list(adaId);
    const answer = await bob.post("/account/sessions/end", {
      session: sessions[0]?.id ?? "",
    });
    assert.equal(answer.status, 404);
    assert.equal((await ada.get("/keys")).status, 200);
  });
  const key = await site.deps.keys.get(adaId, id);
  assert.deepEqual([key?.version, key?.description], [
    1,
    "Adas secret project",
  ]);
  assert.equal(site.stops.sent.length, 0);
});

Deno.test("without a session every private page leads to the sign-in, and every form changes nothing", async (t) => {
  await using site = await startConsole();
  const ownerId = await site.addOwner("ada@example.org");
  const { id } = await storedKey(site, ownerId);
  const { reads, writes } = keyRequests(id, "1");
  const pages = [...reads, "/keys", "/keys/new", "/usage", "/audit"];
  for (const path of [...pages, "/audit.csv", "/account", "/confirm"]) {
    await t.step(`GET ${path}`, async () => {
      const answer = await site.client().get(path);
      assert.equal(answer.status, 302);
      assert.match(answer.headers.get("location") ?? "", /^\/sign-in\?next=/);
    });
  }
  for (const [path, form] of writes) {
    await t.step(`POST ${path}`, async () => {
      const answer = await site.client().post(path, form);
      assert.equal(answer.status, 302);
    });
  }
  assert.equal((await site.deps.keys.get(ownerId, id))?.version, 1);
});

Deno.test("API3, ASVS 15.3.3 (mass assignment): a field the page does not have is 400", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  const ownerId = await site.addOwner("ada@example.org");
  const { id } = await storedKey(site, ownerId);
  const { writes } = keyRequests(id, "1");
  const nonce = hiddenField((await owner.get("/keys/new")).text, "nonce");
  const forms: typeof writes = [
    ...writes,
    ["/keys", keyForm("New", { nonce })],
    ["/account/password", { password: "x", new_password: "y" }],
    ["/confirm", { password: "x", next: "/keys" }],
    ["/account/sessions/end", { session: "x" }],
    ["/sign-in", { email: "a@b", password: "x", code: "", next: "/keys" }],
  ];
  const extras = ["own", "ownerId", "st", "state", "id", "hash", "version2"];
  for (const [path, form] of forms) {
    await t.step(path, async () => {
      for (const extra of [...extras, "__proto__", "constructor"]) {
        const answer = await owner.post(path, { ...form, [extra]: "x" });
        assert.equal(answer.status, 400, extra);
      }
      const [name = ""] = Object.keys(form).filter((n) => n !== "scopes");
      const twice = { ...form, [name]: ["1", "1"] };
      assert.equal((await owner.post(path, twice)).status, 400, "twice");
    });
  }
  assert.equal((await site.deps.keys.get(ownerId, id))?.version, 1);
});

Deno.test("a form that is too large or not UTF-8 is refused", async () => {
  await using site = await startConsole();
  const client: TestClient = site.client();
  const headers = {
    origin: ORIGIN,
    "content-type": "application/x-www-form-urlencoded",
  };
  const large = await client.send("/sign-in", {
    method: "POST",
    headers,
    body: `email=${"a".repeat(40_000)}`,
  });
  assert.equal(large.status, 413);
  const broken = await client.send("/sign-in", {
    method: "POST",
    headers,
    body: Uint8Array.of(0x61, 0x3d, 0xff),
  });
  assert.equal(broken.status, 400);
});

Deno.test("redirects after sign-in stay on the console (ASVS 3.7.2)", async (t) => {
  await using site = await startConsole();
  await site.addOwner("ada@example.org");
  const hostile = [
    "https://evil.test/",
    "//evil.test",
    "/\\evil.test",
    "javascript:alert(1)",
    "/keys\r\nset-cookie: a=b",
    "",
  ];
  for (const next of hostile) {
    await t.step(JSON.stringify(next), async () => {
      const answer = await site.client().post("/sign-in", {
        email: "ada@example.org",
        password: "correct horse battery staple",
        code: "",
        next,
      });
      assert.equal(answer.headers.get("location"), "/keys");
    });
  }
});

Deno.test("ASVS 16.5: redis away is 503 without details, and the console comes back", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn("ada@example.org");
  site.server.freeze();
  const answer = await owner.get("/keys");
  assert.equal(answer.status, 503);
  assert.equal(answer.headers.get("retry-after"), "1");
  assert.ok(!/redis|stack|deadline/i.test(answer.text), answer.text);
  const signIn = await site.client().post("/sign-in", {
    email: "ada@example.org",
    password: "x",
    code: "",
    next: "",
  });
  assert.equal(signIn.status, 503);
  site.server.thaw();
  await until(async () => (await owner.get("/keys")).status === 200, 5_000);
});
