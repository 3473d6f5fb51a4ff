import assert from "node:assert/strict";
import {
  type Answer,
  hiddenField,
  keyForm,
  makeKey,
  startConsole,
  storedKey,
} from "../console_fixture.ts";

const ADA = "ada@example.org";
const VALUE = /sk-Cg[0-9A-Za-z]{46}/;

const versionOf = (page: Answer) => hiddenField(page.text, "version");

Deno.test("a key's full value is in the answer that made it, and nowhere afterwards", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const { id, value } = await makeKey(owner, "Billing");
  assert.match(value, VALUE);
  site.answers.length = 0;
  const pages = ["/keys", `/keys/${id}`, `/keys/${id}/edit`, "/audit"];
  for (const path of [...pages, "/audit.csv", "/usage", "/account"]) {
    assert.equal((await owner.get(path)).status, 200, path);
  }
  assert.ok(!site.answers.join("").includes(value.slice(0, 20)));
  assert.ok(
    !site.answers.join("").includes(
      (await site.deps.keys.get(await site.addOwner(ADA), id))?.hash ?? "?",
    ),
    "API3: no page shows the hash",
  );
  assert.ok(site.answers.join("").includes(value.slice(-4)));
});

Deno.test("ASVS 16.2.5: no log line holds a key, a session or a password", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const { value } = await makeKey(owner, "Billing");
  const log = site.logLines.join("\n");
  assert.ok(!/sk-Cg/.test(log));
  for (const secret of [value, ...owner.cookies.values(), "battery staple"]) {
    assert.ok(!log.includes(secret));
  }
});

Deno.test("a mistake in the form is shown beside its field, with what was typed", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const nonce = hiddenField((await owner.get("/keys/new")).text, "nonce");
  const cases: [
    name: string,
    form: Parameters<typeof keyForm>,
    says: RegExp,
  ][] = [
    ["no description", ["   "], /description-error/],
    ["101 characters", ["a".repeat(101)], /At most 100 characters/],
    ["101 after NFC", ["e\u0301".repeat(101)], /At most 100 characters/],
    ["1,000 characters", ["a".repeat(1_000)], /At most 100 characters/],
    ["10 kB", ["a".repeat(10_000)], /The field description is/],
    ["CR LF", ["a\r\nset-cookie: b=c"], /Line breaks/],
    ["left-to-right isolate", ["a\u2066b\u2069"], /text direction/],
    ["line break", ["a\nb"], /Line breaks/],
    ["right-to-left override", ["a\u202Eb"], /text direction/],
    ["NUL", ["a\0b"], /control characters/],
    ["no character", ["a\uFFFE"], /control characters/],
    ["annotation", ["a\uFFF9b"], /control characters/],
    ["joiners only", ["\u200D\u200B"], /Say what/],
    ["a letter without a shape", ["\u3164"], /Say what/],
    ["no scope", ["a", { scopes: [] }], /Choose at least one/],
    ["unknown scope", ["a", { scopes: ["root"] }], /Scopes are/],
    [
      "limit in words",
      ["a", { requestsPerMinute: "many" }],
      /requestsPerMinute-error/,
    ],
    [
      "negative limit",
      ["a", { tokensPerMinute: "-5" }],
      /tokensPerMinute-error/,
    ],
    [
      "limit too high",
      ["a", { requestsPerMinute: "1000001" }],
      /At most 1,000,000/,
    ],
    ["model with a blank in it", ["a", { models: "a<b" }], /Model ids/],
    [
      "day gone by",
      ["a", { expires: "2020-01-01" }],
      /today or a later day/,
    ],
    ["no day", ["a", { expires: "soon" }], /today or a later day/],
  ];
  for (const [name, [description, more], says] of cases) {
    await t.step(name, async () => {
      const form = keyForm(description, { nonce, ...more });
      const answer = await owner.post("/keys", form);
      assert.equal(answer.status, 400, answer.text);
      assert.match(answer.text, says);
      assert.ok(!VALUE.test(answer.text));
    });
  }
  await t.step(
    "100 characters after NFC and emoji are fine",
    async () => {
      const description = "e\u0301🔑".repeat(50);
      const form = keyForm(description, { nonce, requestsPerMinute: "10000" });
      const answer = await owner.post("/keys", form);
      assert.equal(answer.status, 201, answer.text);
      const ownerId = await site.addOwner(ADA);
      const page = await site.deps.keys.list(ownerId, {
        filter: "all",
        search: "",
        after: "",
        rows: 5,
        day: "20261120",
      });
      assert.equal(page.rows.length, 1);
      assert.equal(page.rows[0]?.key.description, "é🔑".repeat(50));
      assert.equal(page.rows[0]?.key.limits.requestsPerMinute, 10_000);
    },
  );
});

Deno.test("ASVS 1.2.1, 3.2.2 (XSS): a hostile description is text on every page", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const hostile = [
    `<img src=x onerror=alert(1)>`,
    `"><script>alert(1)</script>`,
    `' onmouseover='alert(1)`,
    `javascript:alert(1)//</title>`,
  ];
  for (const description of hostile) {
    await t.step(description, async () => {
      const { id } = await makeKey(owner, description);
      site.answers.length = 0;
      const paths = [`/keys/${id}`, `/keys/${id}/edit`, "/keys", "/audit"];
      for (const path of [...paths, `/keys/${id}/ask/delete`]) {
        assert.equal((await owner.get(path)).status, 200);
      }
      await owner.get(`/keys?search=${encodeURIComponent(description)}`);
      const all = site.answers.join("\n");
      assert.ok(!/<img src=x|<script>|\sonmouseover='/.test(all));
      assert.ok(!all.includes("//</title>"));
    });
  }
});

Deno.test("ASVS 1.2.10: no cell of the CSV can become a formula", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const hostile = [`=HYPERLINK("http://evil.test","x")`, "+1", "-1", "@SUM(1)"];
  for (const description of hostile) await makeKey(owner, description);
  const csv = await owner.get("/audit.csv");
  assert.match(csv.headers.get("content-type") ?? "", /^text\/csv; charset/);
  assert.match(csv.headers.get("content-disposition") ?? "", /attachment/);
  assert.ok(csv.text.includes(`"'=HYPERLINK(""http://evil.test"",""x"")"`));
  for (const line of csv.text.trim().split("\r\n")) {
    for (const cell of line.match(/("([^"]|"")*"|[^,]*)(,|$)/g) ?? []) {
      assert.ok(!/^"?[=+\-@\t]/.test(cell), cell);
    }
  }
});

Deno.test("two tabs: the second is told that the key was changed meanwhile", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const ownerId = await site.addOwner(ADA);
  const { id } = await storedKey(site, ownerId);
  const tabs = [
    await owner.get(`/keys/${id}/edit`),
    await owner.get(`/keys/${id}/edit`),
  ];
  const version = versionOf(tabs[0] ?? await owner.get("/"));
  const first = await owner.post(
    `/keys/${id}/edit`,
    keyForm("First", { version }),
  );
  assert.equal(first.status, 303);
  const second = await owner.post(
    `/keys/${id}/edit`,
    keyForm("Second", { version }),
  );
  assert.equal(second.status, 409);
  assert.match(second.text, /changed in the meantime/);
  assert.equal((await site.deps.keys.get(ownerId, id))?.description, "First");
});

Deno.test("a rotation sent twice makes one key, and deleting needs a confirmation", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const { id, value } = await makeKey(owner, "Billing");
  const rotation = await owner.get(`/keys/${id}/ask/rotate`);
  const form = {
    version: versionOf(rotation),
    nonce: hiddenField(rotation.text, "nonce"),
    old: "1h",
  };
  const rotated = await owner.post(`/keys/${id}/rotate`, form);
  assert.equal(rotated.status, 201);
  assert.notEqual(VALUE.exec(rotated.text)?.[0] ?? value, value);
  assert.match(rotated.text, /stops working in 1 hour/);
  const again = await owner.post(`/keys/${id}/rotate`, form);
  assert.equal(again.status, 409);
  assert.ok(!VALUE.test(again.text));

  const version = versionOf(await owner.get(`/keys/${id}/ask/delete`));
  const unsure = await owner.post(`/keys/${id}/delete`, { version });
  assert.equal(unsure.status, 400);
  const gone = await owner.post(`/keys/${id}/delete`, { version, sure: "on" });
  assert.equal(gone.status, 303);
  assert.equal((await owner.get(`/keys/${id}`)).status, 404);
});

Deno.test("when running requests cannot be stopped, the page says so and the key is disabled", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const ownerId = await site.addOwner(ADA);
  const { id } = await storedKey(site, ownerId);
  site.stops.fails = true;
  const answer = await owner.post(`/keys/${id}/disable`, {
    version: "1",
    stop_running: "on",
  });
  const page = await owner.get(answer.headers.get("location") ?? "");
  assert.match(page.text, /could not be stopped/);
  assert.equal((await site.deps.keys.get(ownerId, id))?.state, "disabled");
});

Deno.test("editing changes what was changed and keeps the rest", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const ownerId = await site.addOwner(ADA);
  const { id } = await makeKey(owner, "Billing");
  const answer = await owner.post(
    `/keys/${id}/edit`,
    keyForm("Billing, new", {
      version: "1",
      models: "small-1, neutral-3.7-plus",
      requestsPerMinute: "60",
      expires: "2099-01-31",
      scopes: ["chat"],
    }),
  );
  assert.equal(answer.status, 303);
  const key = await site.deps.keys.get(ownerId, id);
  assert.deepEqual(
    [key?.description, key?.models, key?.scopes, key?.limits.requestsPerMinute],
    ["Billing, new", ["small-1", "neutral-3.7-plus"], ["chat"], 60],
  );
  assert.equal(key?.expiresAtMs, Date.UTC(2099, 0, 31, 23, 59, 59));
  const form = keyForm("Billing, new", {
    version: "2",
    expires: "2099-01-31",
  });
  await owner.post(`/keys/${id}/edit`, form);
  const kept = await site.deps.keys.get(ownerId, id);
  assert.equal(kept?.expiresAtMs, key?.expiresAtMs);
});

Deno.test("a form that comes back goes on at its first mistake", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const nonce = hiddenField((await owner.get("/keys/new")).text, "nonce");
  const cases: [form: Parameters<typeof keyForm>[1], field: string][] = [
    [{ tokensPerDay: "x", models: "a;b" }, "tokensPerDay"],
    [{ models: "a;b" }, "models"],
    [{ scopes: [], concurrency: "x" }, "scopes"],
    [{ expires: "x", concurrency: "x" }, "expires"],
  ];
  for (const [form, field] of cases) {
    await t.step(field, async () => {
      const { text } = await owner.post(
        "/keys",
        keyForm("A key", { nonce, ...form }),
      );
      const focused = text.match(/<input[^>]* autofocus=""[^>]*>/g) ?? [];
      assert.equal(focused.length, 1);
      assert.match(focused[0] ?? "", new RegExp(`name="${field}"`));
    });
  }
});

Deno.test("the example beside a new key asks for a model that the key may use", async (t) => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const cases: [models: string, asked: string][] = [
    ["", "neutral-3.7-plus"],
    ["small-1, large-1", "small-1"],
  ];
  for (const [models, asked] of cases) {
    await t.step(models, async () => {
      const { text } = await owner.get("/keys/new");
      const nonce = hiddenField(text, "nonce");
      const form = keyForm("A key", { nonce, models });
      const answer = await owner.post("/keys", form);
      assert.ok(
        answer.text.includes(`&quot;model&quot;: &quot;${asked}&quot;`),
      );
    });
  }
});

Deno.test("a pasted key is searched by its end only and not shown again", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const { value } = await makeKey(owner, "Billing");
  await makeKey(owner, "Other");
  site.answers.length = 0;
  const found = await owner.get(`/keys?search=${value}`);
  assert.ok(found.text.includes("Billing</bdi>"));
  assert.ok(!found.text.includes("Other</bdi>"));
  assert.ok(!found.text.includes(value));
});

Deno.test("a forged cursor is 400", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  for (const cursor of ["x", "%2B", "%5B%3Aall"]) {
    assert.equal((await owner.get(`/keys?after=${cursor}`)).status, 400);
  }
});

Deno.test("the console says when the model simulator answers", async () => {
  await using site = await startConsole({ isSimulated: true });
  const owner = await site.signedIn(ADA);
  for (const path of ["/keys", "/usage", "/account"]) {
    assert.match((await owner.get(path)).text, /the model simulator answers/);
  }
});

Deno.test("the console says when redis may lose changes", async () => {
  await using site = await startConsole({ settings: ["--appendonly", "no"] });
  const owner = await site.signedIn(ADA);
  assert.match((await owner.get("/keys")).text, /may lose changes/);
  await using good = await startConsole();
  const other = await good.signedIn(ADA);
  assert.ok(!(await other.get("/keys")).text.includes("may lose changes"));
});
