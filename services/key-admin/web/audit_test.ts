import assert from "node:assert/strict";
import {
  type Answer,
  keyForm,
  ORIGIN,
  PASSWORD,
  signIn,
  startConsole,
  type TestConsole,
} from "../console_fixture.ts";
import type { AuditAction } from "../domain/audit/audit_log.ts";
import {
  routeCases,
  type RouteOwner,
  routeOwner,
  sendRequest,
} from "../routes_fixture.ts";

/** Guarantee: the audit log and the service's log record what an owner did and what was tried against the account. */

/** What a valid request to each route adds to the owner's audit log. */
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

Deno.test("ASVS 16.3.1: refused sign-ins and passwords are written down", async () => {
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

Deno.test("ASVS 16.3.1: a change that is refused leaves nothing in the audit log", async (t) => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const changes = async () =>
    (await entries(site, ownerId))
      .filter(({ action }) => action !== "session.confirmed");
  const nonce = "n".repeat(43);
  const refused: [path: string, form: Parameters<typeof client.post>[1]][] = [
    ["/keys", keyForm("", { nonce })],
    ["/keys", keyForm("A key", { nonce, requestsPerMinute: "1000001" })],
    ["/keys", keyForm("A key", { nonce: "not one of ours" })],
    [`/keys/${keyId}/edit`, keyForm("Renamed", { version: "9" })],
    [`/keys/${keyId}/disable`, { version: "9" }],
    [`/keys/${keyId}/enable`, { version: "9" }],
    [`/keys/${keyId}/delete`, { version: "1" }],
    [`/keys/${keyId}/rotate`, { version: "9", old: "1h", nonce }],
    [`/keys/${keyId}/rotate`, { version: "1", old: "1y", nonce }],
    [`/keys/key_${"a".repeat(20)}/delete`, { version: "1", sure: "on" }],
    ["/account/password", { password: PASSWORD, new_password: "short" }],
    ["/account/sessions/end", { session: "x" }],
  ];
  for (const [path, form] of refused) {
    await t.step(`${path} ${JSON.stringify(form).slice(0, 40)}`, async () => {
      const before = await changes();
      await client.post(path, form);
      assert.deepEqual(await changes(), before);
    });
  }
});

Deno.test("ASVS 16.3.2, 16.3.3: who is kept from something, and what guards stopped, is logged", async (t) => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const other = await routeOwner(site, 2);
  const stranger = site.client();
  const tries: [
    name: string,
    ask: () => Promise<Answer>,
    status: number,
    who: string | null,
  ][] = [
    ["another's key", () => client.get(`/keys/${other.keyId}`), 404, ownerId],
    ["a field more", () => client.post("/confirm", { own: "x" }), 400, ownerId],
    [
      "a data-plane key",
      () => stranger.get("/keys", { authorization: "Bearer sk-x" }),
      401,
      null,
    ],
    [
      "another site",
      () => client.send("/sign-out", { method: "POST" }),
      403,
      null,
    ],
    ["another host", () => stranger.get("/", { host: "evil.test" }), 421, null],
    [
      "a large form",
      () => client.post("/sign-out", { a: "a".repeat(40_000) }),
      413,
      null,
    ],
    [
      "another type",
      () =>
        client.send("/sign-out", {
          method: "POST",
          headers: { origin: ORIGIN, "content-type": "application/json" },
          body: "{}",
        }),
      415,
      null,
    ],
    [
      "a password beyond all bounds",
      () => signIn(stranger, "a@example.org", { password: "x".repeat(129) }),
      400,
      null,
    ],
  ];
  for (const [name, ask, status, who] of tries) {
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

Deno.test("ASVS 16.4.1: what somebody sends stays inside of its entry, in the log and in the audit log", async () => {
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

/** A log long enough for several pages, with every kind of entry. */
async function filledLog(site: TestConsole): Promise<RouteOwner> {
  const owner = await routeOwner(site, 1);
  const actions: AuditAction[] = [
    "key.edited",
    "session.signed_in",
    "account.password_changed",
  ];
  for (let n = 0; n < 120; n++) {
    await site.deps.audit.add(owner.ownerId, {
      action: actions[n % actions.length] ?? "key.edited",
      by: "ada@example.org",
      ip: "",
      detail: `entry ${n}.`,
    });
  }
  return owner;
}

const detailsOf = (text: string): number[] =>
  [...text.matchAll(/entry (\d+)\./g)].map((match) => Number(match[1]));

Deno.test("the audit log is paged without gaps, newest first, under a filter too", async (t) => {
  await using site = await startConsole();
  const { client } = await filledLog(site);
  const all = Array.from({ length: 120 }, (_, n) => 119 - n);
  const cases: [path: string, expected: number[]][] = [
    ["/audit", all],
    ["/audit?action=key.", all.filter((n) => n % 3 === 0)],
    ["/audit?action=session.", all.filter((n) => n % 3 === 1)],
    ["/audit?action=account.", all.filter((n) => n % 3 === 2)],
    ["/audit?action=nonsense", all],
  ];
  for (const [path, expected] of cases) {
    await t.step(path, async () => {
      const seen: number[] = [];
      let next: string | undefined = path;
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
    });
  }
});

Deno.test("a cursor of the audit log that cannot be one is 400", async (t) => {
  await using site = await startConsole();
  const { client } = await routeOwner(site, 1);
  for (const before of ["0-0", "00-0", "x", "1", "-1-0", "1-0-0"]) {
    await t.step(before, async () => {
      const { status } = await client.get(`/audit?before=${before}`);
      assert.equal(status, 400);
    });
  }
  assert.equal((await client.get("/audit?before=0-1")).status, 200);
});

Deno.test("the audit log as CSV has the whole log, or what the filter lets through, and nothing else", async (t) => {
  await using site = await startConsole();
  const { client } = await filledLog(site);
  const cases: [action: string, areas: string[]][] = [
    ["", ["key", "session", "account"]],
    ["key.", ["key"]],
    ["session.", ["session"]],
    ["account.", ["account"]],
  ];
  for (const [action, areas] of cases) {
    await t.step(action || "everything", async () => {
      const { text } = await client.get(`/audit.csv?action=${action}`);
      const [head, ...lines] = text.trimEnd().split("\r\n");
      assert.match(
        head ?? "",
        /^time,action,by,ip,key_id,key,description,detail$/,
      );
      const found = lines.map((line) =>
        line.split(",")[1]?.split(".")[0] ?? ""
      );
      assert.deepEqual([...new Set(found)].sort(), areas.toSorted());
      assert.equal(detailsOf(text).length, 40 * areas.length);
    });
  }
});
