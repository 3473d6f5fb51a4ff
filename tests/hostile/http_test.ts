// Promise: whatever bytes arrive at the bare edge, the outcome is the one the contract
// names: the table of bad inputs, by its numbers. Answers of the HTTP server itself,
// before any code of ours runs, are kept as facts to be noticed when they change.
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { rawExchange, readUntilQuiet } from "../conformance/context.ts";
import { scriptCalls } from "../support/limits/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import {
  authenticated,
  bearer,
  BODY,
  CHAT,
  CLOSE,
  HOST,
  LENGTH,
  MODELS,
  request,
} from "./raw_requests_fixture.ts";
import { unauthenticated } from "./unauthenticated_fixture.ts";

const QUIET_MS = 150;
const UNAUTHORIZED =
  `{"error":{"code":"unauthorized","message":"unauthorized","type":"error"}}`;

/** What came back over a socket. */
interface Answer {
  /** 0: the connection was closed without an answer. */
  status: number;
  head: string;
  body: string;
}

async function send(
  url: string,
  bytes: string | Uint8Array,
): Promise<Answer> {
  const text = await rawExchange(url, [bytes], QUIET_MS);
  const [head = "", ...rest] = text.split("\r\n\r\n");
  const status = Number(/^HTTP\/1\.[01] (\d{3}) /.exec(head)?.[1] ?? 0);
  return { status, head, body: rest.join("\r\n\r\n") };
}

/** Every error of the edge is JSON, has its request id, and reveals no internals. */
function assertOwnError({ head, body }: Answer, what: string): void {
  assert.match(head, /^content-type: application\/json/im, what);
  assert.match(head, /^x-request-id: req_[0-9a-f]{32}$/im, what);
  assert.equal(typeof JSON.parse(body).error.message, "string", what);
  assert.ok(!/sk-|\bat \w+ \(|file:\/\//.test(body), `${what}: ${body}`);
}

/** Refused by the server itself, which does not speak JSON. */
const isOfServer = ({ status, body }: Answer) =>
  ((status === 400 || status === 431) && body === "") || status === 0;

/** A gateway that is spoken to over a raw socket. */
interface RawSocket {
  gateway: LimitedGateway;
  /** The base URL of its edge. */
  url: string;
  /** A good key. */
  key: TestKey;
}

Deno.test("ASVS 1.5.3, 4.1.4, 4.2.1, 13.4.4, API2: bad requests over a raw socket", async (t) => {
  await using gateway = await startGateway("limited");
  const url = gateway.edge.baseUrl;
  const key = await gateway.addKey();
  const socket: RawSocket = { gateway, url, key };

  await t.step(
    "401 for a malformed key takes no call to Redis",
    () => refusesMalformedKeys(socket),
  );

  await t.step(
    "7 an unknown key: 401 and one read in all",
    () => readsUnknownKeyOnce(socket),
  );

  for (const { name, bytes, status } of authenticated(key)) {
    await t.step(`${name} -> ${status || "closed"}`, async () => {
      const answer = await send(url, bytes);
      assert.equal(answer.status, status, answer.head + answer.body);
      if (status >= 400 && !isOfServer(answer)) assertOwnError(answer, name);
      if (status === 405) assert.match(answer.head, /^allow: .*OPTIONS$/im);
    });
  }

  await t.step(
    "12-14 keys without a right, whatever the body",
    () => refusesWithoutRight(socket),
  );

  await t.step(
    "22 HTTP/1.0 without a Host is served",
    () => servesOldHttp(socket),
  );

  await t.step(
    "a client that stops sending has left",
    () => forgetsWhoStops(socket),
  );

  await t.step(
    "a body of a GET is not taken for a request",
    () => smugglesNothing(socket),
  );

  await t.step(
    "none of them caused an internal error or logged a key",
    () => loggedNoKey(socket),
  );
});

Deno.test("pages may call only from listed origins", async () => {
  const app = "https://app.example.org";
  const door = { corsOrigins: [app] };
  await using gateway = await startGateway("limited", { door });
  const { value } = await gateway.addKey({ limits: { requestsPerMinute: 1 } });
  const send = async (origin: string, init: RequestInit) => {
    const headers = { ...init.headers, origin };
    const url = `${gateway.edge.baseUrl}/chat/completions`;
    const response = await fetch(url, { ...init, headers });
    await response.body?.cancel();
    const header = (name: string) => response.headers.get(name) ?? "";
    const allows = (what: string) => header(`access-control-${what}`);
    return { status: response.status, header, allows };
  };
  const requested = "authorization,content-type";
  const preflight = {
    method: "OPTIONS",
    headers: { "access-control-request-headers": requested },
  };
  const post = {
    method: "POST",
    headers: { authorization: `Bearer ${value}` },
    body: new TextEncoder().encode(BODY),
  };
  const { status, header, allows } = await send(app, preflight);
  assert.equal(status, 204);
  assert.equal(allows("allow-origin"), app);
  assert.equal(allows("allow-headers"), requested);
  assert.match(allows("allow-methods"), /POST/);
  assert.match(header("vary"), /origin/i);
  for (const expected of [200, 429]) {
    const { status, allows } = await send(app, post);
    assert.equal(status, expected);
    assert.equal(allows("allow-origin"), app);
    assert.equal(allows("allow-credentials"), "");
    assert.equal(allows("expose-headers"), "*");
  }
  for (const stranger of ["https://evil.example", "null", `${app}.evil`]) {
    for (const init of [preflight, post]) {
      assert.equal((await send(stranger, init)).allows("allow-origin"), "");
    }
  }
});

Deno.test("apps may call from their own kinds of origins, and every page from *", async () => {
  const apps = [
    "app://obsidian.md",
    "tauri://localhost",
    "chrome-extension://abcdefghijklmnop",
  ];
  await using gateway = await startGateway("open", {
    door: { corsOrigins: apps },
  });
  const open = await gateway.addEdge({ door: { corsOrigins: ["*"] } });
  const allowed = async (baseUrl: string, origin: string) => {
    const init = { method: "OPTIONS", headers: { origin } };
    const { headers } = await fetch(`${baseUrl}/models`, init);
    return headers.get("access-control-allow-origin");
  };
  for (const app of apps) {
    assert.equal(await allowed(gateway.edge.baseUrl, app), app);
    assert.equal(await allowed(open.baseUrl, app), "*");
  }
  assert.equal(await allowed(gateway.edge.baseUrl, "app://else"), null);
});

async function refusesMalformedKeys({ gateway, url, key }: RawSocket) {
  const before = await scriptCalls(gateway.world);
  for (const { name, bytes } of unauthenticated(key)) {
    const answer = await send(url, bytes);
    assert.equal(answer.status, 401, `${name}: ${answer.body}`);
    assert.equal(answer.body, UNAUTHORIZED, name);
    assert.match(answer.head, /^www-authenticate: bearer$/im, name);
  }
  assert.equal(await scriptCalls(gateway.world), before);
}

async function readsUnknownKeyOnce({ gateway, url }: RawSocket) {
  const before = await scriptCalls(gateway.world);
  const text = request(MODELS, HOST + CLOSE + bearer(mintKey(randomBytes)));
  for (let count = 0; count < 5; count += 1) {
    assert.equal((await send(url, text)).body, UNAUTHORIZED);
  }
  assert.equal(await scriptCalls(gateway.world), before + 1);
}

async function refusesWithoutRight({ gateway, url }: RawSocket) {
  const refused = [
    { key: { state: "disabled" }, status: 403, code: "unauthorized" },
    { key: { expiresAtMs: 1 }, status: 401, code: "unauthorized" },
    { key: { scopes: "image" }, status: 403, code: "forbidden" },
    {
      key: { models: "other" },
      status: 403,
      code: "forbidden",
      // The model is in the body: it must be read for that.
      statusOfBadBody: 400,
    },
  ];
  for (const { status, code, statusOfBadBody = status, ...row } of refused) {
    const key = await gateway.addKey(row.key);
    const headers = HOST + CLOSE + bearer(key.value) + LENGTH;
    const post = (body: string) => send(url, request(CHAT, headers, body));
    const answer = await post(BODY);
    assert.equal(answer.status, status);
    assert.equal(JSON.parse(answer.body).error.code, code);
    assert.equal(await gateway.leases(key), 0);
    const bad = `{${BODY.slice(2)}`.padEnd(BODY.length);
    assert.equal((await post(bad)).status, statusOfBadBody);
  }
}

async function servesOldHttp({ url, key }: RawSocket) {
  const text = request("GET /v1/models HTTP/1.0", bearer(key.value));
  assert.equal((await send(url, text)).status, 200);
}

async function forgetsWhoStops({ url, key }: RawSocket) {
  const { hostname, port } = new URL(url);
  using connection = await Deno.connect({ hostname, port: Number(port) });
  const text = request(MODELS, HOST + bearer(key.value));
  await connection.write(new TextEncoder().encode(text));
  await connection.closeWrite();
  assert.equal(await readUntilQuiet(connection, QUIET_MS), "");
}

async function smugglesNothing({ url, key }: RawSocket) {
  const inner = request("GET /v1/smuggled HTTP/1.1", HOST);
  const length = `Content-Length: ${inner.length}\r\n`;
  const headers = HOST + bearer(key.value) + length;
  const answer = await send(url, request(MODELS, headers, inner));
  assert.equal(answer.status, 200);
  assert.ok(!answer.body.includes("HTTP/1.1"), answer.body);
}

function loggedNoKey({ gateway: { edge }, key }: RawSocket) {
  const faults = edge.log.lines.filter(({ level }) => level !== "info");
  assert.deepEqual(faults, []);
  for (const line of edge.log.lines.map((each) => JSON.stringify(each))) {
    assert.ok(!line.includes(key.value));
    assert.ok(!line.includes("api_key"), "the query is not logged");
    assert.ok(line.length < 1_000, `${line.length} characters`);
  }
}
