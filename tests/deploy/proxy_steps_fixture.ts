/**
 * Guarantee: behind `deploy/proxy/Caddyfile`, which terminates TLS, the API streams,
 * a client is identified by its own address and not by one that it claims, and the
 * console protects browsers: cookies for its host only, forms from its own pages
 * only. `proxy_test.ts` runs this in its own process.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { text } from "node:stream/consumers";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { randomBytes } from "@gateway/shared/process/ids";
import { isWellFormedKey, mintKey } from "@gateway/shared/keys/key";
import {
  CHROMIUM_ARGS,
  findChromium,
} from "../../services/key-admin/browser/chromium_fixture.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { freePort } from "../support/local_server.ts";
import { startFrontProxy } from "../support/deployed/deployed_stores.ts";
import { waitFor } from "../support/wait_for.ts";
import { sendAmbiguous, SMUGGLED_PATH } from "./smuggling_fixture.ts";

const PROXY_ADDRESS = "127.0.0.1";
const UNKNOWN_KEYS_PER_SECOND = 3;
const EMAIL = "ada@example.org";
const PASSWORD = "correct horse battery staple";
const HSTS = "max-age=31536000";

interface Rig {
  cluster: Cluster;
  proxy: Awaited<ReturnType<typeof startFrontProxy>>;
  httpsPort: number;
  consoleUrl: string;
}

/** A request without the browser, to one of the proxy's names. */
interface Call {
  path: string;
  host?: string;
  method?: string;
  /** The client's address, any of 127.0.0.0/8. */
  from?: string;
  headers?: Record<string, string>;
  body?: string;
}

async function call(
  { proxy, httpsPort }: Rig,
  { host = "localhost", from = "127.0.0.1", headers, body, ...rest }: Call,
) {
  const sent = request({
    ...rest,
    host: PROXY_ADDRESS,
    port: httpsPort,
    servername: host,
    ca: proxy.ca,
    localAddress: from,
    agent: false,
    headers: { host: `${host}:${httpsPort}`, ...headers },
  });
  sent.end(body);
  const response: IncomingMessage = (await once(sent, "response"))[0];
  const { statusCode: status = 0 } = response;
  return { status, headers: response.headers, text: await text(response) };
}

function ask(rig: Rig, key: string, more: Partial<Call> = {}) {
  return call(rig, {
    path: "/v1/chat/completions",
    method: "POST",
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

async function apiStreams(rig: Rig): Promise<void> {
  const answer = await ask(rig, rig.cluster.state.api_key);
  assert.equal(answer.status, 200);
  assert.match(answer.text, /data: \[DONE\]\n\n$/);
  const { server, via, ...headers } = answer.headers;
  assert.equal(headers["strict-transport-security"], HSTS);
  assert.deepEqual([server, via], [undefined, undefined]);
}

async function clientIsItsOwnAddress(rig: Rig): Promise<void> {
  const guess = async (from: string, attempt: number) => {
    const headers = { "x-forwarded-for": `203.0.113.${attempt}` };
    return (await ask(rig, mintKey(randomBytes), { from, headers })).status;
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

async function consoleKnowsTheClient(rig: Rig): Promise<void> {
  const { headers, status } = await call(rig, {
    host: "console.localhost",
    path: "/sign-in",
    from: "127.0.0.9",
    headers: { "x-forwarded-for": "203.0.113.1" },
  });
  assert.equal(status, 200);
  const id = String(headers["x-request-id"]);
  const line = await waitFor(
    async () =>
      (await rig.cluster.logs()).split("\n").find((text) => text.includes(id)),
    { what: "the console's line of the request" },
  );
  assert.equal(JSON.parse(line).clientAddress, "127.0.0.9");
}

async function foreignFormIsRefused(rig: Rig): Promise<void> {
  const post = (origin: string) =>
    call(rig, {
      host: "console.localhost",
      path: "/sign-in",
      method: "POST",
      headers: { origin, "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ email: EMAIL, password: "wrong" }).toString(),
    });
  assert.equal((await post("https://evil.example")).status, 403);
  // The service's own name, not the one that browsers use.
  assert.equal((await post(rig.cluster.state.console_url)).status, 403);
  assert.notEqual((await post(rig.consoleUrl)).status, 403);
}

async function nothingIsSmuggled(rig: Rig): Promise<void> {
  const { proxy, httpsPort, cluster } = rig;
  const key = cluster.state.api_key;
  await sendAmbiguous({ port: httpsPort, ca: proxy.ca, key });
  // The edge logs each requested path, so this line comes last.
  const path = "/v1/asked-for";
  assert.equal((await ask(rig, key, { path })).status, 404);
  const logs = await waitFor(async () => {
    const text = await cluster.logs();
    return text.includes(path) ? text : undefined;
  }, { what: "the edge's line of the last request" });
  assert.ok(!logs.includes(SMUGGLED_PATH), "the edge was asked for it");
}

async function signUp(page: Page, { cluster }: Rig): Promise<void> {
  const link = cluster.state.setup_url ?? assert.fail("no set-up link");
  const response = await page.goto(link);
  const headers = await response?.allHeaders() ?? {};
  assert.equal(headers["strict-transport-security"], HSTS);
  assert.match(headers["content-security-policy"] ?? "", /default-src 'none'/);
  await page.getByLabel("E-mail").fill(EMAIL);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Create account" }).click();
  await page.waitForURL("**/keys");
}

async function assertCookies(context: BrowserContext): Promise<void> {
  const cookies = await context.cookies();
  assert.ok(cookies.some(({ name }) => name === "__Host-sid"));
  for (const { name, secure, httpOnly, domain, path } of cookies) {
    assert.match(name, /^__Host-/);
    assert.ok(secure && httpOnly, name);
    assert.deepEqual([domain, path], ["console.localhost", "/"], name);
  }
}

async function createKey(page: Page): Promise<string> {
  await page.getByRole("link", { name: "Create key" }).first().click();
  await page.getByLabel("Description").fill("From behind the proxy");
  await page.getByRole("button", { name: "Create key" }).click();
  const value = await page.locator("#value").innerText();
  assert.ok(isWellFormedKey(value));
  return value;
}

async function consoleInABrowser(rig: Rig): Promise<void> {
  const executablePath = findChromium() ?? assert.fail("no Chromium");
  const browser = await chromium.launch({
    executablePath,
    args: CHROMIUM_ARGS,
  });
  try {
    // Every other call of this test checks the certificate.
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    const page = await context.newPage();
    const complaints: string[] = [];
    page.on("console", (message) => {
      if (message.type() === "error") complaints.push(message.text());
    });
    await signUp(page, rig);
    await assertCookies(context);
    const key = await createKey(page);
    assert.equal((await ask(rig, key)).status, 200);
    assert.deepEqual(complaints, []);
  } finally {
    await browser.close();
  }
}

Deno.test("behind the front proxy", async (t) => {
  const [httpsPort, edgeReadyPort] = [freePort(), freePort()];
  const consoleUrl = `https://console.localhost:${httpsPort}`;
  await using cluster = await startCluster({
    env: {
      PUBLIC_URL: consoleUrl,
      TRUSTED_PROXIES: PROXY_ADDRESS,
      UNKNOWN_KEYS_PER_SECOND: String(UNKNOWN_KEYS_PER_SECOND),
      READY_PORT: String(edgeReadyPort),
    },
  });
  const portOf = (url: string) => Number(new URL(url).port);
  await using proxy = await startFrontProxy({
    httpsPort,
    edgeReadyPort,
    edgePort: portOf(cluster.state.edge_url),
    consolePort: portOf(cluster.state.console_url),
  });
  const rig = { cluster, proxy, httpsPort, consoleUrl };
  const steps: [name: string, step: (rig: Rig) => Promise<void>][] = [
    ["the API streams over TLS", apiStreams],
    ["a client is identified by its own address", clientIsItsOwnAddress],
    ["the console identifies a client the same way", consoleKnowsTheClient],
    ["a foreign form is refused", foreignFormIsRefused],
    ["ASVS 4.2.1: no request hides in another", nothingIsSmuggled],
    ["the console in a browser", consoleInABrowser],
  ];
  for (const [name, step] of steps) await t.step(name, () => step(rig));
});
