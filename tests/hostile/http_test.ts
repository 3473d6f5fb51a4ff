// Promise: whatever bytes arrive at the bare edge, the outcome is the one the contract
// names: the table of bad inputs, by its numbers. Answers of the HTTP server itself,
// before any code of ours runs, are kept as facts to be noticed when they change.
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { mintKey } from "@gateway/shared/keys/key";
import { rawExchange, readUntilQuiet } from "../conformance/context.ts";
import { scriptCalls } from "../support/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";

const QUIET_MS = 150;
const HOST = "Host: localhost\r\n";
const CLOSE = "Connection: close\r\n";
const BODY = JSON.stringify({
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
});
const CHUNKED = "2\r\n{}\r\n0\r\n\r\n";
const EXTENDED = CHUNKED.replace("2", `2;${"a".repeat(20_000)}`);
const CHUNKED_CODING = "Transfer-Encoding: chunked\r\n";
const LENGTH = `Content-Length: ${BODY.length}\r\n`;
const H2C = "Connection: Upgrade, HTTP2-Settings\r\n" +
  "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
const H2_PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const UNAUTHORIZED =
  `{"error":{"code":"unauthorized","message":"unauthorized","type":"error"}}`;

const bearer = (value: string) => `Authorization: Bearer ${value}\r\n`;
const request = (line: string, headers: string, body = "") =>
  `${line}\r\n${headers}\r\n${body}`;

type Answer = Awaited<ReturnType<typeof send>>;

async function send(url: string, bytes: string | Uint8Array) {
  const text = await rawExchange(url, [bytes], QUIET_MS);
  const [head = "", ...rest] = text.split("\r\n\r\n");
  /** 0: the connection was closed without an answer. */
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

/** What is sent, and the status; 0: closed without an answer. */
type Row = [name: string, sent: string | Uint8Array, status: number];

const EXPECTING = "Content-Length: 100\r\nExpect: 100-continue\r\n";
const MODELS = "GET /v1/models HTTP/1.1";
const CHAT = "POST /v1/chat/completions HTTP/1.1";

/** Requests without a valid key: exactly the 401 body, without a call to Redis. */
function unauthenticated(key: TestKey): Row[] {
  const good = key.value;
  const otherChar = good.charAt(10) === "a" ? "b" : "a";
  const mistyped = good.slice(0, 10) + otherChar + good.slice(11);
  const get = (headers: string, line = MODELS) =>
    request(line, HOST + CLOSE + headers);
  const latin1 = get("Authorization: Bearer sk-@@\r\n").replace("@@", "\xe9");
  return [
    ["1 no key", get(""), 401],
    ["2 Basic", get(`Authorization: Basic ${btoa(`u:${good}`)}\r\n`), 401],
    ["4 tab", get(`Authorization: Bearer\t${good}\r\n`), 401],
    ["5 two headers", get(bearer(good) + bearer(good)), 401],
    ["5 good, bad", get(bearer(good) + bearer("sk-wrong")), 401],
    ["5 bad, good", get(bearer("sk-wrong") + bearer(good)), 401],
    ["5 a list", get(`Authorization: Bearer ${good} ${good}\r\n`), 401],
    ["5 no scheme", get(`Authorization: ${good}\r\n`), 401],
    ["6 checksum", get(bearer(mistyped)), 401],
    ["6 short", get(bearer(good.slice(0, -1))), 401],
    ["6 long", get(bearer(`${good}0`)), 401],
    ["6 lower case", get(bearer(good.toLowerCase())), 401],
    ["6 other vendor", get(bearer(`sk-proj-${"a".repeat(48)}`)), 401],
    ["8 Latin-1", Uint8Array.from(latin1, (c) => c.charCodeAt(0)), 401],
    ["8 full width", get(bearer(`${good.slice(0, -1)}ａ`)), 401],
    ["10 9 kB credential", get(bearer("a".repeat(9_000))), 401],
    ["11 query", get("", `GET /v1/models?api_key=${good} HTTP/1.1`), 401],
    ["11 x-api-key", get(`X-Api-Key: ${good}\r\n`), 401],
    ["26 escaped", get("", "GET /v1/%6dodels HTTP/1.1"), 401],
    ["26 escaped root", get("", "GET /%76%31/models HTTP/1.1"), 401],
    ["27 TRACE", get("", "TRACE /v1/models HTTP/1.1"), 401],
    ["unknown path", get("", "GET /v1/nope HTTP/1.1"), 401],
    ["29 expecting 100", get(bearer("sk-x") + EXPECTING, CHAT), 401],
  ];
}

/** Requests of a good key, or of another credential, that want no kept connection. */
class Requests {
  readonly #key: string;

  constructor({ value }: TestKey) {
    this.#key = bearer(value);
  }

  /** The headers of a good request. */
  get headers(): string {
    return HOST + CLOSE + this.#key;
  }

  /** A request without a body, with another first line. */
  get(line: string): string {
    return request(`${line} HTTP/1.1`, this.headers);
  }

  /** A request for the models with one more header. */
  withHeader(header: string): string {
    return request(MODELS, this.headers + header);
  }

  /** A chat request with more headers. */
  post(more: string, body = BODY): string {
    return request(CHAT, this.headers + more, body);
  }

  /** A request for the models, with other headers of authorization. */
  as(credential: string): string {
    return request(MODELS, HOST + CLOSE + credential);
  }

  /** A chunked chat request with this transfer encoding. */
  encoded(coding: string): string {
    return this.post(`Transfer-Encoding: ${coding}\r\n`, CHUNKED);
  }

  /** A chat request of this media type. */
  typed(type: string): string {
    return this.post(`${LENGTH}Content-Type: ${type}\r\n`);
  }
}

/** Headers: names, blanks, control characters, sizes, hosts. */
function headerRows(to: Requests, key: TestKey): Row[] {
  return [
    ["3 lower case", to.as(`authorization: bearer ${key.value}\r\n`), 200],
    ["4 blanks", to.as(`Authorization: Bearer   ${key.value}  \r\n`), 200],
    ["9 NUL", to.withHeader("X: a\0b\r\n"), 400],
    ["9 CR", to.withHeader("X: a\rb\r\n"), 400],
    ["9 LF", to.withHeader("X: a\nb\r\n"), 400],
    ["10 100 kB header", to.withHeader(`X: ${"a".repeat(100_000)}\r\n`), 431],
    ["10 1,000 headers", to.withHeader("X: a\r\n".repeat(1_000)), 200],
    ["23 two hosts", request(MODELS, HOST + to.headers), 400],
    ["23 no host", request(MODELS, CLOSE + bearer(key.value)), 400],
    ["22 bare LF", `GET /v1/models HTTP/1.1\nHost: x\n${CLOSE}\n`, 400],
    ["23 a path", request(MODELS, `Host: x/v1/models?\r\n${CLOSE}`), 400],
  ];
}

/** Where a body ends: lengths, encodings, chunks. */
function framingRows(to: Requests): Row[] {
  return [
    ["17 length, chunked", to.post(LENGTH + CHUNKED_CODING), 400],
    ["17 chunked, length", to.post(CHUNKED_CODING + LENGTH), 400],
    [
      "18 two lengths",
      to.post("Content-Length: 5\r\nContent-Length: 6\r\n"),
      400,
    ],
    ["18 +2", to.post("Content-Length: +2\r\n", "{}"), 400],
    ["18 -1", to.post("Content-Length: -1\r\n", "{}"), 400],
    ["18 0x2", to.post("Content-Length: 0x2\r\n", "{}"), 400],
    ["18 list", to.post("Content-Length: 2, 3\r\n", "{}"), 400],
    ["18 20 digits", to.post(`Content-Length: ${"9".repeat(20)}\r\n`), 400],
    ["18 blank", to.post("Content-Length : 2\r\n", "{}"), 400],
    ["18 two equal lengths", to.post(LENGTH + LENGTH), 400],
    ["19 xchunked", to.encoded("xchunked"), 400],
    ["19 chunked, identity", to.encoded("chunked, identity"), 400],
    ["19 identity, chunked", to.encoded("identity, chunked"), 400],
    ["19 folded", to.encoded("\r\n chunked"), 400],
    [
      "19 chunked twice",
      to.post(CHUNKED_CODING + CHUNKED_CODING, CHUNKED),
      400,
    ],
    [
      "20 bad chunk size",
      to.post(CHUNKED_CODING, "zz\r\n{}\r\n0\r\n\r\n"),
      400,
    ],
    [
      "20 huge chunk size",
      to.post(CHUNKED_CODING, `${"f".repeat(17)}\r\n{}`),
      400,
    ],
    [
      "20 chunk too short",
      to.post(CHUNKED_CODING, "1\r\n{}\r\n0\r\n\r\n"),
      400,
    ],
    ["21 chunk extension", to.post(CHUNKED_CODING, EXTENDED), 400],
    ["33 20 MiB and more", to.post("Content-Length: 99999999\r\n", "{}"), 413],
    ["29 expecting more", to.post(`${LENGTH}Expect: 200-ok\r\n`), 200],
  ];
}

/** Paths and methods. */
function lineRows(to: Requests): Row[] {
  return [
    ["10 URI of 70 kB", to.get(`GET /v1/${"a".repeat(70_000)}`), 431],
    ["25 //", to.get("GET //v1/models"), 404],
    ["25 ..", to.get("GET /v1/../v1/models"), 404],
    ["25 %zz", to.get("GET /v1/%zz"), 404],
    ["25 %00", to.get("GET /v1/models/%00"), 404],
    ["26 escaped", to.get("GET /v1/%6dodels"), 200],
    ["27 TRACE", to.get("TRACE /v1/chat/completions"), 405],
    ["27 get", to.get("get /v1/models"), 400],
    ["27 unknown", to.get("FOO /v1/models"), 400],
    ["27 CONNECT", to.get("CONNECT x:80"), 0],
    ["27 PUT", to.get("PUT /v1/chat/completions"), 405],
  ];
}

/** What a body is said to be. */
function typeRows(to: Requests): Row[] {
  return [
    ["34 gzip", to.post(`${LENGTH}Content-Encoding: gzip\r\n`), 415],
    ["35 text", to.typed("text/plain"), 415],
    ["35 form", to.typed("application/x-www-form-urlencoded"), 415],
    ["35 parts", to.typed("multipart/form-data; boundary=x"), 415],
    ["35 no type", to.post(LENGTH), 200],
  ];
}

/** Other protocols, and other versions. */
function protocolRows(to: Requests): Row[] {
  return [
    ["upgrade", to.withHeader("Upgrade: websocket\r\n"), 200],
    ["upgrade of the JDK's client", to.withHeader(H2C), 200],
    ["the same with a body", to.post(LENGTH + H2C), 200],
    ["HTTP/2 with prior knowledge", H2_PREFACE, 400],
    ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400],
    ["no request", "hello\r\n\r\n", 400],
    ["HTTP/3.0", request("GET /v1/models HTTP/3.0", to.headers), 400],
  ];
}

/** Requests of a good key that are wrong in some other way. */
function authenticated(key: TestKey): Row[] {
  const to = new Requests(key);
  return [
    ...headerRows(to, key),
    ...framingRows(to),
    ...lineRows(to),
    ...typeRows(to),
    ...protocolRows(to),
  ];
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

  for (const [name, sent, status] of authenticated(key)) {
    await t.step(`${name} -> ${status || "closed"}`, async () => {
      const answer = await send(url, sent);
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

async function refusesMalformedKeys({ gateway, url, key }: RawSocket) {
  const before = await scriptCalls(gateway.world);
  for (const [name, sent, status] of unauthenticated(key)) {
    const answer = await send(url, sent);
    assert.equal(answer.status, status, `${name}: ${answer.body}`);
    assert.equal(answer.body, UNAUTHORIZED, name);
    assert.match(answer.head, /^www-authenticate: bearer$/im, name);
  }
  assert.equal(await scriptCalls(gateway.world), before);
}

async function readsUnknownKeyOnce({ gateway, url }: RawSocket) {
  const before = await scriptCalls(gateway.world);
  const sent = request(MODELS, HOST + CLOSE + bearer(mintKey(randomBytes)));
  for (let count = 0; count < 5; count += 1) {
    assert.equal((await send(url, sent)).body, UNAUTHORIZED);
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
  const sent = request("GET /v1/models HTTP/1.0", bearer(key.value));
  assert.equal((await send(url, sent)).status, 200);
}

async function forgetsWhoStops({ url, key }: RawSocket) {
  const { hostname, port } = new URL(url);
  using connection = await Deno.connect({ hostname, port: Number(port) });
  const sent = request(MODELS, HOST + bearer(key.value));
  await connection.write(new TextEncoder().encode(sent));
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
