import assert from "node:assert/strict";
import { hashKey, STORE_KEY } from "@gateway/shared/keys/record";
import { ApiError } from "@gateway/shared/openai/error";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../../tests/support/admission_fixture.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { createKeyLookup } from "./key_lookup.ts";

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

async function assertUnavailable(finding: Promise<unknown>): Promise<void> {
  await assert.rejects(
    finding,
    (error) =>
      error instanceof ApiError && error.status === 503 &&
      error.retryAfterMs === 1_000,
  );
}

Deno.test("find() reads a hash once, however many ask at the same time or later", async () => {
  await using world = await startNamedStore();
  await world.command("SET", hashKey("a"), `${KEY_ID}:${OWNER_ID}`);
  const { lookup, counted } = lookupOver(world.link);
  assert.equal(lookup.remembered("a"), undefined);
  const found = await Promise.all(
    Array.from({ length: 100 }, () => lookup.find("a", "")),
  );
  assert.deepEqual(found, Array(100).fill(PRINCIPAL));
  assert.deepEqual(await lookup.find("a", ""), PRINCIPAL);
  assert.deepEqual(lookup.remembered("a"), PRINCIPAL);
  assert.equal(counted.reads, 1);
  const [principal] = found;
  assert.ok(principal);
  lookup.forget(principal);
  assert.equal(lookup.remembered("a"), undefined);
  assert.deepEqual(await lookup.find("a", ""), PRINCIPAL);
  assert.equal(counted.reads, 2);
});

Deno.test("find() remembers unknown hashes for 30 s", async () => {
  await using world = await startNamedStore();
  const { lookup, counted } = lookupOver(world.link);
  assert.equal(await lookup.find("a", ""), null);
  assert.equal(lookup.remembered("a"), null);
  counted.nowMs = 29_999;
  assert.equal(await lookup.find("a", ""), null);
  assert.equal(counted.reads, 1);
  counted.nowMs = 30_000;
  assert.equal(lookup.remembered("a"), undefined);
  await lookup.find("a", "");
  assert.equal(counted.reads, 2);
});

Deno.test("find() throws 503 without Redis for a key that is not remembered, and reads it again afterwards", async () => {
  await using world = await startNamedStore();
  await world.command("SET", hashKey("a"), `${KEY_ID}:${OWNER_ID}`);
  const { lookup } = lookupOver(await world.open());
  await lookup.find("a", "");
  await world.redis.kill();
  assert.deepEqual(await lookup.find("a", ""), PRINCIPAL);
  await assertUnavailable(lookup.find("b", ""));
  assert.equal(lookup.remembered("b"), undefined, "an outage is not an answer");
});

Deno.test("without the store's name no key is unknown: 503, and nothing is remembered", async () => {
  await using world = await startNamedStore();
  const { lookup, log } = lookupOver(world.link);
  await world.command("FLUSHALL");
  await assertUnavailable(lookup.find("a", ""));
  assert.equal(lookup.remembered("a"), undefined);
  // A key that is there is one, whoever made it before stores had names.
  await world.command("SET", hashKey("a"), `${KEY_ID}:${OWNER_ID}`);
  assert.deepEqual(await lookup.find("a", ""), PRINCIPAL);
  await world.command("SET", STORE_KEY, "sto_b");
  assert.equal(await lookup.find("b", ""), null);
  assert.deepEqual(
    log.lines.map(({ event, fields }) => [event, fields.to]),
    [["key_store", "missing"], ["key_store", "present"]],
  );
});

Deno.test("another set of data in Redis makes it look up unknown keys again, but no others", async () => {
  await using world = await startNamedStore();
  await world.command("SET", hashKey("a"), `${KEY_ID}:${OWNER_ID}`);
  const { lookup } = lookupOver(world.link);
  await lookup.find("a", "");
  await lookup.find("b", "");
  await world.command("SET", STORE_KEY, "sto_b");
  await lookup.find("c", "");
  assert.deepEqual(lookup.remembered("a"), PRINCIPAL);
  assert.equal(lookup.remembered("b"), undefined);
});

Deno.test("find() rejects an entry that is not a pair of ids", async () => {
  await using world = await startNamedStore();
  const { lookup } = lookupOver(world.link);
  for (const value of ["", "key_a:own_b", `${KEY_ID}:${OWNER_ID}:x`]) {
    await world.command("SET", hashKey("a"), value);
    await assert.rejects(lookup.find("a", ""), /Malformed/);
  }
});
