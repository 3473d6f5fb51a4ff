/**
 * Guarantee: who guesses keys learns nothing and costs next to nothing. Inputs 15
 * and 16 of the project's list of bad inputs.
 */
import assert from "node:assert/strict";
import {
  createClientAddress,
  parseNetwork,
} from "@gateway/shared/process/client_address";
import { monotonicNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { hashKey, recordKey } from "@gateway/shared/keys/record";
import { createFailureLimiter } from "../../services/edge-auth/auth_failures.ts";
import { scriptCalls } from "../support/admission_fixture.ts";
import {
  type GatedCluster,
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { sleep } from "../support/wait_for.ts";

const GUESSES = 1_000;
/** More than the address may fail with. */
const AT_ONCE = 50;
const ALLOWED = 20;
const ATTACKER = "192.0.2.1";
const NEIGHBOUR = "192.0.2.2";

function behindProxy() {
  const proxy = parseNetwork("127.0.0.1");
  assert.ok(proxy);
  return createClientAddress([proxy]);
}

function ask(cluster: GatedCluster, value: string, address: string) {
  return fetch(`${cluster.edges[0]?.edge.baseUrl}/models`, {
    headers: { authorization: `Bearer ${value}`, "x-forwarded-for": address },
  });
}

Deno.test("15 a thousand wrong keys in a second from one address: 20 are 401, the rest 429, for 20 reads", async () => {
  await using cluster = await startGatedCluster({
    door: { clientAddress: behindProxy() },
  });
  const key = await cluster.addKey();
  assert.equal(await statusOf(ask(cluster, key.value, NEIGHBOUR)), 200);
  const callsBefore = await scriptCalls(cluster.world);
  const startedAtMs = performance.now();
  const guess = async () => {
    const response = await ask(cluster, mintKey(randomBytes), ATTACKER);
    const { status, headers } = response;
    await response.body?.cancel();
    if (status === 429) {
      const seconds = Number(headers.get("retry-after"));
      assert.ok(seconds >= 1 && seconds <= 60, `${seconds} s`);
    }
    return status;
  };
  const guesses: Promise<number>[] = [];
  const guessUpTo = async (all: number) => {
    while (guesses.length < all) {
      for (let count = 0; count < AT_ONCE; count += 1) guesses.push(guess());
      await sleep(AT_ONCE * 1_000 / GUESSES);
    }
  };
  await guessUpTo(GUESSES / 2);
  // Somebody else, in the middle of it, with a key that has to be looked up.
  const fresh = await cluster.addKey();
  const neighbour = await statusOf(ask(cluster, fresh.value, NEIGHBOUR));
  await guessUpTo(GUESSES);
  const statuses = (await Promise.all(guesses)).sort();
  assert.equal(neighbour, 200);
  assert.deepEqual(
    statuses,
    [...Array(ALLOWED).fill(401), ...Array(GUESSES - ALLOWED).fill(429)],
  );
  // The neighbour's key took two: who has it, and what it may.
  assert.equal(await scriptCalls(cluster.world) - callsBefore, ALLOWED + 2);
  assert.ok(performance.now() - startedAtMs < 10_000, "in the same window");
});

const SAMPLES = 2_000;
const DIFFERENCE_MAX = 0.1;

Deno.test("16 how long the answer takes does not tell an unknown key from a deleted one", async () => {
  await using cluster = await startGatedCluster({
    door: {
      authFailures: createFailureLimiter(
        { failuresMax: 4 * SAMPLES, windowMs: 600_000, entriesMax: 10 },
        monotonicNow,
      ),
    },
  });
  const deleted: TestKey[] = [];
  for (let count = 0; count < SAMPLES; count += 1) {
    const key = await cluster.addKey();
    deleted.push(key);
    await cluster.world.command(
      "DEL",
      recordKey(key),
      hashKey(hashKeyValue(key.value)),
    );
  }
  const timed = async (value: string) => {
    const startedAtMs = performance.now();
    assert.equal(await statusOf(ask(cluster, value, ATTACKER)), 401);
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
  assert.ok(
    difference <= DIFFERENCE_MAX,
    `unknown ${unknown} ms, deleted ${gone} ms`,
  );
});

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Infinity;
}
