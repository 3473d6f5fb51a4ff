// Promise: the rules of the public API hold on every path, including those that are
// added later: the routes are read from the code.
import assert from "node:assert/strict";
import { ROUTES } from "../../services/edge-auth/app.ts";
import { KeyStore } from "../../services/key-admin/domain/keys/key_store.ts";
import { SessionStore } from "../../services/key-admin/domain/sign_in/sessions.ts";
import { wallNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { DEFAULT_MODEL_ID, ModelCatalog } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { chat } from "../support/gateway/open.ts";
import {
  hello,
  scriptedModelServer,
} from "../support/model_servers/scripted_model_server.ts";

/**
 * A path and body for each route but the description of the API, which is public. One
 * that the door has and this table has not fails the tests.
 */
type Ask = { path: string; body?: object };
const REQUESTS: Record<string, Ask> = {
  "POST chat": {
    path: "/v1/chat/completions",
    body: {
      model: DEFAULT_MODEL_ID,
      messages: [{ role: "user", content: "ping" }],
      max_tokens: 1,
    },
  },
  "POST messages": { path: "/v1/messages", body: { model: "none" } },
  "POST count_tokens": {
    path: "/v1/messages/count_tokens",
    body: { model: "none" },
  },
  "GET responses": { path: "/v1/responses" },
  "POST responses": { path: "/v1/responses", body: { model: "none" } },
  "POST input_tokens": {
    path: "/v1/responses/input_tokens",
    body: { model: "none" },
  },
  "POST compact": { path: "/v1/responses/compact", body: { model: "none" } },
  "GET response": { path: "/v1/responses/resp_none" },
  "POST response": { path: "/v1/responses/resp_none/cancel", body: {} },
  "POST completions": { path: "/v1/completions", body: { model: "none" } },
  "POST embeddings": { path: "/v1/embeddings", body: { model: "none" } },
  "POST rerank": { path: "/v1/rerank", body: { model: "none" } },
  "POST speech": { path: "/v1/audio/speech", body: { model: "none" } },
  "POST image": { path: "/v1/images/generations", body: { model: "none" } },
  "POST image_edit": { path: "/v1/images/edits", body: { model: "none" } },
  "POST transcription": { path: "/v1/audio/transcriptions", body: {} },
  "POST translation": { path: "/v1/audio/translations", body: {} },
  "GET video": { path: "/v1/videos" },
  "POST video": { path: "/v1/videos", body: { model: "none" } },
  "GET video_job": { path: "/v1/videos/video_none" },
  "GET video_content": { path: "/v1/videos/video_none/content" },
  "GET answer": { path: `/v1/answers/req_${"0".repeat(32)}` },
  "POST video_remix": { path: "/v1/videos/video_none/remix", body: {} },
  "GET models": { path: "/v1/models" },
  "GET model": { path: `/v1/models/${DEFAULT_MODEL_ID}` },
};
/** Not there, and no less closed. */
const UNKNOWN = ["/v1", "/v1/", "/v1/nope", "/v1/videos/a/b"];
/** What only the console has, under any name. */
const CONSOLE = ["/", "/sign-in", "/keys", "/account", "/audit.csv", "/link/x"];

/** Asks every route, with the body it wants, and says what came back. */
async function* askAll(
  { edge: { baseUrl } }: LimitedGateway,
  headers: Record<string, string>,
  query = "",
) {
  const paths = UNKNOWN.map((path): [string, Ask] => [path, { path }]);
  for (const [route, request] of [...Object.entries(REQUESTS), ...paths]) {
    const { path, body } = request;
    const response = await fetch(new URL(path + query, baseUrl), {
      headers: { "content-type": "application/json", ...headers },
      redirect: "manual",
      ...body && { method: "POST", body: JSON.stringify(body) },
    });
    yield { route, response, text: await response.text() };
  }
}

async function assertAll401(...args: Parameters<typeof askAll>) {
  for await (const { route, response, text } of askAll(...args)) {
    assert.equal(response.status, 401, `${route}: ${text}`);
  }
}

Deno.test("every route of the API has a request here", () => {
  const routes = ROUTES.flatMap(({ name, handlers }) =>
    Object.keys(handlers).filter((method) => /^(GET|POST)$/.test(method))
      .map((method) => `${method} ${name}`)
  );
  assert.deepEqual(routes.sort(), Object.keys(REQUESTS).sort());
});

/** A gateway, and what one owner could send to it. */
interface SignedIn {
  gateway: LimitedGateway;
  key: TestKey;
  /** The header with the key. */
  bearer: { authorization: string };
  /** The cookie of a session of the console. */
  session: string;
}

Deno.test("what holds on every route of the API", async (t) => {
  await using gateway = await startGateway("limited");
  const key = await gateway.addKey();
  const bearer = { authorization: `Bearer ${key.value}` };
  const redis = gateway.world.link;
  const keys = new KeyStore({ redis, writer: redis, randomBytes });
  const base = { redis, randomBytes, keys, now: wallNow };
  const client = { ip: "192.0.2.1", userAgent: "" };
  const session = await new SessionStore(base).start(key.ownerId, client);
  const signedIn: SignedIn = { gateway, key, bearer, session };

  await t.step(
    "API5: a session of the console is 401",
    () => refusesSessions(signedIn),
  );

  await t.step(
    "API2, ASVS 14.2.1: a key in the address is 401",
    () => refusesKeyInAddress(signedIn),
  );

  await t.step(
    "ASVS 4.1.2: nothing is redirected, not to TLS",
    () => redirectsNothing(signedIn),
  );

  await t.step(
    "ASVS 4.1.1, 14.3.2, API8: the headers of answers",
    () => sendsSafeHeaders(signedIn),
  );

  await t.step(
    "ASVS 3.5.4, API9: no pages of the console",
    () => hasNoConsole(signedIn),
  );

  await t.step(
    "ASVS 15.3.1: models without their backends",
    () => hidesBackends(signedIn),
  );
});

Deno.test("API7 (SSRF): no address that a caller names is ever fetched", async () => {
  let fetched = 0;
  const where = { hostname: "127.0.0.1", port: 0, onListen: () => {} };
  await using images = Deno.serve(where, () => {
    fetched++;
    return new Response("an image");
  });
  const model = scriptedModelServer(hello);
  const models = catalogFromSimulator("http://127.0.0.1:9/v1").values();
  const seeing = models.map((entry) => (
    { ...entry, vision: true as const, fetches_urls: true }
  ));
  const door = { catalog: new ModelCatalog([...seeing]) };
  await using gateway = await startGateway("open", { door });
  await gateway.addWorker(model);
  const url = `http://127.0.0.1:${images.addr.port}/a.png`;
  const content = [
    { type: "text", text: `Read ${url}` },
    { type: "image_url", image_url: { url } },
  ];
  const messages = [{ role: "user", content }];
  const response = await chat(gateway.edge, { messages });
  assert.equal(response.status, 200, await response.text());
  const [call] = model.calls;
  assert.match(JSON.stringify(call?.request), new RegExp(url), "passed on");
  assert.equal(fetched, 0);
});

async function refusesSessions({ gateway, session }: SignedIn) {
  const ways: Record<string, string>[] = [
    { cookie: `__Host-sid=${session}` },
    { cookie: `sid=${session}` },
    { authorization: `Bearer ${session}` },
    { authorization: `Session ${session}` },
  ];
  for (const headers of ways) await assertAll401(gateway, headers);
}

async function refusesKeyInAddress({ gateway, key }: SignedIn) {
  for (const name of ["api_key", "key", "access_token", "authorization"]) {
    await assertAll401(gateway, {}, `?${name}=${key.value}`);
  }
}

async function redirectsNothing({ gateway, bearer }: SignedIn) {
  const ways: Record<string, string>[] = [
    {},
    { "x-forwarded-proto": "http", "x-forwarded-ssl": "off" },
    { "upgrade-insecure-requests": "1" },
    { ...bearer, "x-forwarded-proto": "http" },
  ];
  for (const headers of ways) {
    for await (const { route, response } of askAll(gateway, headers)) {
      assert.ok(response.status < 300 || response.status >= 400, route);
      assert.equal(response.headers.get("location"), null, route);
    }
  }
}

async function sendsSafeHeaders({ gateway, bearer }: SignedIn) {
  for (const headers of [{}, bearer]) {
    for await (const { route, response, text } of askAll(gateway, headers)) {
      const header = (name: string) => response.headers.get(name) ?? "";
      assert.equal(header("content-type"), "application/json; charset=utf-8");
      assert.equal(header("cache-control"), "no-store", route);
      assert.equal(header("x-content-type-options"), "nosniff", route);
      assert.equal(header("access-control-allow-origin"), "", route);
      assert.ok(!/\bat \w+ \(|redis|nats:/i.test(text), text);
    }
  }
}

async function hasNoConsole({ gateway, bearer, session }: SignedIn) {
  for (const path of CONSOLE) {
    const url = new URL(path, gateway.edge.baseUrl);
    const headers = { ...bearer, cookie: `__Host-sid=${session}` };
    const response = await fetch(url, { headers, redirect: "manual" });
    assert.equal(response.status, 404, path);
    assert.ok(!(await response.text()).includes("<html"), path);
  }
}

async function hidesBackends({ gateway, key }: SignedIn) {
  const list = await (await gateway.get(key, "models")).json();
  for (const model of list.data) {
    const names = Object.keys(model).sort();
    assert.deepEqual(names, ["created", "id", "object", "owned_by"]);
  }
}
