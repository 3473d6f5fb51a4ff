// Promise: guessing keys reveals nothing and costs next to nothing (inputs 15 and 16 of
// the project's list of bad inputs), and hostile bodies do not slow down other callers.
// That they do not fill the memory: large_bodies_timed_test.ts.
import assert from "node:assert/strict";
import process from "node:process";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { hashKey, recordKey } from "@gateway/shared/keys/record";
import {
  createClientAddress,
  parseNetwork,
} from "@gateway/shared/process/client_address";
import { randomBytes } from "@gateway/shared/process/ids";
import { amountOf } from "../support/amount.ts";
import { scriptCalls } from "../support/limits/admission_fixture.ts";
import { callApi } from "../support/chat_request.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway } from "../support/gateway/limited.ts";
import { sleep, until } from "../support/wait_for.ts";
import { encoder, HOSTILE, members, postBody } from "./bodies_fixture.ts";

const GUESSES_PER_ROUND = 50;
const ROUND_MS = 50;
/** A second of them: what is read is counted, not sampled. */
const ROUNDS = 20;
const PER_SECOND = 20;
const ATTACKER = "192.0.2.1";
const NEIGHBOUR = "192.0.2.2";

const ask = ({ edge }: LimitedGateway, value: string, address: string) =>
  callApi(`${edge.baseUrl}/models`, value, {
    headers: { "x-forwarded-for": address },
  });

Deno.test("15 of a thousand wrong keys a second from one address 20 are read, and good keys are found", async () => {
  const proxy = parseNetwork("127.0.0.1") ?? assert.fail();
  const clientAddress = createClientAddress([proxy]);
  await using gateway = await startGateway("limited", {
    door: { clientAddress },
  });
  const key = await gateway.addKey();
  const fresh = await gateway.addKey();
  const neighbour = await gateway.addKey();
  assert.equal(await readStatus(ask(gateway, key.value, ATTACKER)), 200);
  const callsBefore = await scriptCalls(gateway.world);
  const startedAtMs = performance.now();
  const statuses = new Map<number, number>();
  const guess = async () => {
    const response = await ask(gateway, mintKey(randomBytes), ATTACKER);
    const { status, headers } = response;
    await response.body?.cancel();
    if (status === 429) assert.equal(headers.get("retry-after"), "1");
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  };
  const guesses: Promise<void>[] = [];
  /** As an SDK does it. */
  const askAgain = async (value: string) => {
    for (let tries = 1;; tries += 1) {
      const status = await readStatus(ask(gateway, value, ATTACKER));
      if (status !== 429 || tries === 3) return status;
      await sleep(1_000);
    }
  };
  const attack = (async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      guesses.push(...Array.from({ length: GUESSES_PER_ROUND }, guess));
      await sleep(ROUND_MS);
    }
  })();
  await sleep(ROUND_MS);
  assert.equal(await readStatus(ask(gateway, key.value, ATTACKER)), 200);
  assert.equal(await readStatus(ask(gateway, neighbour.value, NEIGHBOUR)), 200);
  assert.equal(await askAgain(fresh.value), 200);
  await attack;
  await Promise.all(guesses);
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const looked = statuses.get(401) ?? 0;
  assert.ok(looked <= PER_SECOND * (seconds + 1), `${looked} in ${seconds} s`);
  assert.equal(looked + (statuses.get(429) ?? 0), guesses.length);
  // Three good requests, and whose two of the keys are.
  assert.equal(await scriptCalls(gateway.world) - callsBefore, looked + 5);
});

/** Medians of so many differed by 1.3 to 2.4 % in three runs on a busy machine. */
const SAMPLES = amountOf({ usual: 200, full: 400 });
const DIFFERENCE_MAX = 0.1;

Deno.test("16 how long the answer takes does not tell an unknown key from a deleted one", async () => {
  const unknownPerSecond = 1_000_000;
  await using gateway = await startGateway("limited", { unknownPerSecond });
  const deleted = await Promise.all(
    Array.from({ length: SAMPLES }, async () => {
      const key = await gateway.addKey();
      const names = [recordKey(key), hashKey(hashKeyValue(key.value))];
      await gateway.world.command("DEL", ...names);
      return key;
    }),
  );
  const timed = async (value: string) => {
    const startedAtMs = performance.now();
    assert.equal(await readStatus(ask(gateway, value, ATTACKER)), 401);
    return performance.now() - startedAtMs;
  };
  for (let count = 0; count < SAMPLES / 10; count += 1) {
    await timed(mintKey(randomBytes));
  }
  // By turns, and each first as often as second, so that the machine's moods hit both.
  const [unknownMs, deletedMs]: [number[], number[]] = [[], []];
  for (const [at, { value }] of deleted.entries()) {
    const guess = mintKey(randomBytes);
    if (at % 2 === 0) unknownMs.push(await timed(guess));
    deletedMs.push(await timed(value));
    if (at % 2 === 1) unknownMs.push(await timed(guess));
  }
  const [unknown, gone] = [median(unknownMs), median(deletedMs)];
  const difference = Math.abs(unknown - gone) / Math.min(unknown, gone);
  const what = `unknown ${unknown} ms, deleted ${gone} ms`;
  assert.ok(difference <= DIFFERENCE_MAX, what);
});

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Infinity;
}

/** The upper end of what docs/evidence/limits.md states, on a machine that has time. */
const P99_MS = 75;
/**
 * Other work on the machine shows in two ways: an edge that nobody attacks has a
 * higher p99 than this, and work takes longer than the processor time it needs.
 * The first is subtracted and the second divided by, which is only roughly right,
 * so a measurement beyond the promise is made again. An attack that does slow the
 * edge down fails every time.
 */
const CALM_P99_MS = 15;
const CALM_STRETCH = 1.3;
const SPIN_MS = 10;
const SPIN_EVERY = 10;
const MEASURED_MAX = 5;
const ASKED = amountOf({ usual: 150, full: 300 });
const ATTACKERS = 4;
const CONNECTIONS_EACH = 4;
/** The edge without attack is asked less often: it only shows the noise. */
const CALM_EVERY = 3;

/** Posts a body to an edge, and returns the status. */
type Post = (
  key: string,
  body: Uint8Array<ArrayBuffer>,
  edge?: number,
) => Promise<number>;

/** Keys that send one hostile body after the other to the first edge. */
class Attack {
  /** How often each status was the answer. */
  readonly statuses = new Map<number, number>();
  readonly #post: Post;
  readonly #connections: Promise<void>[] = [];
  #isOver = false;

  constructor(post: Post) {
    this.#post = post;
  }

  /** Begins to attack with a key, on several connections. */
  begin(key: string): void {
    for (let count = 0; count < CONNECTIONS_EACH; count += 1) {
      this.#connections.push(this.#send(key));
    }
  }

  /** Sends no more. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#connections);
  }

  async #send(key: string): Promise<void> {
    const bodies = Object.values(HOSTILE).map((body) => encoder.encode(body));
    while (!this.#isOver) {
      for (const body of bodies) {
        add(this.statuses, await this.#post(key, body));
      }
    }
  }
}

/**
 * What requests met while an edge was under attack; times are at the 99th percentile.
 */
interface Measurement {
  /** How often each status was the answer. */
  served: ReadonlyMap<number, number>;
  attackedMs: number;
  /** At the edge that nobody attacks. */
  calmMs: number;
  /** How many times longer work took than the processor time it needs. */
  stretched: number;
  /** `attackedMs` without what other work on the machine added. */
  correctedMs: number;
}

/** By turns at the edge under attack and at one that only shares the machine. */
async function measure(
  ask: (edge: number) => Promise<number>,
): Promise<Measurement> {
  const served = new Map<number, number>();
  const [attacked, calm]: [number[], number[]] = [[], []];
  const stretches: number[] = [];
  for (let count = 0; count < ASKED; count += 1) {
    const edges = count % CALM_EVERY === 0 ? [attacked, calm] : [attacked];
    for (const [edge, tookMs] of edges.entries()) {
      const startedAtMs = performance.now();
      add(served, await ask(edge));
      tookMs.push(performance.now() - startedAtMs);
    }
    if (count % SPIN_EVERY === 0) stretches.push(stretch());
  }
  const [attackedMs, calmMs] = [p99(attacked), p99(calm)];
  const stretched = p99(stretches);
  const noiseMs = Math.max(0, calmMs - CALM_P99_MS);
  const correctedMs = (attackedMs - noiseMs) / stretched;
  return { served, attackedMs, calmMs, stretched, correctedMs };
}

/**
 * Whether a measurement shows that the promise holds: others are served, and in time.
 * Where Redis does not get the processor in time, the answer is an honest 503.
 */
function isKept(
  { served, stretched, correctedMs }: Measurement,
): boolean {
  const isServed = !served.has(503) || stretched > CALM_STRETCH;
  return isServed && correctedMs < P99_MS;
}

Deno.test("API4: hostile bodies of four keys at once do not slow down the requests of another", async () => {
  await using gateway = await startGateway("launched", { edges: 2 });
  const post: Post = (key, body, edge = 0) =>
    readStatus(postBody(gateway.baseUrl(edge), key, body));
  const { key: victim } = await gateway.createKey();
  const good = encoder.encode(members('"max_tokens":1'));
  for (let count = 0; count < 100; count += 1) {
    await until(async () => await post(victim, good, count % 2) === 200);
  }
  const attack = new Attack(post);
  for (let count = 0; count < ATTACKERS; count += 1) {
    attack.begin((await gateway.createKey()).key);
  }
  const measured = [];
  do {
    measured.push(await measure((edge) => post(victim, good, edge)));
  } while (!measured.some(isKept) && measured.length < MEASURED_MAX);
  await attack.end();
  assert.ok((attack.statuses.get(400) ?? 0) > 10, "the attack went on");
  for (const { served } of measured) {
    for (const status of served.keys()) assert.ok([200, 503].includes(status));
  }
  assert.ok(measured.some(isKept), Deno.inspect(measured));
});

/** How much longer than its processor time a little work takes here and now. */
function stretch(): number {
  const startedAtMs = performance.now();
  const started = process.cpuUsage();
  for (;;) {
    const { user, system } = process.cpuUsage(started);
    const usedMs = (user + system) / 1_000;
    if (usedMs < SPIN_MS) continue;
    return Math.max(1, (performance.now() - startedAtMs) / usedMs);
  }
}

function add(counts: Map<number, number>, status: number): void {
  counts.set(status, (counts.get(status) ?? 0) + 1);
}

function p99(tookMs: readonly number[]): number {
  const sorted = tookMs.toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Infinity;
}
