/** The pages of keys: what they show, and where changes lead. */
import assert from "node:assert/strict";
import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import { recordKey, UNLIMITED } from "@gateway/shared/keys/record";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { catalogOfIds } from "../../../catalog_fixture.ts";
import { hiddenField } from "../../../client_fixture.ts";
import { startConsole, storedKey } from "../../../console_fixture.ts";
import { keyForm, makeKey } from "../../../forms_fixture.ts";
import { useLimits } from "../../../usage_fixture.ts";
import { routeOwner } from "../../../routes_fixture.ts";

const ADA = "ada@example.org";

/** The fixture checks that no other answer and no line of the log has a key. */
Deno.test("ASVS 16.2.5, API3: a search for a value finds its key, and no page or log line shows a secret", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const { id, value } = await makeKey(owner, "Billing");
  const found = await owner.get(`/keys?search=${value}`);
  assert.ok(found.text.includes(">Billing</a>"));
  const key = await site.deps.keys.find(await site.addOwner(ADA), id);
  for (const path of ["/keys", `/keys/${id}`, `/keys/${id}/edit`, "/audit"]) {
    const { status, text } = await owner.get(path);
    assert.ok(status === 200 && !text.includes(key.hash), path);
  }
  const log = site.logLines.join("\n");
  for (const secret of [...owner.cookies.values(), "battery staple"]) {
    assert.ok(!log.includes(secret));
  }
});

Deno.test("a refused form has the focus at its first mistake", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const nonce = hiddenField((await owner.get("/keys/new")).text, "nonce");
  const models = { which_models: "these", models: ["a;b"] };
  const form = keyForm("A key", { nonce, tokensPerDay: "x", ...models });
  const { status, text } = await owner.post("/keys/new", form);
  assert.equal(status, 400);
  const [focused = ""] = /<input[^>]* autofocus=""[^>]*>/.exec(text) ?? [];
  assert.match(focused, /name="tokensPerDay".*value="x"/);
  assert.match(text, /id="tokensPerDay-error".*id="models-error"/s);
});

Deno.test("the forms show aliases that are names, and wait for what servers list", async () => {
  const backends = [
    { type: "openai", base_url: "http://model.test/v1", model: "qwen3" },
  ];
  const aliases = ["gpt-4o", "claude-*", "gpt-4", "o1", "o3"];
  const catalog = parseCatalog({
    models: [{ id: "qwen3-32b", aliases, backends }],
    servers: [{ type: "openai", name: "a", base_url: "http://a.test/v1" }],
  });
  await using site = await startConsole({ catalog });
  const owner = await site.signedIn(ADA);
  const page = async (path: string) => (await owner.get(path)).text;
  const names = "qwen3-32b (also gpt-4o, gpt-4, o1 …)<";
  const pending = await page("/keys/new");
  assert.ok(pending.includes(names));
  assert.match(pending, /What the model servers list is not known yet/);
  assert.ok((await page("/try")).includes(names));
  const { id } = await makeKey(owner, "Early", {
    which_models: "these",
    models: ["listed:1"],
  });
  assert.match(await page(`/keys/${id}`), /listed:1 \(not listed yet\)/);
  catalog.list({ a: ["listed:1", "other"] });
  assert.doesNotMatch(await page(`/keys/${id}`), /not listed yet/);
  assert.match(
    await page(`/keys/${id}/edit`),
    /value="listed:1"[^>]* checked="".*value="other"/s,
  );
  const { status, text } = await owner.post(
    `/keys/${id}/edit`,
    keyForm("Early", {
      version: "1",
      which_models: "these",
      models: ["listed:2"],
    }),
  );
  assert.equal(status, 400, text);
  assert.match(text, /There is no model &#39;listed:2&#39;/);
});

Deno.test("a key's models are chosen from those that exist, and examples name one that it may use", async () => {
  const models = Array.from({ length: 9 }, (_, n) => `model-${n}`);
  await using site = await startConsole({ catalog: catalogOfIds(models) });
  const owner = await site.signedIn(ADA);
  const page = async (path: string) => (await owner.get(path)).text;
  assert.match(await page("/keys"), /&quot;model&quot;: &quot;model-0&quot;/);
  const fresh = await page("/keys/new");
  assert.match(fresh, /value="all"[^>]*checked="".*All models, including fut/s);
  assert.equal(fresh.match(/name="models"/g)?.length, 9);
  const { id, text } = await makeKey(owner, "Two", {
    which_models: "these",
    models: ["model-7", "model-8"],
  });
  assert.match(text, /&quot;model&quot;: &quot;model-7&quot;/);
  // model-7 is taken out of the list.
  site.deps.catalog = catalogOfIds(["model-8", "new"]);
  const shown = await page(`/keys/${id}`);
  assert.ok(shown.includes("model-7 (no longer configured), model-8"));
  assert.match(shown, /&quot;model&quot;: &quot;model-8&quot;/);
  assert.match(
    await page(`/keys/${id}/edit`),
    /<legend>No longer configured<.*value="model-7"[^>]* checked="".*<legend>Chat</s,
  );
  const save = (version: string, models: string[]) => {
    const form = { version, which_models: "these", models };
    return owner.post(`/keys/${id}/edit`, keyForm("Two", form));
  };
  assert.equal((await save("1", ["model-7", "new"])).status, 303, "kept");
  const late = await save("1", ["new"]);
  const form = /was changed after.*"version" value="2".*"new"[^>]* checked/s;
  assert.match(late.text, form);
  assert.equal((await save("2", ["new"])).status, 303, "removed");
  const refused = await save("3", ["model-7"]);
  assert.equal(refused.status, 400);
  assert.match(refused.text, /no model &#39;model-7&#39;, did you mean/);
});

Deno.test("ASVS 1.2.1, 3.2.2 (XSS): a hostile description is text on every page", async () => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const hostile = [
    `<img src=x onerror=alert(1)>`,
    `"><script>alert(1)</script>`,
    `' onmouseover='alert(1)`,
    `javascript:alert(1)//</title>`,
  ];
  for (const description of hostile) {
    const { id } = await storedKey(site, ownerId, { description });
    const search = `/keys?search=${encodeURIComponent(description)}`;
    const paths = ["", "/edit", "/ask/delete"].map((end) =>
      `/keys/${id}${end}`
    );
    for (const path of [...paths, "/keys", "/audit", search]) {
      const { status, text } = await client.get(path);
      assert.equal(status, 200);
      const tags = /<img src=x|<script>|\sonmouseover='|\/\/<\/title>/;
      assert.doesNotMatch(text, tags);
    }
  }
});

Deno.test("a cursor that did not come from a page is 400", async () => {
  await using site = await startConsole();
  const owner = await site.signedIn(ADA);
  const paths = [
    "/keys?after=x",
    "/keys?after=%2B",
    "/keys?after=%5B%3Aall",
    "/audit?before=0-0",
    "/audit?before=00-0",
    "/audit?before=1",
    "/audit?before=-1-0",
    "/audit?before=1-0-0",
  ];
  for (const path of paths) {
    assert.equal((await owner.get(path)).status, 400, path);
  }
  assert.equal((await owner.get("/audit?before=0-1")).status, 200);
});

Deno.test("the console warns while the model simulator answers, and while Redis may lose changes", async () => {
  await using site = await startConsole({
    isSimulated: true,
    settings: ["--appendonly", "no"],
  });
  const warnings = /the model simulator answers|may lose changes/g;
  const owner = await site.signedIn(ADA);
  for (const path of ["/keys", "/usage", "/account"]) {
    const { text } = await owner.get(path);
    assert.equal(text.match(warnings)?.length, 2);
  }
  await using good = await startConsole();
  const other = await good.signedIn(ADA);
  assert.ok(!warnings.test((await other.get("/keys")).text));
});

Deno.test("operators read of mistakes in the list of models, as text, and nobody else does", async () => {
  const mistakes: string[] = [];
  await using site = await startConsole({ listMistakes: () => mistakes });
  const operator = await site.signedIn(ADA);
  await site.deps.owners.giveRole(await site.addOwner(ADA));
  const other = await site.signedIn("bo@example.org");
  const read = async (client: typeof operator) =>
    /mistake, so an older one is in use: (.*?)</.exec(
      (await client.get("/keys")).text,
    )?.[1];
  assert.equal(await read(operator), undefined);
  mistakes.push("models[0]: unknown member '<b>'", "HOSTED_API_KEY is missing");
  assert.equal(
    await read(operator),
    "models[0]: unknown member &#39;&lt;b&gt;&#39; (and 1 more)",
  );
  assert.equal(await read(other), undefined);
  mistakes.pop();
  mistakes.pop();
  assert.equal(await read(operator), undefined);
});

Deno.test("limits are shown with their use, and the one that binds first", async () => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const read = async (path: string) => (await client.get(path)).text;
  assert.ok(!(await read("/keys")).includes("Your limits"), "there are none");
  const limits = {
    ...UNLIMITED,
    requestsPerMinute: 60,
    tokensPerDay: 1_000,
    imagesPerDay: 4,
    videoJobs: 2,
  };
  const { id: keyId } = await storedKey(site, ownerId, { limits });
  const ownerLimits = { ...UNLIMITED, requestsPerMinute: 50 };
  await site.deps.owners.change(ownerId, { limits: ownerLimits });
  const [key, page] = [{ ownerId, keyId }, `/keys/${keyId}`];
  const unused = await read(page);
  assert.ok(!unused.includes("The closest limit"));
  assert.match(
    unused,
    />0 of 1,000<.*<meter aria-label="Tokens per day, this key" max="1000"[^>]* value="0"/,
  );
  assert.match(unused, />0 of 2<.*<meter aria-label="Videos at the same/);
  assert.ok(!unused.includes("Characters per day"), "there is no such limit");
  await useLimits(site, key, { dayTokens: 1_234, running: 2 });
  const used = await read(page);
  const closest = (unit: string, what: string) =>
    new RegExp(`closest limit: ${unit} per day of this key.*${what}`, "s");
  assert.match(used, closest("tokens", "requests are refused"));
  assert.match(used, />1,234 of 1,000<.*<meter [^>]* value="1000"/);
  // 59.9 of 60 requests are in use, so the next one is refused for 0.9 s.
  await useLimits(site, key, { requestsAheadMs: 59_900 });
  assert.match(await read(page), />60 of 60<.*refused for at least 1 s/s);
  await useLimits(site, key, { images: 4 });
  assert.match(await read(page), closest("images", "of this kind are"));
  for (const path of ["/keys", "/usage"]) {
    assert.match(await read(path), /Your limits.*Set by the operator/s, path);
  }
  assert.match(await read(`${page}/edit`), /All your keys together: 50</);
});

Deno.test("a key shows how its requests wait, and its form changes that", async () => {
  await using site = await startConsole();
  const { client, keyId } = await routeOwner(site, 1);
  const page = `/keys/${keyId}`;
  const before = (await client.get(page)).text;
  assert.ok(!/While requests wait|Queue weight/.test(before));
  const form = await client.get(`${page}/edit`);
  assert.match(form.text, /value="normal" name="priority" checked/);
  const send = async (more: Record<string, string>) => {
    const { text } = await client.get(`${page}/edit`);
    const version = hiddenField(text, "version");
    const fields = keyForm("Night work", { version, ...more });
    return await client.post(`${page}/edit`, fields);
  };
  await send({ priority: "batch", queueWeight: "50" });
  const { text } = await client.get(page);
  assert.match(text, /While requests wait.*Batch/s);
  assert.match(text, /Queue weight.*50 %/s);
  assert.match(
    (await client.get(`${page}/edit`)).text,
    /value="batch" name="priority" checked/,
  );
  const refused = await send({ queueWeight: "10001" });
  assert.match(refused.text, /At most 10,000; 0 means 100/);
});

Deno.test("a key shows for how long its answers are kept, and its form changes that", async () => {
  await using site = await startConsole();
  const { client, keyId } = await routeOwner(site, 1);
  const page = `/keys/${keyId}`;
  assert.doesNotMatch((await client.get(page)).text, /Answers are kept/);
  const send = async (keepSeconds: string) => {
    const { text } = await client.get(`${page}/edit`);
    const version = hiddenField(text, "version");
    const fields = keyForm("Night work", { version, keepSeconds });
    return await client.post(`${page}/edit`, fields);
  };
  await send("1800");
  const { text } = await client.get(page);
  assert.match(text, /Answers are kept.*1,800 seconds after their end/s);
  assert.match(text, /answers kept for seconds 0 → 1800/);
  const form = (await client.get(`${page}/edit`)).text;
  assert.match(form, /<input[^>]*id="keepSeconds"[^>]*value="1800"/);
  const refused = await send("3601");
  assert.match(refused.text, /whole number of seconds from 0 to 3600/);
  await send("");
  assert.doesNotMatch((await client.get(page)).text, /Answers are kept/);
});

Deno.test("a change leads back to where it was started, with a notice, and to no other site", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const list = "/keys?filter=enabled&search=secret+project";
  const { text } = await client.get(list);
  const [, href = ""] = /href="([^"]*ask\/disable[^"]*)"/.exec(text) ?? [];
  const question = (await client.get(href)).text;
  const shown = list.replaceAll("&", "&amp;");
  assert.equal(hiddenField(question, "next"), shown);
  assert.ok(question.includes(`href="${shown}"`), "Cancel leads back, too");
  const done = "/keys?done=";
  const cases = [
    { what: "disable", next: list, location: `${list}&done=disabled` },
    { what: "enable", next: "/keys", location: `${done}enabled` },
    { what: "disable", next: "", location: `/keys/${keyId}?done=disabled` },
    { what: "enable", next: "", location: `/keys/${keyId}?done=enabled` },
    {
      what: "disable",
      next: "https://evil.test/",
      location: `${done}disabled`,
    },
    { what: "enable", next: "//evil.test", location: `${done}enabled` },
  ];
  for (const { what, next, location } of cases) {
    const key = await site.deps.keys.find(ownerId, keyId);
    const form = { version: String(key.version), ...next && { next } };
    const answer = await client.post(`/keys/${keyId}/${what}`, form);
    assert.equal(answer.headers.get("location"), location);
    assert.match((await client.get(location)).text, /The key is (en|dis)abled/);
  }
  site.deps.sendStop = () => Promise.reject(new Error("No answer"));
  const { version } = await site.deps.keys.find(ownerId, keyId);
  const stop = { version: String(version), stop_running: "on" };
  const answer = await client.post(`/keys/${keyId}/disable`, stop);
  const page = await client.get(answer.headers.get("location") ?? "");
  assert.match(page.text, /NATS or Redis did not answer.*Disabled</s);
  const refused = await client.post(`/keys/${keyId}/enable`, { version: "1" });
  assert.ok(refused.text.includes(`href="/keys/${keyId}">Continue`));
});

Deno.test("the two keys of a rotation name each other, even when one is deleted", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const { keys } = site.deps;
  const target = { ownerId, keyId, version: null, actor: { by: "", ip: "" } };
  const { key: { id, hint } } = await keys.rotate(target, 3_600_000);
  const old = await keys.find(ownerId, keyId);
  const has = async (path: string, ...texts: string[]) => {
    const { text } = await client.get(path);
    for (const part of texts) assert.ok(text.includes(part), part);
  };
  const by = `Replaced by <a href="/keys/${id}">${hint}</a>`;
  const replaces = `Replaces <a href="/keys/${keyId}">${old.hint}</a>`;
  await has(`/keys/${keyId}`, by, "Expires soon<");
  await has(`/keys/${id}`, replaces, "Enabled<");
  await has("/keys", by, replaces);
  await keys.delete(target);
  for (const path of ["/keys", `/keys/${id}`]) {
    await has(path, `Replaces ${old.hint}<`);
  }
});

Deno.test("a key whose last use is no longer known is not called unused", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  for (const path of ["/keys", `/keys/${keyId}`]) {
    assert.match((await client.get(path)).text, /Last used.*?>Never</s);
  }
  const longAgo = String(Date.now() - (LAST_USE_DAYS_KEPT + 1) * 86_400_000);
  const key = recordKey({ ownerId, keyId });
  await site.deps.redis.command(["HSET", key, "created_at", longAgo]);
  for (const path of ["/keys", `/keys/${keyId}`]) {
    assert.match((await client.get(path)).text, />Not in 90 days</);
  }
});
