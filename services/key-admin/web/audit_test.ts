import assert from "node:assert/strict";
import {
  type Answer,
  keyForm,
  ORIGIN,
  signIn,
  startConsole,
  type TestConsole,
} from "../console_fixture.ts";
import type { AuditAction } from "../domain/audit/audit_log.ts";
import { routeCases, routeOwner, sendRequest } from "../routes_fixture.ts";

/** Guarantee: the audit log and the service's log record what an owner did and attacks on the account. */

/** The audit entries that a valid request to each route adds. */
const EVENTS: Record<string, AuditAction[]> = {
  "POST /sign-in": ["session.signed_in"],
  "POST /link/:secret": ["account.created", "session.signed_in"],
  "POST /keys": ["key.created"],
  "POST /keys/:id/edit": ["key.edited"],
  "POST /keys/:id/enable": ["key.enabled"],
  "POST /keys/:id/disable": ["key.disabled", "key.stop_requested"],
  "POST /keys/:id/delete": ["key.deleted"],
  "POST /keys/:id/rotate": ["key.created", "key.rotated"],
  "POST /account/password": ["session.confirmed", "account.password_changed"],
  "POST /account/second-factor": [
    "session.confirmed",
    "account.second_factor_on",
  ],
  "POST /account/second-factor/off": [
    "session.confirmed",
    "account.second_factor_off",
  ],
  "POST /account/sessions/end": ["session.revoked"],
  "POST /account/sessions/end-all": ["session.revoked"],
  "POST /confirm": ["session.confirmed"],
  "POST /sign-out": ["session.signed_out"],
};

async function entries({ deps }: TestConsole, ownerId: string) {
  const query = { action: "", keyId: "", before: null, rows: 100 };
  return (await deps.audit.read(ownerId, query)).rows.reverse();
}

Deno.test("ASVS 16.3.1: every change and every sign-in is in the audit log, with who, when and from where", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  assert.deepEqual(
    posts.map(({ route }) => route).sort(),
    Object.keys(EVENTS).sort(),
  );
  for (const [n, { route, request }] of posts.entries()) {
    await t.step(route, async () => {
      const owner = await routeOwner(site, n);
      const right = await request(site, owner);
      const ownerId = route === "POST /link/:secret"
        ? await site.deps.owners.ensure("invited@example.org")
        : owner.ownerId;
      const before = (await entries(site, ownerId)).length;
      const answer = await sendRequest(owner.client, right);
      assert.equal(answer.status, right.status, answer.text);
      const added = (await entries(site, ownerId)).slice(before);
      assert.deepEqual(added.map(({ action }) => action), EVENTS[route]);
      for (const { by, ip, timeMs, action, keyId, hint } of added) {
        assert.match(by, /^(owner\d+|invited)@example\.org$/);
        assert.equal(ip, `2001:db8:0:${n.toString(16)}::1`);
        assert.ok(Math.abs(timeMs - Date.now()) < 60_000);
        assert.equal(keyId !== "" && hint !== "", action.startsWith("key."));
      }
    });
  }
});

Deno.test("ASVS 16.3.1: refused sign-ins and passwords are recorded", async () => {
  await using site = await startConsole();
  const { client, ownerId, email } = await routeOwner(site, 1);
  const before = (await entries(site, ownerId)).length;
  await signIn(site.client("198.51.100.7"), email, { password: "a guess" });
  await client.post("/confirm", { password: "a guess", next: "/keys" });
  const added = (await entries(site, ownerId)).slice(before);
  assert.deepEqual(
    added.map(({ action, ip }) => [action, ip]),
    [
      ["session.refused", "198.51.100.7"],
      ["session.refused", "2001:db8:0:1::1"],
    ],
  );
  assert.ok(site.logLines.some((line) => line.includes("sign_in_refused")));
  assert.ok(!site.logLines.join().includes("a guess"));
});

Deno.test("ASVS 16.3.1: a refused change leaves no audit entry", async () => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const nonce = "n".repeat(43);
  const refused: [path: string, form: Parameters<typeof client.post>[1]][] = [
    ["/keys", keyForm("", { nonce })],
    ["/keys", keyForm("A key", { nonce: "not one of ours" })],
    [`/keys/${keyId}/edit`, keyForm("Renamed", { version: "9" })],
    [`/keys/${keyId}/disable`, { version: "9" }],
    [`/keys/${keyId}/enable`, { version: "9" }],
    [`/keys/${keyId}/delete`, { version: "1" }],
    [`/keys/${keyId}/rotate`, { version: "9", old: "1h", nonce }],
    [`/keys/${keyId}/rotate`, { version: "1", old: "1y", nonce }],
    [`/keys/key_${"a".repeat(20)}/delete`, { version: "1", sure: "on" }],
    ["/account/password", { new_password: "short" }],
    ["/account/sessions/end", { session: "x" }],
  ];
  for (const [path, form] of refused) {
    const before = await entries(site, ownerId);
    const { status } = await client.post(path, form);
    assert.ok(status >= 400, path);
    const added = (await entries(site, ownerId)).slice(before.length);
    const changes = added.filter(({ action }) => action !== "session.refused");
    assert.deepEqual(changes, [], path);
  }
});

Deno.test("ASVS 16.3.2, 16.3.3: denied access and requests that guards refused are logged", async (t) => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const other = await routeOwner(site, 2);
  const stranger = site.client();
  const post = (type: string, origin: string) =>
    client.send("/sign-out", {
      ...{ method: "POST", body: "{}" },
      headers: { origin, "content-type": type },
    });
  const tries: [
    name: string,
    ask: () => Promise<Answer>,
    status: number,
    who?: string,
  ][] = [
    ["another's key", () => client.get(`/keys/${other.keyId}`), 404, ownerId],
    ["a field more", () => client.post("/confirm", { own: "x" }), 400, ownerId],
    ["a key", () => stranger.get("/keys", { authorization: "Bearer x" }), 401],
    ["another site", () => post("application/json", "https://evil.test"), 403],
    ["another host", () => stranger.get("/", { host: "evil.test" }), 421],
    ["large", () => client.post("/sign-out", { a: "a".repeat(40_000) }), 413],
    ["another type", () => post("application/json", ORIGIN), 415],
    [
      "a password that is too long",
      () => signIn(stranger, "a@example.org", { password: "x".repeat(129) }),
      400,
    ],
  ];
  for (const [name, ask, status, who = null] of tries) {
    await t.step(name, async () => {
      site.logLines.length = 0;
      const answer = await ask();
      assert.equal(answer.status, status);
      const lines = site.logLines.map((line) => JSON.parse(line));
      const refused = lines.filter(({ event }) => event === "request_refused");
      assert.deepEqual(
        refused.map((line) => [line.status, line.ownerId, line.requestId]),
        [[status, who, answer.headers.get("x-request-id")]],
      );
    });
  }
});

Deno.test("ASVS 16.4.1: input cannot break out of its entry, in the log or in the audit log", async () => {
  await using site = await startConsole();
  const evil = 'x"}\r\n{"level":"info","event":"forged"}\u2028';
  const agent = "Mozilla \u0001 forged";
  const answer = await site.client().send("/sign-in", {
    method: "POST",
    headers: { origin: ORIGIN, "user-agent": agent },
    body: new URLSearchParams({
      email: evil,
      password: evil,
      code: evil,
      next: evil,
    }),
  });
  assert.equal(answer.status, 401);
  const owner = await routeOwner(site, 1);
  await owner.client.post(
    `/keys/${owner.keyId}/edit?${encodeURIComponent(evil)}`,
    {
      [evil]: evil,
    },
  );
  assert.ok(site.logLines.length >= 2);
  for (const line of site.logLines) {
    assert.ok(!/[\r\n]/.test(line), line);
    assert.notEqual(JSON.parse(line).event, "forged");
  }
  const csv = await owner.client.get("/audit.csv");
  const rows = await entries(site, owner.ownerId);
  assert.equal(csv.text.trimEnd().split("\r\n").length, rows.length + 1);
});

const detailsOf = (text: string): number[] =>
  [...text.matchAll(/entry (\d+)\./g)].map((match) => Number(match[1]));

Deno.test("the audit log shows the entries that match a filter, newest first and without gaps, as pages and as CSV", async (t) => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const actions = [
    ...["key.edited", "session.signed_in", "account.password_changed"] as const,
  ];
  for (let n = 0; n < 120; n++) {
    const action = actions[n % actions.length] ?? "key.edited";
    const entry = { action, by: "ada@example.org", ip: "" };
    await site.deps.audit.add(ownerId, { ...entry, detail: `entry ${n}.` });
  }
  const all = Array.from({ length: 120 }, (_, n) => 119 - n);
  const cases: [action: string, expected: number[]][] = [
    ["", all],
    ["key.", all.filter((n) => n % 3 === 0)],
    ["session.", all.filter((n) => n % 3 === 1)],
    ["account.", all.filter((n) => n % 3 === 2)],
    ["nonsense", all],
  ];
  for (const [action, expected] of cases) {
    await t.step(action || "everything", async () => {
      const seen: number[] = [];
      let next: string | undefined = `/audit?action=${action}`;
      for (let pages = 0; next !== undefined; pages++) {
        assert.ok(pages < 10);
        const { text } = await client.get(next);
        const details = detailsOf(text);
        assert.ok(details.length <= 50);
        seen.push(...details);
        next = /href="([^"]*before=[^"]*)"[^>]*>Older/.exec(text)?.[1]
          ?.replaceAll("&amp;", "&");
      }
      assert.deepEqual(seen, expected);
      const { text } = await client.get(`/audit.csv?action=${action}`);
      const [head, ...lines] = text.trimEnd().split("\r\n");
      assert.match(
        head ?? "",
        /^time,action,by,ip,key_id,key,description,detail$/,
      );
      assert.deepEqual(detailsOf(text), expected);
      const isLet = action === "nonsense" ? "" : action;
      assert.ok(lines.every((line) => line.split(",")[1]?.startsWith(isLet)));
    });
  }
});
