import assert from "node:assert/strict";
import { Hono } from "hono";
import { type ConsoleEnv, Refused } from "./context.ts";
import { formGuard } from "./forms.ts";
import {
  type Form,
  hiddenField,
  keyForm,
  ORIGIN,
  startConsole,
} from "../console_fixture.ts";
import { routeCases, routeOwner } from "../routes_fixture.ts";

Deno.test("formGuard() waits no longer than its time for a form that stops coming", async () => {
  const app = new Hono<ConsoleEnv>();
  app.use(formGuard(20));
  app.post("/", (c) => c.text("read"));
  app.onError((error, c) => {
    if (!(error instanceof Refused)) throw error;
    return c.text(error.message, error.status);
  });
  const send = (body: BodyInit) =>
    app.request("/", {
      method: "POST",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body,
    });
  let isCancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array([0x61])),
    cancel: () => void (isCancelled = true),
  });
  const answer = await send(endless);
  assert.equal(answer.status, 408);
  assert.equal(await answer.text(), "The form did not arrive in time");
  assert.equal(isCancelled, true);
  assert.equal((await send("a=b")).status, 200);
});

/** Guarantee: a request that does not come from our own pages changes nothing, whatever the route. */

const OURS = { origin: ORIGIN, "sec-fetch-site": "same-origin" };
const NAME = new URL(ORIGIN).host;

const FOREIGN: [name: string, headers: Record<string, string>][] = [
  ["no Origin, no Sec-Fetch-Site", {}],
  ["Origin: null", { origin: "null" }],
  ["another origin", { origin: "https://evil.test" }],
  ["our name on http", { origin: `http://${NAME}` }],
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
  ["no Origin, but our Referer", { referer: `${ORIGIN}/keys` }],
];

const TYPES = [
  "application/json",
  "text/plain",
  "multipart/form-data; boundary=x",
  "",
];

Deno.test("ASVS 3.5.1, 3.5.2 (CSRF): on every route that changes something, what comes from elsewhere is refused and changes nothing", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  for (const [n, route] of posts.entries()) {
    const owner = await routeOwner(site, n);
    site.clock.nowMs += 1_000;
    const { client } = owner;
    for (const request of await route.requests(site, owner)) {
      const token = await client.formToken();
      const body = (formToken: string | null) => {
        const form = new URLSearchParams();
        if (formToken !== null) form.set("form_token", formToken);
        for (const [name, values] of Object.entries(request.form ?? {})) {
          for (const value of [values].flat()) form.append(name, value);
        }
        return form;
      };
      const before = await site.stored();
      const ask = async (init: RequestInit) =>
        (await client.send(request.path, { method: "POST", ...init })).status;
      for (const [name, headers] of FOREIGN) {
        await t.step(`${route.route}: ${name}`, async () => {
          assert.equal(await ask({ headers, body: body(token) }), 403);
        });
      }
      for (const type of TYPES) {
        await t.step(`${route.route}: ${type || "no type"}`, async () => {
          const headers = { ...OURS, "content-type": type };
          const text = body(token).toString();
          assert.equal(await ask({ headers, body: text }), 415);
          const from = { "content-type": type, origin: "https://evil.test" };
          assert.equal(await ask({ headers: from, body: text }), 403);
        });
      }
      const wrong = [
        null,
        "",
        "x",
        token.slice(1),
        `${token}a`,
        "ä".repeat(43),
      ];
      for (const formToken of route.isPrivate ? wrong : []) {
        await t.step(`${route.route}: token ${formToken}`, async () => {
          const init = { headers: OURS, body: body(formToken) };
          assert.equal(await ask(init), 403);
        });
      }
      assert.deepEqual(await site.stored(), before, route.route);
      await t.step(`${route.route}: our own form`, async () => {
        const init = { headers: OURS, body: body(token) };
        assert.equal(await ask(init), request.status);
        assert.notDeepEqual(await site.stored(), before, "and it does change");
      });
    }
  }
});

Deno.test("ASVS 3.5.1: another owner's form token does not fit", async () => {
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
  const routes = routeCases(site);
  const methodsOf = (pattern: string) => {
    const has = (method: string) =>
      routes.some(({ route }) => route === `${method} ${pattern}`);
    return [has("GET") && "GET, HEAD", has("POST") && "POST"]
      .filter(Boolean).join(", ");
  };
  // Their pages store a one-time token for the form; nothing else changes.
  const prepares = ["GET /account/second-factor", "GET /sign-in/oidc"];
  for (const { route, isPost, requests } of routes) {
    const [request] = await requests(site, owner);
    const path = request?.path ?? assert.fail(route);
    const pattern = route.replace(/^\w+ /, "");
    const before = await site.stored();
    if (!isPost) {
      await t.step(route, async () => {
        await owner.client.get(path);
        if (prepares.includes(route)) return;
        assert.deepEqual(await site.stored(), before);
      });
    } else if (methodsOf(pattern) === "POST") {
      await t.step(`GET ${pattern}`, async () => {
        const answer = await owner.client.get(path);
        assert.equal(answer.status, 405);
        assert.equal(answer.headers.get("allow"), "POST");
      });
    }
    for (const method of ["PUT", "DELETE", "PATCH", "OPTIONS"]) {
      await t.step(`${method} ${pattern}`, async () => {
        const answer = await owner.client.send(path, {
          method,
          headers: {
            ...OURS,
            "content-type": "application/x-www-form-urlencoded",
          },
          body: `form_token=${await owner.client.formToken()}`,
        });
        const bare = await owner.client.send(path, { method, headers: OURS });
        for (const { status, headers } of [answer, bare]) {
          assert.equal(status, 405);
          assert.equal(headers.get("allow"), methodsOf(pattern));
        }
      });
    }
    if (isPost) assert.deepEqual(await site.stored(), before, route);
  }
});

/** Guarantee: a form has exactly the fields of its page, each once and within its bounds, or nothing happens. */

/** What an attacker might try to set: members of keys, of accounts and of every object. */
const EXTRAS = [
  ...["own", "owner", "ownerId", "owner_id", "st", "state", "kid", "id"],
  ...["hash", "hint", "ver", "createdAtMs", "limits", "is_admin", "role"],
  ...["__proto__", "constructor", "prototype", "toString"],
];

Deno.test("API3, ASVS 2.2.1, 2.2.2, 15.3.3 (mass assignment): on every route a field that its page does not have is 400 and changes nothing", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  for (const [n, { route, requests }] of posts.entries()) {
    const owner = await routeOwner(site, n);
    for (const { path, form } of await requests(site, owner)) {
      const before = await site.stored();
      await t.step(route, async () => {
        for (const extra of EXTRAS) {
          const answer = await owner.client.post(path, {
            ...form,
            [extra]: "x",
          });
          assert.equal(answer.status, 400, extra);
          assert.match(answer.text, /has an unknown field/, extra);
        }
        for (const name of Object.keys(form ?? {})) {
          if (name === "scopes") continue;
          const twice = { ...form, [name]: ["1", "1"] };
          const answer = await owner.client.post(path, twice);
          assert.equal(answer.status, 400, `${name} twice`);
        }
        assert.deepEqual(await site.stored(), before);
      });
    }
  }
});

Deno.test("ASVS 2.2.1: limits of a key are taken at their bounds and refused beyond", async (t) => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const cases: [field: string, most: string, beyond: string[]][] = [
    ["requestsPerMinute", "1000000", [
      "1000001",
      "1e400",
      "Infinity",
      "9007199254740993",
    ]],
    ["tokensPerMinute", "1000000000000", [
      "1000000000001",
      "-1",
      "1.5",
      "0x10",
    ]],
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
      for (const value of beyond) {
        const before = await site.stored();
        const answer = await edit({ [field]: value });
        assert.equal(answer.status, 400, value);
        assert.match(answer.text, new RegExp(`${field}-error`), value);
        const nonce = hiddenField(
          (await client.get("/keys/new")).text,
          "nonce",
        );
        const form = keyForm("A key", { nonce, [field]: value });
        assert.equal((await client.post("/keys", form)).status, 400, value);
        assert.deepEqual(await site.stored(), before);
      }
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
  const bytes = (...values: number[]) =>
    Uint8Array.from([0x61, 0x3d, ...values]);
  for (const { route, requests } of posts) {
    await t.step(route, async () => {
      const [request] = await requests(site, owner);
      const statusOf = async (body: BodyInit) =>
        (await owner.client.send(request?.path ?? "", {
          method: "POST",
          headers: {
            origin: ORIGIN,
            "content-type": "application/x-www-form-urlencoded",
          },
          body,
        })).status;
      assert.equal(await statusOf(`a=${"a".repeat(32 * 1024 - 1)}`), 413);
      assert.notEqual(await statusOf(`a=${"a".repeat(32 * 1024 - 2)}`), 413);
      assert.equal(await statusOf("a".repeat(1024 * 1024)), 413, "1 MiB");
      assert.equal(await statusOf(bytes(0xff)), 400, "no UTF-8");
      assert.equal(await statusOf(bytes(0xc0, 0xaf)), 400, "overlong");
      assert.equal(await statusOf(bytes(0xed, 0xa0, 0x80)), 400, "surrogate");
      assert.equal(await statusOf(bytes(0xe4, 0xbd)), 400, "cut");
    });
  }
});
