/**
 * Guarantee: requests of the page "Try it" have the session's own key, which no browser
 * gets and which ends with the session.
 */
import assert from "node:assert/strict";
import { hashKeyValue } from "@gateway/shared/keys/key";
import {
  hashKey,
  type KeyRecord,
  recordKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { TestClient } from "../../../client_fixture.ts";
import { startConsole, type TestConsole } from "../../../console_fixture.ts";
import type { KeyStore } from "../../../domain/keys/key_store.ts";
import { asNumber } from "../../../domain/store/redis.ts";
import { createStores } from "../../../domain/stores.ts";
import { TRY_LIMITS, tryKeyValue } from "../../../domain/try/key.ts";
import { signIn, tryForm } from "../../../forms_fixture.ts";
import { entries } from "../../../routes_fixture.ts";

const EMAIL = "ada@example.org";
/** How far the clocks of the console and of Redis may be apart. */
const SLACK_MS = 20_000;

/** A console with an owner. */
interface TryParts {
  site: TestConsole;
  redis: RedisLink;
  client: TestClient;
  ownerId: string;
}

/** A console with an owner, and the keys that reach the API. */
class TryKeys implements AsyncDisposable {
  /** The values of the keys of all requests, oldest first. */
  readonly #values: string[] = [];

  readonly site: TestConsole;
  readonly redis: RedisLink;
  /** The browser of the owner. */
  readonly client: TestClient;
  readonly ownerId: string;
  readonly #keys: Pick<KeyStore, "get">;

  private constructor(parts: TryParts) {
    const { site } = parts;
    this.site = site;
    this.redis = parts.redis;
    this.client = parts.client;
    this.ownerId = parts.ownerId;
    this.#keys = site.deps.keys;
    const { askApi } = site.deps;
    site.deps.askApi = (request, options) => {
      this.#values.push(options.key);
      return askApi(request, options);
    };
  }

  static async start(): Promise<TryKeys> {
    const site = await startConsole({ redisUser: "key-admin" });
    const redis = await site.server.connect();
    const client = await site.signedIn(EMAIL);
    const ownerId = await site.deps.owners.ensure(EMAIL);
    return new TryKeys({ site, redis, client, ownerId });
  }

  /** Sends a message from the page. Returns the value of its key. */
  async send(browser: TestClient = this.client): Promise<string> {
    const answer = await browser.post("/try", tryForm("Hello"));
    assert.equal(answer.status, 200, answer.text);
    return this.#values.at(-1) ?? assert.fail("nothing was sent");
  }

  /** The record behind a key value, as an edge finds it. */
  async record(value: string): Promise<KeyRecord | null> {
    const look = ["GET", hashKey(hashKeyValue(value))];
    const pair = await this.redis.command(look);
    const [keyId = "", ownerId = ""] = String(pair).split(":");
    return await this.#keys.get(ownerId, keyId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.site[Symbol.asyncDispose]();
  }
}

/** Everything in Redis as text. */
const DUMP = `
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
  table.insert(all, name .. redis.call('DUMP', name))
end
return table.concat(all)`;

Deno.test("API2, API6: a session has one key of Try it, of its own, which every key-admin knows", async () => {
  await using stage = await TryKeys.start();
  const { site, client } = stage;
  const value = await stage.send();
  assert.equal(await stage.send(), value, "the session keeps its key");
  const cookie = client.cookies.get("__Host-sid") ?? "";
  const session = await site.deps.sessions.find(cookie) ?? assert.fail();
  const from = { cookie, actor: { by: EMAIL, ip: "" } };
  const replica = await tryKeyValue(
    createStores(site.deps),
    { session, ownerId: session.ownerId },
    from,
  );
  assert.equal(replica, value, "another key-admin knows it");
  const other = await stage.send(await site.signedIn("grace@example.org"));
  assert.notEqual(other, value);
  const second = site.client();
  await signIn(second, EMAIL);
  assert.notEqual(
    await stage.send(second),
    value,
    "another session has another",
  );
});

Deno.test("API4, ASVS 14.2.1: the key of Try it has limits, lasts minutes, and is stored nowhere", async () => {
  await using stage = await TryKeys.start();
  const { redis, client, ownerId } = stage;
  const value = await stage.send();
  const key = await stage.record(value) ?? assert.fail("no record");
  assert.partialDeepStrictEqual(key, { ownerId, limits: TRY_LIMITS.key });
  assert.deepEqual(key.scopes, ["chat", "image", "speech", "video"]);
  assert.deepEqual(key.models, []);
  const lifeMs = (key.expiresAtMs ?? Infinity) - key.createdAtMs;
  assert.equal(lifeMs, TRY_LIMITS.keyMs);
  const names = [hashKey(key.hash), recordKey({ ownerId, keyId: key.id })];
  for (const name of names) {
    const leftMs = asNumber(await redis.command(["PTTL", name]));
    assert.ok(leftMs > 0 && leftMs <= lifeMs, `${name}: ${leftMs}`);
  }
  assert.match((await client.get("/keys")).text, /Create your first key/);
  const dump = await redis.command(["EVAL", DUMP, "0"]);
  assert.ok(!String(dump).includes(value));
});

Deno.test("a key of Try it that is about to end, was disabled or deleted is replaced", async () => {
  await using stage = await TryKeys.start();
  const { site, ownerId } = stage;
  const first = await stage.send();
  // Redis' clock, which decides, is somewhat ahead of this one.
  site.clock.nowMs += TRY_LIMITS.keyMs - TRY_LIMITS.renewMs - SLACK_MS;
  assert.equal(await stage.send(), first);
  site.clock.nowMs += 2 * SLACK_MS;
  assert.notEqual(await stage.send(), first);
  for (const what of ["disable", "delete"] as const) {
    const value = await stage.send();
    const { id: keyId } = await stage.record(value) ?? assert.fail(what);
    const actor = { by: "test", ip: "" };
    await site.deps.keys[what]({ ownerId, keyId, version: null, actor });
    assert.notEqual(await stage.send(), value, what);
  }
});

Deno.test("ASVS 7.4.1: when a session ends, its key of Try it is deleted, with an entry in the audit log", async () => {
  for (const end of ["/sign-out", "/account/sessions/end-all"]) {
    await using stage = await TryKeys.start();
    const { site, client, ownerId } = stage;
    const value = await stage.send();
    const { id } = await stage.record(value) ?? assert.fail(end);
    await client.post(end);
    assert.equal(await stage.record(value), null);
    const changes = (await entries(site, ownerId))
      .filter(({ keyId }) => keyId === id)
      .map(({ action, by, detail }) => [action, by, detail.slice(0, 6)]);
    assert.deepEqual(changes, [
      ["key.created", EMAIL, "until "],
      ["key.deleted", "end of the session", ""],
    ]);
  }
});
