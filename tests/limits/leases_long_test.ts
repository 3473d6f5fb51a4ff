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
import type { RedisLink } from "@gateway/shared/redis/link";
import { LEASE_MS } from "../../services/edge-auth/limits/scripts.ts";
import {
  readState,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
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

/** The keys of the test: one for each edge, of which the killed one has two. */
interface Keys {
  steady: StoredKey;
  paused: StoredKey;
  one: StoredKey;
  two: StoredKey;
}

/** Requests that hold slots on three edges, and what Redis has of them. */
class Leases {
  readonly #client = new AbortController();
  readonly #ends: Promise<unknown>[] = [];

  constructor(
    readonly gateway: LaunchedGateway,
    readonly redis: RedisLink,
    readonly keys: Keys,
  ) {}

  /** Those whose edge is killed. */
  get killed(): StoredKey[] {
    return [this.keys.one, this.keys.two];
  }

  /** Sends a command to Redis. */
  command(...args: string[]): Promise<unknown> {
    return this.redis.command(args);
  }

  /** Does something as often as each of the killed keys has slots. */
  onBoth<T>(act: (key: StoredKey) => Promise<T>): Promise<T[]> {
    const { killed } = this;
    return Promise.all(
      Array.from({ length: SLOTS_EACH }, () => killed.map(act)).flat(),
    );
  }

  /** Starts a stream that does not end by itself. */
  async run(key: StoredKey, edge: number): Promise<void> {
    const { signal } = this.#client;
    const response = await until(async () => {
      const options = { edge, body: LONG, signal };
      const answer = await this.gateway.ask(key.value, options);
      if (answer.status === 200) return answer;
      await answer.body?.cancel();
    }, START_MS);
    this.#ends.push(response.text().catch(() => null));
  }

  /** Ends all streams that still run. */
  async leave(): Promise<void> {
    this.#client.abort();
    await Promise.all(this.#ends);
  }

  /**
   * The status of a short request at the steady edge. A busy machine may not ask Redis
   * in time: then nothing was consumed, and it is sent again.
   */
  async tryOn(key: StoredKey): Promise<number> {
    const response = await this.gateway.ask(key.value, { edge: STEADY });
    const { error } = await response.json();
    return error?.code === "service_unavailable"
      ? await this.tryOn(key)
      : response.status;
  }

  /** What was settled with a key. */
  async usage(key: StoredKey): Promise<{ requests: number; tokens: number }> {
    const counted = await usageCounted(this, key);
    const { requests, promptTokens, completionTokens } = counted;
    return { requests, tokens: promptTokens + completionTokens };
  }

  /** What the limiter keeps of a key. */
  async state(key: StoredKey) {
    return await readState(this, limiterKey(key)) ?? assert.fail();
  }

  /** Sends a signal to an edge. */
  signal(edge: number, name: Deno.Signal): void {
    Deno.kill(this.gateway.pid("edge-auth", edge), name);
  }
}

/** Creates the keys. The two of the killed edge share the limit of their owner. */
async function makeKeys(
  gateway: LaunchedGateway,
  redis: RedisLink,
): Promise<Keys> {
  const make = async (owner: string, concurrency: number) => {
    const { key: value } = await gateway.createKey(
      `--owner=${owner}@example.org`,
      `--concurrency=${concurrency}`,
      `--tokens-per-day=${TOKENS_PER_DAY}`,
    );
    const found = await redis.command(["GET", hashKey(hashKeyValue(value))]);
    const [keyId = "", ownerId = ""] = String(found).split(":");
    return { value, keyId, ownerId };
  };
  const keys = {
    steady: await make("S", 1),
    paused: await make("P", 1),
    one: await make("K", SLOTS_EACH),
    two: await make("K", SLOTS_EACH),
  };
  const name = ownerLimitsKey(keys.one.ownerId);
  await redis.command(["HSET", name, "conc", String(2 * SLOTS_EACH)]);
  return keys;
}

async function sharesOwnerLimits(gateway: LaunchedGateway): Promise<void> {
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
}

async function holdsSlots(
  leases: Leases,
  startedAtMs: number,
): Promise<void> {
  const { steady, paused, one, two } = leases.keys;
  /** When each was let in again. */
  const freeAfterMs = new Map<StoredKey, number>();
  let steadyRefusals = 0;
  while (performance.now() - startedAtMs < PAUSE_MS) {
    for (const key of [paused, one, two]) {
      if (freeAfterMs.has(key)) continue;
      const status = await leases.tryOn(key);
      const elapsedMs = performance.now() - startedAtMs;
      if (status === 200) freeAfterMs.set(key, elapsedMs);
      else assert.equal(status, 429);
    }
    assert.equal(await leases.tryOn(steady), 429);
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
}

async function returnsSlots(leases: Leases): Promise<void> {
  assert.deepEqual(
    new Set(await leases.onBoth((key) => leases.tryOn(key))),
    new Set([200]),
  );
}

async function settlesLate(leases: Leases): Promise<void> {
  const { paused } = leases.keys;
  leases.signal(PAUSED, "SIGCONT");
  await until(async () => (await leases.usage(paused)).requests === 2, 10_000);
  await sleep(QUIET_MS);
  const counted = await leases.usage(paused);
  assert.equal(counted.requests, 2, "the stream and the one after it");
  assert.equal((await leases.state(paused)).dayTokens, counted.tokens);
  const ofOwner = ownerLeaseKey(paused.ownerId);
  for (const name of [leaseKey(paused), ofOwner]) {
    assert.equal(await leases.command("ZCARD", name), 0);
  }
}

/** `dayTokens` are those of each key when its edge was killed. */
async function keepsReserved(
  leases: Leases,
  dayTokens: readonly number[],
): Promise<void> {
  for (const [index, key] of leases.killed.entries()) {
    const later = 1 + SLOTS_EACH;
    await until(async () => (await leases.usage(key)).requests >= later);
    const counted = await leases.usage(key);
    assert.equal(counted.requests, later);
    const before = dayTokens[index] ?? assert.fail();
    assert.ok(before > SLOTS_EACH * LONG.max_tokens);
    assert.equal((await leases.state(key)).dayTokens, before + counted.tokens);
  }
}

async function endsSteady(leases: Leases): Promise<void> {
  const { steady } = leases.keys;
  await leases.leave();
  await until(async () => (await leases.usage(steady)).requests === 1);
  const counted = await leases.usage(steady);
  assert.ok(counted.tokens > 500, `${counted.tokens} tokens`);
  assert.equal((await leases.state(steady)).dayTokens, counted.tokens);
  assert.equal(await leases.tryOn(steady), 200);
}

Deno.test("leases over 30 seconds: a steady, a paused and a killed edge", async (t) => {
  const env = { SLOTS: "4096" };
  await using gateway = await startGateway("launched", { edges: EDGES, env });
  await t.step(
    "limits of an owner hold for all keys together",
    () => sharesOwnerLimits(gateway),
  );
  const redis = await gateway.openRedis();
  const leases = new Leases(gateway, redis, await makeKeys(gateway, redis));
  await leases.run(leases.keys.steady, STEADY);
  await leases.run(leases.keys.paused, PAUSED);
  await leases.onBoth((key) => leases.run(key, KILLED));
  const dayTokens: number[] = [];
  for (const key of leases.killed) {
    const leaseCount = () => leases.command("ZCARD", leaseKey(key));
    await until(async () => await leaseCount() === SLOTS_EACH);
    dayTokens.push((await leases.state(key)).dayTokens);
  }
  const startedAtMs = performance.now();
  leases.signal(PAUSED, "SIGSTOP");
  leases.signal(KILLED, "SIGKILL");

  await t.step(
    "slots are held for the life of a lease",
    () => holdsSlots(leases, startedAtMs),
  );

  await t.step(
    "killed: all slots of key and owner are back",
    () => returnsSlots(leases),
  );

  await t.step("paused: it settles late, once", () => settlesLate(leases));

  await t.step(
    "killed: what was reserved stays",
    () => keepsReserved(leases, dayTokens),
  );

  await t.step(
    "steady: the stream ends, and its slot is free",
    () => endsSteady(leases),
  );
});
