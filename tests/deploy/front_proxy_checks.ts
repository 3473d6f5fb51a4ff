// Promise: behind `deploy/proxy/Caddyfile`, which terminates TLS, the API streams,
// a client is identified by its own address and not by one that it claims, and the
// console protects browsers: cookies for its host only, forms from its own pages only.
import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { text } from "node:stream/consumers";
import { connect } from "node:tls";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { amountOf } from "../support/amount.ts";
import { callApi, postChat } from "../support/chat_request.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { simulates } from "../support/gateway/simulator.ts";
import { formOf, recording } from "../e2e/media/recording_fixture.ts";
import { startFrontProxy } from "../support/deployed/deployed_stores.ts";
import { freePort } from "../support/servers/local_server.ts";
import { makeTempDir, runProcess } from "../support/process.ts";
import { waitFor } from "../support/wait_for.ts";

const PROXY_ADDRESS = "127.0.0.1";
const CONSOLE = "console.localhost";
const UNKNOWN_KEYS_PER_SECOND = 3;
/**
 * A proxy that kept connections for its checks let one of 1,600 requests go astray, so
 * one or two of these, or five or six.
 */
const CONNECTIONS = 60;
const REQUESTS_PER_CONNECTION = amountOf({ usual: 25, full: 150 });
const HSTS = "max-age=31536000";
/** Far less than a model server may take for its first token. */
const LEFT_MS = 10_000;

/** A request to one of the proxy's names. */
interface ProxyRequest {
  path: string;
  host?: string;
  /** The client's address, any of 127.0.0.0/8. */
  from?: string;
  headers?: Record<string, string>;
  /** The body of a POST. */
  body?: string;
}

/** A gateway behind the front proxy, and its clients. */
class FrontDoor {
  /** The base URL of the API, as its callers know it. */
  readonly api: string;
  /** The URL of the console, as browsers know it. */
  readonly console: string;
  /** The first key of the gateway. */
  readonly key: string;

  constructor(
    readonly gateway: LaunchedGateway,
    /** The certificate of the authority that the proxy has its own from. */
    readonly ca: string,
    readonly httpsPort: number,
  ) {
    this.api = `https://localhost:${httpsPort}/v1`;
    this.console = `https://${CONSOLE}:${httpsPort}`;
    this.key = gateway.state.api_key ?? "";
  }

  /** Sends a request on a connection of its own. */
  async call(
    { path, host = "localhost", from = "127.0.0.1", headers, body }:
      ProxyRequest,
  ) {
    const outgoing = request({
      path,
      method: body === undefined ? "GET" : "POST",
      host: PROXY_ADDRESS,
      port: this.httpsPort,
      servername: host,
      ca: this.ca,
      localAddress: from,
      agent: false,
      headers: { host: `${host}:${this.httpsPort}`, ...headers },
    });
    outgoing.end(body);
    const response: IncomingMessage = (await once(outgoing, "response"))[0];
    const { statusCode: status = 0 } = response;
    return { status, headers: response.headers, text: await text(response) };
  }

  /** Asks for a stream of a chat with a key. */
  ask(key: string, more: Partial<ProxyRequest> = {}) {
    return this.call({
      path: "/v1/chat/completions",
      body: JSON.stringify({
        model: "neutral-3.7-plus",
        messages: [{ role: "user", content: "Hello." }],
        stream: true,
      }),
      ...more,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        ...more.headers,
      },
    });
  }
}

async function streamsOverTls(door: FrontDoor): Promise<void> {
  const answer = await door.ask(door.key);
  assert.equal(answer.status, 200);
  assert.match(answer.text, /data: \[DONE\]\n\n$/);
  const { server, via, ...headers } = answer.headers;
  assert.equal(headers["strict-transport-security"], HSTS);
  assert.deepEqual([server, via], [undefined, undefined]);
}

/** More than an edge holds of it, so that it flows. */
const RECORDING_BYTES = 3 * 1_024 ** 2;

async function takesUpload(door: FrontDoor): Promise<void> {
  using client = Deno.createHttpClient({ caCerts: [door.ca] });
  const form = formOf(
    ["model", "simulated-transcription-1"],
    ["file", new File([recording(RECORDING_BYTES)], "long.wav")],
  );
  const response = await fetch(`${door.api}/audio/transcriptions`, {
    method: "POST",
    headers: { authorization: `Bearer ${door.key}` },
    body: form,
    client,
  });
  const answer = await response.text();
  assert.equal(response.status, 200, answer);
  assert.equal(typeof JSON.parse(answer).text, "string");
}

async function endsLeftRequest(door: FrontDoor): Promise<void> {
  const body = { messages: simulates("first token 600000 ms") };
  for (const http2 of [false, true]) {
    using client = Deno.createHttpClient({ caCerts: [door.ca], http2 });
    const leaving = new AbortController();
    postChat(door.api, door.key, { body, client, signal: leaving.signal })
      .catch(() => {}); // It leaves before an answer.
    await door.gateway.runs("chat-worker", 1);
    leaving.abort();
    await door.gateway.runs("chat-worker", 0, LEFT_MS);
  }
}

async function takesNoRequestForCheck(door: FrontDoor): Promise<void> {
  using client = Deno.createHttpClient({ caCerts: [door.ca], http2: false });
  const askOften = async () => {
    for (let left = REQUESTS_PER_CONNECTION; left > 0; left--) {
      const answer = await callApi(`${door.api}/models`, door.key, {
        client,
      });
      assert.equal(answer.status, 200, await answer.text());
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, askOften));
}

async function identifiesClient(door: FrontDoor): Promise<void> {
  const guess = async (from: string, attempt: number) => {
    const headers = { "x-forwarded-for": `203.0.113.${attempt}` };
    return (await door.ask(mintKey(randomBytes), { from, headers })).status;
  };
  const guesses = Array.from(
    { length: 5 * UNKNOWN_KEYS_PER_SECOND },
    (_, attempt) => guess("127.0.0.7", attempt),
  );
  // Another client does not have to wait for the first one's guesses.
  assert.equal(await guess("127.0.0.8", 0), 401);
  const statuses = await Promise.all(guesses);
  assert.ok(statuses.includes(401) && statuses.includes(429), `${statuses}`);
}

async function identifiesBrowser(door: FrontDoor): Promise<void> {
  const { headers, status } = await door.call({
    host: CONSOLE,
    path: "/sign-in",
    from: "127.0.0.9",
    headers: { "x-forwarded-for": "203.0.113.1" },
  });
  assert.equal(status, 200);
  const id = String(headers["x-request-id"]);
  const line = await waitFor(async () => {
    const lines = (await door.gateway.logs()).split("\n");
    return lines.find((line) => line.includes(id));
  }, { what: "the console's line of the request" });
  assert.equal(JSON.parse(line).clientAddress, "127.0.0.9");
}

async function keepsCookies(door: FrontDoor): Promise<void> {
  const { console_url, setup_url } = door.gateway.state;
  const { pathname } = new URL(setup_url ?? assert.fail("no set-up link"));
  const page = await door.call({ host: CONSOLE, path: pathname });
  assert.equal(page.headers["strict-transport-security"], HSTS);
  const policy = page.headers["content-security-policy"] ?? "";
  assert.match(String(policy), /default-src 'none'/);
  const form = {
    email: "ada@example.org",
    new_password: "correct horse battery staple",
  };
  const type = "application/x-www-form-urlencoded";
  const submit = (origin: string) =>
    door.call({
      host: CONSOLE,
      path: pathname,
      headers: { origin, "content-type": type },
      body: new URLSearchParams(form).toString(),
    });
  // The service's own name is not the one that browsers use.
  assert.equal((await submit(console_url)).status, 403);
  const signedUp = await submit(door.console);
  assert.equal(signedUp.status, 303, signedUp.text);
  const cookies = signedUp.headers["set-cookie"] ?? [];
  assert.ok(cookies.some((cookie) => cookie.startsWith("__Host-sid=")));
  for (const cookie of cookies) {
    assert.match(cookie, /^__Host-(?=.*; Path=\/)(?=.*; HttpOnly).*; Secure/);
    assert.doesNotMatch(cookie, /domain/i);
  }
  const pairs = cookies.map((cookie) => cookie.split(";")[0]);
  const headers = { cookie: pairs.join("; ") };
  const keys = await door.call({ host: CONSOLE, path: "/keys", headers });
  assert.equal(keys.status, 200);
}

/** Ports of a gateway that stands behind the front proxy. */
export class FrontDoorPorts {
  readonly https = freePort();
  readonly ready = freePort();

  /** The variables of the services, which know what browsers call the console. */
  get env(): Record<string, string> {
    return {
      PUBLIC_URL: `https://${CONSOLE}:${this.https}`,
      TRUSTED_PROXIES: PROXY_ADDRESS,
      UNKNOWN_KEYS_PER_SECOND: String(UNKNOWN_KEYS_PER_SECOND),
      READY_PORT: String(this.ready),
    };
  }
}

/** Puts the front proxy before a gateway with the variables of these ports. */
export async function checkFrontProxy(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
  ports: FrontDoorPorts,
): Promise<void> {
  const { edge_url, console_url } = gateway.state;
  await using proxy = await startFrontProxy({
    httpsPort: ports.https,
    edgeReadyPort: ports.ready,
    edgePort: Number(new URL(edge_url).port),
    consolePort: Number(new URL(console_url).port),
  });
  const door = new FrontDoor(gateway, proxy.ca, ports.https);
  await t.step("the API streams over TLS", () => streamsOverTls(door));

  await t.step("an upload passes whole", () => takesUpload(door));

  await t.step(
    "a client that leaves ends its request",
    () => endsLeftRequest(door),
  );

  await t.step(
    "no request is taken for a check of readiness",
    () => takesNoRequestForCheck(door),
  );

  await t.step(
    "a client is identified by its own address",
    () => identifiesClient(door),
  );

  await t.step(
    "the console identifies a client the same way",
    () => identifiesBrowser(door),
  );

  await t.step(
    "the console's cookies are for its host only",
    () => keepsCookies(door),
  );
}

/** Makes a certificate for both names, and its key. */
async function makeCertificate(folder: string) {
  const certificate = `${folder}/cert.pem`;
  const key = `${folder}/key.pem`;
  const names = `subjectAltName=DNS:localhost,DNS:${CONSOLE}`;
  const kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"];
  const subjectArgs = ["-subj", "/CN=localhost", "-addext", names];
  const files = ["-keyout", key, "-out", certificate];
  await runProcess("openssl", ["req", ...kind, ...subjectArgs, ...files]);
  return { certificate, key };
}

/**
 * The front proxy takes a pair of files in place of Caddy's authority, as
 * docs/install.md has it.
 */
export async function checkOwnCertificate(): Promise<void> {
  await using folder = await makeTempDir();
  const tls = await makeCertificate(folder.path);
  const httpsPort = freePort();
  await using proxy = await startFrontProxy({
    httpsPort,
    edgePort: freePort(),
    edgeReadyPort: freePort(),
    consolePort: freePort(),
    tls,
  });
  for (const servername of ["localhost", CONSOLE]) {
    const address = { host: PROXY_ADDRESS, port: httpsPort };
    const socket = connect({ ...address, servername, ca: proxy.ca });
    await once(socket, "secureConnect");
    assert.ok(socket.authorized, `${socket.authorizationError}`);
    const closed = once(socket, "close");
    socket.destroy();
    await closed;
  }
}
