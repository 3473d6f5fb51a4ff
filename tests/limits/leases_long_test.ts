// Promise, with processes and clocks as they are: a stream keeps its slot as long as it
// runs; a killed edge gives its slots back in 30 s and settles nothing twice; one that
// stood still for longer settles late, once. Limits of an owner hold on every edge.
import assert from "node:assert/strict";
import { hashKeyValue } from "@gateway/shared/keys/key";
import {
  hashKey,
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimitsKey,
  type Principal,
} from "@gateway/shared/keys/record";
import { LEASE_MS } from "../../services/edge-auth/limits/scripts.ts";
import { readState, usageCounted } from "../support/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { LONG } from "../support/gateway/simulator.ts";
import { sleep, until } from "../support/wait_for.ts";

interface StoredKey extends Principal {
  value: string;
}

const [PAUSED, STEADY, KILLED] = [0, 1, 2];
const EDGES = 3;
const SLOTS_EACH = 25;
const TOKENS_PER_DAY = 100_000_000;
/**
 * A lease was taken a moment before the clock of the test began, and is asked for with
 * some delay.
 */
const SLACK_MS = 2_000;
const POLL_MS = 500;
/** Beyond the life of a lease, so that the pause outlasts it. */
const PAUSE_MS = LEASE_MS + 2_000;
const QUIET_MS = 1_500;
const START_MS = 10_000;

Deno.test("leases over 30 seconds: a steady, a paused and a killed edge", async (t) => {
  const env = { SLOTS: "4096" };
  await using gateway = await startGateway("launched", { edges: EDGES, env });
  await t.step("limits of an owner hold for all keys together", async () => {
    const email = "ada@example.org";
    const make = () => gateway.createKey(`--owner=${email}`);
    const keys = [await make(), await make()];
    await gateway.owners("limits", email, "--rpm=5");
    for (let number = 0; number < 6; number += 1) {
      const { key = "" } = keys[number % 2] ?? {};
      const answer = await gateway.ask(key, { edge: number % EDGES });
      assert.equal(answer.status, number < 5 ? 200 : 429);
      const text = await answer.text();
      if (number === 5) assert.match(text, /for your account/);
    }
  });
  const redis = await gateway.openRedis();
  const command = (...args: string[]) => redis.command(args);
  const keyOf = async (owner: string, concurrency: number) => {
    const { key: value } = await gateway.createKey(
      `--owner=${owner}@example.org`,
      `--concurrency=${concurrency}`,
      `--tokens-per-day=${TOKENS_PER_DAY}`,
    );
    const found = await command("GET", hashKey(hashKeyValue(value)));
    const [keyId = "", ownerId = ""] = String(found).split(":");
    return { value, keyId, ownerId };
  };
  const steady = await keyOf("S", 1);
  const paused = await keyOf("P", 1);
  const one = await keyOf("K", SLOTS_EACH);
  const two = await keyOf("K", SLOTS_EACH);
  const killed = [one, two];
  const ofOwner = ownerLimitsKey(one.ownerId);
  await command("HSET", ofOwner, "conc", String(2 * SLOTS_EACH));
  const onBoth = <T>(act: (key: StoredKey) => Promise<T>): Promise<T[]> =>
    Promise.all(
      Array.from({ length: SLOTS_EACH }, () => killed.map(act)).flat(),
    );

  const client = new AbortController();
  const ends: Promise<unknown>[] = [];
  const run = async (key: StoredKey, edge: number) => {
    const { signal } = client;
    const response = await until(async () => {
      const answer = await gateway.ask(key.value, { edge, body: LONG, signal });
      if (answer.status === 200) return answer;
      await answer.body?.cancel();
    }, START_MS);
    ends.push(response.text().catch(() => null));
  };
  /** A busy machine may not ask Redis in time: then nothing was consumed. */
  const tryOn = async (key: StoredKey): Promise<number> => {
    const response = await gateway.ask(key.value, { edge: STEADY });
    const { error } = await response.json();
    return error?.code === "service_unavailable"
      ? await tryOn(key)
      : response.status;
  };
  const usage = async (key: StoredKey) => {
    const counted = await usageCounted({ command }, key);
    const { requests, promptTokens, completionTokens } = counted;
    return { requests, tokens: promptTokens + completionTokens };
  };
  const state = async (key: StoredKey) =>
    await readState({ command }, limiterKey(key)) ?? assert.fail();
  const signal = (edge: number, name: Deno.Signal) =>
    Deno.kill(gateway.pid("edge-auth", edge), name);

  await run(steady, STEADY);
  await run(paused, PAUSED);
  await onBoth((key) => run(key, KILLED));
  for (const key of killed) {
    const leases = () => command("ZCARD", leaseKey(key));
    await until(async () => await leases() === SLOTS_EACH);
  }
  const reserved = [await state(one), await state(two)];
  const startedAtMs = performance.now();
  signal(PAUSED, "SIGSTOP");
  signal(KILLED, "SIGKILL");

  /** When each was let in again. */
  const freeAfterMs = new Map<StoredKey, number>();
  let steadyRefusals = 0;
  await t.step("slots are held for the life of a lease", async () => {
    while (performance.now() - startedAtMs < PAUSE_MS) {
      for (const key of [paused, one, two]) {
        if (freeAfterMs.has(key)) continue;
        const status = await tryOn(key);
        const elapsedMs = performance.now() - startedAtMs;
        if (status === 200) freeAfterMs.set(key, elapsedMs);
        else assert.equal(status, 429);
      }
      assert.equal(await tryOn(steady), 429);
      steadyRefusals += 1;
      await sleep(POLL_MS);
    }
    assert.ok(steadyRefusals > 10);
    for (const key of [paused, one, two]) {
      const freeMs = freeAfterMs.get(key) ?? NaN;
      const isInTime = freeMs > LEASE_MS - 2 * SLACK_MS - POLL_MS &&
        freeMs <= LEASE_MS + SLACK_MS;
      assert.ok(isInTime, `free after ${freeMs} ms`);
    }
  });

  await t.step("killed: all slots of key and owner are back", async () => {
    assert.deepEqual(new Set(await onBoth(tryOn)), new Set([200]));
  });

  await t.step("paused: it settles late, once", async () => {
    signal(PAUSED, "SIGCONT");
    await until(async () => (await usage(paused)).requests === 2, 10_000);
    await sleep(QUIET_MS);
    const counted = await usage(paused);
    assert.equal(counted.requests, 2, "the stream and the one after it");
    assert.equal((await state(paused)).dayTokens, counted.tokens);
    const ofOwner = ownerLeaseKey(paused.ownerId);
    for (const name of [leaseKey(paused), ofOwner]) {
      assert.equal(await command("ZCARD", name), 0);
    }
  });

  await t.step("killed: what was reserved stays", async () => {
    for (const [index, key] of killed.entries()) {
      const later = 1 + SLOTS_EACH;
      await until(async () => (await usage(key)).requests >= later);
      const counted = await usage(key);
      assert.equal(counted.requests, later);
      const before = reserved[index]?.dayTokens ?? assert.fail();
      assert.ok(before > SLOTS_EACH * LONG.max_tokens);
      assert.equal((await state(key)).dayTokens, before + counted.tokens);
    }
  });

  await t.step("steady: the stream ends, and its slot is free", async () => {
    client.abort();
    await Promise.all(ends);
    await until(async () => (await usage(steady)).requests === 1);
    const counted = await usage(steady);
    assert.ok(counted.tokens > 500, `${counted.tokens} tokens`);
    assert.equal((await state(steady)).dayTokens, counted.tokens);
    assert.equal(await tryOn(steady), 200);
  });
});
