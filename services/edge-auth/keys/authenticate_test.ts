import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { hashKey, STORE_KEY } from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisWorld } from "../../../tests/support/admission_fixture.ts";
import { startRedisWorld } from "../../../tests/support/admission_fixture.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { edgeLink } from "../limits/lone_edge_fixture.ts";
import { authenticate, createKeyLookup } from "./authenticate.ts";

const KEY = mintKey(randomBytes);
const ADDRESS = () => "192.0.2.1";
const KEY_ID = `key_${"k".repeat(20)}`;
const OWNER_ID = `own_${"o".repeat(20)}`;
const PRINCIPAL = { keyId: KEY_ID, ownerId: OWNER_ID };

function lookupOver(redis: RedisLink) {
  const counted = { reads: 0, nowMs: 0 };
  const log = createRecordingLog();
  const link: RedisLink = {
    ...redis,
    get state() {
      return redis.state;
    },
    evalScript(script, keys, args, options) {
      counted.reads += 1;
      return redis.evalScript(script, keys, args, {
        ...options,
        deadlineMs: 900,
      });
    },
  };
  const lookup = createKeyLookup({
    redis: link,
    now: () => counted.nowMs,
    log,
    unknownPerSecond: 20,
  });
  return { lookup, counted, log };
}

/** A server with data of ours, or it would say nothing of any key. */
async function startNamedStore(): Promise<RedisWorld> {
  const world = await startRedisWorld();
  await world.command("SET", STORE_KEY, "sto_a");
  return world;
}

Deno.test("find() reads a hash once, however many ask at the same time or later", async () => {
  await using world = await startNamedStore();
  await world.command("SET", hashKey("a"), `${KEY_ID}:${OWNER_ID}`);
  const { lookup, counted } = lookupOver(await edgeLink(world));
  const found = await Promise.all(
    Array.from({ length: 100 }, () => lookup.find("a", ADDRESS)),
  );
  assert.deepEqual(found, Array(100).fill(PRINCIPAL));
  assert.deepEqual(await lookup.find("a", ADDRESS), PRINCIPAL);
  assert.equal(counted.reads, 1);
  const [principal] = found;
  assert.ok(principal);
  lookup.forget(principal);
  assert.deepEqual(await lookup.find("a", ADDRESS), PRINCIPAL);
  assert.equal(counted.reads, 2);
});

Deno.test("find() remembers unknown hashes for 30 s", async () => {
  await using world = await startNamedStore();
  const { lookup, counted } = lookupOver(await edgeLink(world));
  assert.equal(await lookup.find("a", ADDRESS), null);
  counted.nowMs = 29_999;
  assert.equal(await lookup.find("a", ADDRESS), null);
  assert.equal(counted.reads, 1);
  counted.nowMs = 30_000;
  await lookup.find("a", ADDRESS);
  assert.equal(counted.reads, 2);
});

Deno.test("find() rejects an entry that is not a pair of ids", async () => {
  await using world = await startNamedStore();
  const { lookup } = lookupOver(await edgeLink(world));
  for (const value of ["", "key_a:own_b", `${KEY_ID}:${OWNER_ID}:x`]) {
    await world.command("SET", hashKey("a"), value);
    await assert.rejects(lookup.find("a", ADDRESS), /Malformed/);
  }
});

Deno.test("authenticate() looks up only well-formed keys", async () => {
  const unknown = mintKey(randomBytes);
  const asked: string[] = [];
  const lookup = {
    find(hash: string, address: () => string) {
      asked.push(`${hash} from ${address()}`);
      return Promise.resolve(hash === hashKeyValue(KEY) ? PRINCIPAL : null);
    },
  };
  const found = await authenticate(`Bearer ${KEY}`, ADDRESS, lookup);
  assert.equal(found, PRINCIPAL);
  for (const header of [`Bearer ${unknown}`, "Bearer sk-wrong", ""]) {
    const refused = authenticate(header, ADDRESS, lookup);
    await assert.rejects(refused, { status: 401 });
  }
  assert.deepEqual(
    asked,
    [KEY, unknown].map((value) => `${hashKeyValue(value)} from ${ADDRESS()}`),
  );
});
