import assert from "node:assert/strict";
import { Hono } from "hono";
import { type Form, hiddenField, keyForm, ORIGIN } from "../console_fixture.ts";
import { startConsole } from "../console_fixture.ts";
import { routeCases, routeOwner, sendRequest } from "../routes_fixture.ts";
import { type ConsoleEnv, Refused } from "./context.ts";
import { formGuard } from "./forms.ts";

const FORM_TYPE = "application/x-www-form-urlencoded";

Deno.test("formGuard() stops waiting for a stalled form after its timeout", async () => {
  const app = new Hono<ConsoleEnv>();
  app.use(formGuard(20));
  app.onError((error, c) =>
    c.text(error.message, error instanceof Refused ? error.status : 500)
  );
  let isCancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array([0x61])),
    cancel: () => void (isCancelled = true),
  });
  const headers = { "content-type": FORM_TYPE };
  const init = { method: "POST", headers, body: endless };
  // The guard's own timer does not keep a process alive.
  const alive = setTimeout(() => {}, 10_000);
  const answer = await app.request("/", init);
  clearTimeout(alive);
  assert.equal(answer.status, 408);
  assert.equal(await answer.text(), "The form did not arrive in time");
  assert.equal(isCancelled, true);
});

/** Guarantee: a request that does not come from our own pages changes nothing, whatever the route. */

const OURS = { origin: ORIGIN, "sec-fetch-site": "same-origin" };
const NAME = new URL(ORIGIN).host;

const FOREIGN: [name: string, headers: Record<string, string>][] = [
  ["no Origin, no Sec-Fetch-Site", {}],
  ["Origin: null", { origin: "null" }],
  ["another origin", { origin: "https://evil.test" }],
  ["our host over http", { origin: `http://${NAME}` }],
  ["our host on another port", { origin: `${ORIGIN}:8443` }],
  ["a host that begins like ours", { origin: `${ORIGIN}.evil.test` }],
  ["Sec-Fetch-Site: cross-site", { "sec-fetch-site": "cross-site" }],
  ["Sec-Fetch-Site: same-site", { "sec-fetch-site": "same-site" }],
  ["Sec-Fetch-Site: none", { "sec-fetch-site": "none" }],
  ["cross-site with our Origin", {
    ...{ "sec-fetch-site": "cross-site", origin: ORIGIN },
  }],
  ["same-origin with another Origin", {
    ...{ "sec-fetch-site": "same-origin", origin: "https://evil.test" },
  }],
  ["no Origin, but our Referer", { referer: `${ORIGIN}/keys` }],
];

const TYPES = [
  ...["application/json", "text/plain", "multipart/form-data; boundary=x", ""],
];

Deno.test("ASVS 3.5.1, 3.5.2 (CSRF): every route that changes something refuses cross-site requests and changes nothing", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  for (const [n, { route, isPrivate, request }] of posts.entries()) {
    await t.step(route, async () => {
      const owner = await routeOwner(site, n);
      site.clock.nowMs += 1_000;
      const { client } = owner;
      const { path, form, status } = await request(site, owner);
      const token = await client.formToken();
      const body = (formToken: string | null) => {
        const fields = new URLSearchParams();
        if (formToken !== null) fields.set("form_token", formToken);
        for (const [name, values] of Object.entries(form ?? {})) {
          for (const value of [values].flat()) fields.append(name, value);
        }
        return fields;
      };
      const before = await site.stored();
      const ask = async (
        headers: Record<string, string>,
        body: URLSearchParams | string,
      ) => (await client.send(path, { method: "POST", headers, body })).status;
      for (const [name, headers] of FOREIGN) {
        assert.equal(await ask(headers, body(token)), 403, name);
      }
      for (const type of TYPES) {
        const headers = { ...OURS, "content-type": type };
        assert.equal(await ask(headers, `${body(token)}`), 415, type);
        const from = { "content-type": type, origin: "https://evil.test" };
        assert.equal(await ask(from, `${body(token)}`), 403, type);
      }
      const wrong = [null, "", "x", token.slice(1), `${token}a`, "ä"];
      for (const formToken of isPrivate ? wrong : []) {
        assert.equal(await ask(OURS, body(formToken)), 403, `${formToken}`);
      }
      assert.deepEqual(await site.stored(), before);
      assert.equal(await ask(OURS, body(token)), status, "our own form");
      assert.notDeepEqual(
        await site.stored(),
        before,
        "a valid form changes something",
      );
    });
  }
});

Deno.test("ASVS 3.5.1: another owner's form token is refused", async () => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const bob = await routeOwner(site, 2);
  const answer = await ada.client.send("/sign-out", {
    method: "POST",
    headers: OURS,
    body: new URLSearchParams({ form_token: await bob.client.formToken() }),
  });
  assert.equal(answer.status, 403);
  assert.equal((await ada.client.get("/keys")).status, 200);
});

Deno.test("ASVS 3.5.3, 4.1.4: nothing changes on GET, and other methods are 405", async (t) => {
  await using site = await startConsole();
  const owner = await routeOwner(site, 1);
  const { client } = owner;
  const routes = routeCases(site);
  const allowed = (pattern: string) =>
    [["GET", "GET, HEAD"], ["POST", "POST"]].flatMap(([method, allow]) =>
      routes.some(({ route }) => route === `${method} ${pattern}`)
        ? [allow]
        : []
    ).join(", ");
  // Their pages store a one-time token for the form; nothing else changes.
  const prepares = ["GET /account/second-factor", "GET /sign-in/oidc"];
  for (const { route, isPost, request } of routes) {
    await t.step(route, async () => {
      const { path } = await request(site, owner);
      const allow = allowed(route.replace(/^\w+ /, ""));
      const before = await site.stored();
      if (!isPost || allow === "POST") {
        const { status } = await client.get(path);
        if (isPost) assert.equal(status, 405);
      }
      const type = { "content-type": FORM_TYPE };
      const body = `form_token=${await client.formToken()}`;
      for (const method of ["PUT", "DELETE", "PATCH", "OPTIONS"]) {
        for (
          const init of [
            { method, headers: { ...OURS, ...type }, body },
            { method, headers: OURS },
          ]
        ) {
          const { status, headers } = await client.send(path, init);
          assert.equal(status, 405);
          assert.equal(headers.get("allow"), allow);
        }
      }
      if (!prepares.includes(route)) {
        assert.deepEqual(await site.stored(), before);
      }
    });
  }
});

/** Guarantee: a form has exactly the fields of its page, each once and within its bounds, or it changes nothing. */

/** Fields that an attacker might try to set: members of keys, of accounts and of every object. */
const EXTRAS = [
  ...["own", "owner", "ownerId", "owner_id", "st", "state", "kid", "id"],
  ...["hash", "hint", "ver", "createdAtMs", "limits", "is_admin", "role"],
  ...["__proto__", "constructor", "prototype", "toString"],
];

Deno.test("API3, ASVS 2.2.1, 2.2.2, 15.3.3 (mass assignment): on every route an unknown field is 400 and changes nothing", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  for (const [n, { route, request }] of posts.entries()) {
    await t.step(route, async () => {
      const owner = await routeOwner(site, n);
      const right = await request(site, owner);
      const before = await site.stored();
      const send = (more: Form) =>
        sendRequest(owner.client, {
          ...right,
          form: { ...right.form, ...more },
        });
      for (const extra of EXTRAS) {
        const answer = await send({ [extra]: "x" });
        assert.equal(answer.status, 400, extra);
        assert.match(answer.text, /has an unknown field/, extra);
      }
      for (const name of Object.keys(right.form ?? {})) {
        if (name === "scopes") continue;
        const answer = await send({ [name]: ["1", "1"] });
        assert.equal(answer.status, 400, `${name} twice`);
      }
      assert.deepEqual(await site.stored(), before);
    });
  }
});

Deno.test("ASVS 2.2.1: limits of a key are accepted at their bounds and refused beyond", async (t) => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const nonce = hiddenField((await client.get("/keys/new")).text, "nonce");
  const cases: [field: string, most: string, beyond: string[]][] = [
    [
      "requestsPerMinute",
      "1000000",
      ["1000001", "1e400", "Infinity", "9007199254740993", "10,000"],
    ],
    ["tokensPerMinute", "1000000000000", ["1000000000001", "-1", "1.5", "0x1"]],
    ["tokensPerDay", "1000000000000", ["1000000000001", "NaN", "1e3", "٣"]],
    ["concurrency", "1000000", ["1000001", "-0", "+1", "1;2"]],
  ];
  const edit = async (form: Form) => {
    const version = String((await site.deps.keys.get(ownerId, keyId))?.version);
    const path = `/keys/${keyId}/edit`;
    return await client.post(path, keyForm("A key", { ...form, version }));
  };
  for (const [field, most, beyond] of cases) {
    await t.step(field, async () => {
      const before = await site.stored();
      for (const value of beyond) {
        const answer = await edit({ [field]: value });
        assert.equal(answer.status, 400, value);
        assert.match(answer.text, new RegExp(`${field}-error`), value);
        const form = keyForm("A key", { nonce, [field]: value });
        assert.equal((await client.post("/keys", form)).status, 400, value);
      }
      assert.deepEqual(await site.stored(), before);
      for (const value of ["", "0", "1", most]) {
        assert.equal((await edit({ [field]: value })).status, 303, value);
      }
      const key = await site.deps.keys.get(ownerId, keyId);
      assert.ok(Object.values(key?.limits ?? {}).includes(Number(most)));
    });
  }
});

Deno.test("ASVS 1.5.3: a form that is too large or not UTF-8 is refused on every route", async (t) => {
  await using site = await startConsole();
  const owner = await routeOwner(site, 1);
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  const cases: [name: string, status: number, body: BodyInit][] = [
    ["32 KiB and a byte", 413, `a=${"a".repeat(32 * 1024 - 1)}`],
    ["1 MiB", 413, "a".repeat(1024 * 1024)],
    ["no UTF-8", 400, Uint8Array.of(0x61, 0x3d, 0xff)],
    ["overlong", 400, Uint8Array.of(0x61, 0x3d, 0xc0, 0xaf)],
    ["surrogate", 400, Uint8Array.of(0x61, 0x3d, 0xed, 0xa0, 0x80)],
    ["cut", 400, Uint8Array.of(0x61, 0x3d, 0xe4, 0xbd)],
  ];
  for (const { route, request } of posts) {
    await t.step(route, async () => {
      const { path } = await request(site, owner);
      const statusOf = async (body: BodyInit) => {
        const headers = { origin: ORIGIN, "content-type": FORM_TYPE };
        const init = { method: "POST", headers, body };
        return (await owner.client.send(path, init)).status;
      };
      for (const [name, status, body] of cases) {
        assert.equal(await statusOf(body), status, name);
      }
      assert.notEqual(await statusOf(`a=${"a".repeat(32 * 1024 - 2)}`), 413);
    });
  }
});
