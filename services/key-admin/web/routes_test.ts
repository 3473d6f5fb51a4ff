/** What all pages share: refusals, files, the host, privacy. */
import { VERSION } from "@gateway/shared/version";
import assert from "node:assert/strict";
import { isIP } from "node:net";
import { type Answer, ORIGIN, type TestClient } from "../client_fixture.ts";
import {
  startConsole,
  storedKey,
  type TestConsole,
} from "../console_fixture.ts";
import { keyForm, makeKey, PASSWORD, signIn } from "../forms_fixture.ts";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { recordKey } from "@gateway/shared/keys/record";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { serve } from "@gateway/shared/process/lifecycle/serve";
import { askPort } from "../../../tests/support/servers/ask_port.ts";
import { CREATION_RATE } from "./pages/keys/key_created.tsx";
import { Hono } from "hono";
import {
  checkHeaders,
  type RouteOwner,
  routeOwner,
} from "../routes_fixture.ts";
import { type ConsoleEnv, Refused } from "./context.ts";
import { formGuard } from "./request/forms.ts";
import { createHandler } from "./server.ts";

const NAME = new URL(ORIGIN).host;
const hasNavigation = ({ text }: Answer) => text.includes('aria-label="Main"');

/** Who sends requests that are refused. */
interface Senders {
  site: TestConsole;
  owner: RouteOwner;
  /** Owns a key that the owner may not see. */
  other: RouteOwner;
  /** A browser without cookies. */
  stranger: TestClient;
}

/** A request that is refused. */
interface Refusal {
  status: number;
  says: string;
  ask: (senders: Senders) => Promise<Answer>;
  /** Whether the page knows the owner, and has the navigation. */
  isSignedIn?: boolean;
}

const sendRaw = ({ owner }: Senders, type: string, origin: string) => {
  const headers = { origin, "content-type": type };
  const request = { method: "POST", body: "{}", headers };
  return owner.client.send("/sign-out", request);
};

const signInWith = ({ stranger }: Senders, password: string) =>
  signIn(stranger, "nobody@example.org", { password });

const REFUSALS: readonly Refusal[] = [
  {
    status: 400,
    says: "unknown field. Reload the page",
    ask: ({ owner }) => owner.client.post("/account/notice", { own: "x" }),
    isSignedIn: true,
  },
  {
    status: 400,
    says: "missing, malformed or unknown",
    ask: (senders) => signInWith(senders, "x".repeat(129)),
  },
  {
    status: 401,
    says: "API keys. Sign in with",
    ask: ({ stranger }) =>
      stranger.get("/keys", { authorization: "Bearer sk-x" }),
  },
  {
    status: 403,
    says: "another site. Open",
    ask: (senders) => sendRaw(senders, "text/plain", "https://evil.test"),
  },
  {
    status: 404,
    says: "session has already ended",
    ask: ({ owner }) =>
      owner.client.post("/account/sessions/end", { session: "x" }),
    isSignedIn: true,
  },
  {
    status: 404,
    says: "key does not exist. If it was deleted, the audit",
    ask: ({ owner, other }) => owner.client.get(`/keys/${other.keyId}`),
    isSignedIn: true,
  },
  {
    status: 400,
    says: "Start at the newest",
    ask: ({ owner }) => owner.client.get("/audit?before=x"),
    isSignedIn: true,
  },
  {
    status: 400,
    says: "missing, malformed or unknown field",
    ask: ({ owner }) =>
      owner.client.post("/keys/new", keyForm("A key", { nonce: "x" })),
    isSignedIn: true,
  },
  {
    status: 405,
    says: "does not support that method",
    ask: ({ owner }) => owner.client.get("/sign-out"),
  },
  {
    status: 409,
    says: "changed in the meantime. Look at its new",
    ask: ({ owner: { client, keyId } }) =>
      client.post(`/keys/${keyId}/enable`, { version: "7" }),
    isSignedIn: true,
  },
  {
    status: 413,
    says: "too large. Shorten its texts, or choose fewer models or",
    ask: ({ owner }) =>
      owner.client.post("/sign-out", { a: "a".repeat(40_000) }),
  },
  {
    status: 415,
    says: "accepts forms only",
    ask: (senders) => sendRaw(senders, "application/json", ORIGIN),
  },
  {
    status: 421,
    says: "does not answer at this address. Use",
    ask: ({ owner }) => owner.client.get("/keys", { host: "evil.test" }),
  },
  {
    status: 500,
    says: "our side. Try again. If it happens again",
    ask: async ({ site, owner: { client, ownerId, keyId } }) => {
      const record = recordKey({ ownerId, keyId });
      await site.deps.redis.command(["SET", record, "no record"]);
      return await client.get(`/keys/${keyId}`);
    },
    isSignedIn: true,
  },
  {
    status: 503,
    says: "database is not responding. Try again",
    ask: async ({ site, owner }) => {
      await site.server.kill();
      return await owner.client.get("/keys");
    },
  },
  {
    status: 503,
    says: "The database",
    ask: (senders) => signInWith(senders, PASSWORD),
  },
];

Deno.test("ASVS 3.4.1-3.4.6, 4.1.1, 14.3.2, 16.3.2, 16.3.3, 16.5.1: refusals are safe, terse and logged", async (t) => {
  await using site = await startConsole();
  const owner = await routeOwner(site, 1);
  const other = await routeOwner(site, 2);
  const senders = { site, owner, other, stranger: site.client() };
  for (const { status, says, ask, isSignedIn = false } of REFUSALS) {
    await t.step(`${status}: ${says}`, async () => {
      site.logLines.length = 0;
      const answer = await ask(senders);
      assert.equal(answer.status, status, answer.text);
      assert.ok(answer.text.includes(says), answer.text);
      assert.equal(hasNavigation(answer), isSignedIn && status < 500);
      checkHeaders(answer);
      assert.ok(!/redis|stack|\.tsx?:|Error:/i.test(answer.text), answer.text);
      const event = status < 500 ? "request_refused" : "request_failed";
      const lines = site.logLines.map((line) => JSON.parse(line))
        .filter((line) => line.event === event);
      assert.partialDeepStrictEqual(lines, [{
        status,
        ownerId: isSignedIn ? owner.ownerId : null,
        requestId: answer.headers.get("x-request-id"),
      }]);
      assert.equal(lines.length, 1);
      assert.ok(isIP(lines[0].clientAddress));
    });
  }
});

Deno.test("ASVS 1.3.2, 3.6.1: no script evaluates code, and all files are our own, named by content", async () => {
  await using site = await startConsole();
  const page = await site.client().get("/sign-in");
  const links = [...page.text.matchAll(/(?:href|src)="([^"]+)"/g)]
    .map((match) => match[1] ?? "");
  const paths = links.filter((link) => link.startsWith("/assets/"));
  assert.equal(new Set(paths).size, 3);
  assert.ok(
    links.every((link) => /^[/#](?!\/)/.test(link)),
    "links to other sites",
  );
  for (const path of paths) {
    const file = await site.client().get(path);
    assert.equal(file.status, 200);
    checkHeaders(file, { isFile: true });
  }
  const other = await site.client().get("/assets/000000000000/site.css");
  assert.equal(other.status, 404);
  const script = site.deps.assets.files.get(site.deps.assets.script);
  const builds =
    /\beval\b|new Function|innerHTML|insertAdjacentHTML|document\.write/;
  assert.ok(script !== undefined && !builds.test(script.body));
});

Deno.test("ASVS 3.5.4, API9: only the configured host is served; all others, malformed ones too, get 421", async () => {
  await using site = await startConsole();
  const client = site.client();
  for (const host of ["evil.test", "console.test:8443", "localhost", ""]) {
    const { status, text } = await client.get("/sign-in", { host });
    assert.equal(status, 421, host);
    assert.match(text, /href="https:\/\/console\.test">Continue</);
  }
  const absolute = await client.send("https://evil.test/sign-in", {});
  assert.equal(absolute.status, 421);
  const server = serve({
    hostname: "127.0.0.1",
    port: 0,
    handler: createHandler(site.app, {
      clientAddress: createClientAddress([]),
      log: site.deps.log,
      registry: new MetricRegistry(),
    }),
    onError: (error) => new Response(String(error), { status: 599 }),
  });
  const ask = (path: string, host: string) =>
    askPort(
      server.port,
      `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
    );
  for (const host of ["a b", "[::1", "%", "a:99999", "<x>", "..:x"]) {
    const answer = await ask("/sign-in", host);
    assert.match(answer, /^HTTP\/1\.1 421 /, host);
    assert.match(answer, /^content-security-policy: default-src 'none'/m);
    assert.match(site.logLines.at(-1) ?? "", /"status":421/);
  }
  // The console's own files have no log line.
  site.logLines.length = 0;
  await ask(site.deps.assets.icon, NAME);
  await ask("/assets/0/none.css", NAME);
  const [line = "", ...others] = site.logLines
    .filter((line) => line.includes(`"event":"request"`));
  assert.deepEqual(others, []);
  assert.match(line, /"clientAddress":"127.0.0.1".*none.css","status":404/);
  await server.stop({ graceMs: 1_000, abortMs: 100 });
});

Deno.test("API9: the console answers its documented paths and no others", async () => {
  await using site = await startConsole();
  const { client } = await routeOwner(site, 1);
  const strange = await site.client().get("/sign-in");
  assert.ok(!strange.text.includes(VERSION), "a stranger sees it");
  const page = await client.get("/keys");
  assert.ok(page.text.includes(`Gateway ${VERSION}</footer>`), page.text);
  const paths = [
    "/v1/models",
    "/v1/chat/completions",
    "/api/keys",
    "/metrics",
    "/healthz",
    "/readyz",
    "/admin",
    "/debug",
    "/.git/config",
    "/.env",
    "/keys.json",
    "/keys/",
    "/keys//",
    "/Keys",
    "/keys/x/y/z",
  ];
  for (const path of paths) {
    const answer = await client.get(path);
    assert.equal(answer.status, 404, path);
    checkHeaders(answer);
    assert.ok(hasNavigation(answer), "of those who are signed in");
    assert.ok(!hasNavigation(await site.client().get(path)));
  }
});

Deno.test("ASVS 2.4.1, API6: an owner makes or rotates ten keys at once, then one every six seconds", async () => {
  await using site = await startConsole();
  const { client, ownerId } = await routeOwner(site, 1);
  const { count, perMs } = CREATION_RATE;
  assert.deepEqual([count, perMs], [10, 60_000]);
  const make = async (n: number) => {
    const nonce = String(n).padStart(43, "n");
    if (n % 2 === 0) {
      return await client.post("/keys/new", keyForm("A", { nonce }));
    }
    const { id } = await storedKey(site, ownerId);
    const form = { version: "1", old: "7d", nonce };
    return await client.post(`/keys/${id}/rotate`, form);
  };
  let keys = 0;
  let answer = await make(keys);
  // On a busy machine more than six seconds may pass meanwhile.
  while (answer.status === 201 && keys < 2 * count) answer = await make(++keys);
  assert.equal(answer.status, 429);
  checkHeaders(answer);
  assert.ok(keys >= count, `${keys}`);
  const waitSeconds = Number(answer.headers.get("retry-after"));
  assert.ok(waitSeconds >= 1 && waitSeconds <= 6, `${waitSeconds}`);
  const { client: other } = await routeOwner(site, 2);
  await makeKey(other, "Others are not held up");
});

Deno.test("API1: lists, usage and audit log of an owner contain nothing of another", async () => {
  await using site = await startConsole();
  const ada = await routeOwner(site, 1);
  const bob = await routeOwner(site, 2);
  const paths = [
    "/keys",
    `/keys?search=${ada.keyId}`,
    "/keys?search=secret+project+1",
    "/usage",
    "/usage?range=30d",
    "/usage/export.csv",
    "/usage/spend.csv",
    "/audit",
    "/audit.csv",
    "/audit?action=key.",
    "/audit.csv?action=key.",
    "/account",
  ];
  for (const path of paths) {
    const { status, text } = await bob.client.get(path);
    assert.equal(status, 200);
    // The search box repeats the search.
    const secrets = path.includes("search") ? [] : [ada.keyId];
    for (const secret of [...secrets, ada.email, "Secret project 1"]) {
      assert.ok(!text.includes(secret), `${path}: ${secret}`);
    }
    assert.ok(!text.includes(ada.ownerId), path);
  }
  const [session] = await site.deps.sessions.list(ada.ownerId);
  const form = { session: session?.id ?? "" };
  const answer = await bob.client.post("/account/sessions/end", form);
  assert.equal(answer.status, 404);
  assert.equal((await ada.client.get("/keys")).status, 200);
});

Deno.test("formGuard() stops waiting for a stalled form after its timeout", async () => {
  const app = new Hono<ConsoleEnv>();
  app.use(formGuard(20));
  let refused: unknown;
  app.onError((error, c) => {
    refused = error;
    return c.text("");
  });
  const ended = Promise.withResolvers<void>();
  const endless = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array([0x61])),
    cancel: () => ended.resolve(),
  });
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  // The guard's own timer does not keep a process alive.
  const alive = setTimeout(() => {}, 10_000);
  await app.request("/", { method: "POST", headers, body: endless });
  await ended.promise;
  clearTimeout(alive);
  assert.ok(refused instanceof Refused && refused.status === 408);
  assert.match(refused.message, /not arrive in time. Check your connection/);
});
