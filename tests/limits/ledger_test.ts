// Promise: what a key and its owner are charged in Redis, in the minute, in the day and
// in the usage that the console shows, is what the backend made: to the token for
// answers that ended, well or not; within one chunk for those that were cut.
import assert from "node:assert/strict";
import { limiterKey, ownerLimiterKey } from "@gateway/shared/keys/record";
import {
  readState,
  type UsageCounted,
  usageCounted,
  writeState,
} from "../support/admission_fixture.ts";
import { type ChatOutcome, outcomeOf } from "../support/chat_outcome.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { seededRandom, seedsOr } from "../support/seeded_random.ts";
import { tokenBackend } from "../support/scripted_model_server.ts";
import { sleep, until } from "../support/wait_for.ts";

const EDGES = 2;
const REQUESTS = 120;
const TOKEN_MS = 2;
const LEAVES_WITHIN_MS = 120;
/** A bucket that is not full at any time of the run forgets nothing. */
const AHEAD_MS = 30_000;
const MINUTE_MS = 60_000;
const KEY_TOKENS = 60_000;
const OWNER_TOKENS = 120_000;
/** The first request, before the others are counted. */
const FIRST_SEED = 1_000_000;

type Fate = "completes" | "fails" | "leaves";

const namesOf = (key: TestKey) => ({
  key: limiterKey(key),
  owner: ownerLimiterKey(key.ownerId),
});

/** What is kept of a key and of its owner. */
async function readBooks({ world }: LimitedGateway, key: TestKey) {
  const read = async (name: string) =>
    await readState(world, name) ?? assert.fail(name);
  const names = namesOf(key);
  return {
    key: await read(names.key),
    owner: await read(names.owner),
    usage: await usageCounted(world, key),
  };
}

const LIMITS = {
  requestsPerMinute: 10_000,
  concurrency: 1_000,
  tokensPerMinute: KEY_TOKENS,
  tokensPerDay: 1_000_000,
};
const OWNER_LIMITS = {
  ...LIMITS,
  requestsPerMinute: 0,
  tokensPerMinute: OWNER_TOKENS,
  tokensPerDay: 2_000_000,
};

/**
 * A busy machine may not hear Redis in time: then nothing has run, and one asks again.
 */
async function served(ask: () => Promise<ChatOutcome>): Promise<ChatOutcome> {
  const outcome = await ask();
  return outcome.errorCode === "service_unavailable" ? served(ask) : outcome;
}

const NUMBERS = Array.from({ length: REQUESTS }, (_, number) => number);
const TABLE: { name: string; fates: readonly Fate[]; cut: number }[] = [
  { name: "that end", fates: ["completes", "fails", "completes"], cut: 0 },
  { name: "of which half are cut", fates: ["completes", "leaves"], cut: 1 },
];

for (const seed of seedsOr([11])) {
  for (const { name, fates, cut } of TABLE) {
    Deno.test(`${REQUESTS} requests ${name} are charged as the backend made them (TEST_SEED=${seed})`, async () => {
      const fateOf = (number: number) => fates[number % fates.length];
      const backend = tokenBackend({
        tokenMs: TOKEN_MS,
        failsAt: (number) =>
          number < REQUESTS && fateOf(number) === "fails" ? number % 20 : null,
      });
      await using gateway = await startGateway("limited", {
        edges: EDGES,
        runsOn: backend,
      });
      const { world } = gateway;
      const key = await gateway.addKey({
        limits: LIMITS,
        ownerLimits: OWNER_LIMITS,
      });
      const first = { seed: FIRST_SEED, max_tokens: 1 };
      assert.equal(await gateway.status(key, { body: first }), 200);
      await gateway.settled(key);
      // Its buckets are half used.
      for (const name of Object.values(namesOf(key))) {
        const state = await readState(world, name) ?? assert.fail();
        const tokensTatMs = await world.time() + AHEAD_MS;
        await writeState(world, name, { ...state, tokensTatMs });
      }
      const before = await readBooks(gateway, key);
      const random = seededRandom(seed);
      // Every request at once, until nothing of them is left.
      await Promise.all(NUMBERS.map(async (seed) => {
        const client = new AbortController();
        const { signal } = client;
        const max_tokens = 1 + seed % 60;
        const body = { seed, max_tokens, stream: seed % 3 !== 0 };
        const edge = seed % EDGES;
        const outcome = served(() =>
          outcomeOf(gateway.ask(key, { edge, body, signal }))
        );
        if (fateOf(seed) === "leaves") {
          await sleep(random() * LEAVES_WITHIN_MS);
          client.abort();
        }
        const { kind } = await outcome;
        if (fateOf(seed) === "completes") assert.equal(kind, "complete");
        if (fateOf(seed) === "fails") assert.match(kind, /^(http|sse)_error$/);
      }));
      await until(() => backend.running === 0);
      await gateway.settled(key);
      const after = await readBooks(gateway, key);

      const spent = (kind: keyof UsageCounted) =>
        after.usage[kind] - before.usage[kind];
      const made = NUMBERS.reduce(
        (sum, number) => sum + (backend.produced.get(number) ?? 0),
        0,
      );
      const mayLack = cut *
        NUMBERS.filter((each) => fateOf(each) === "leaves").length;
      const failing = NUMBERS.filter((each) =>
        fateOf(each) === "fails" && each % 20 < 1 + each % 60
      );
      assert.ok(made > REQUESTS, `${made} tokens made`);
      // Who leaves at once may not have been let in at all.
      assert.ok(spent("requests") <= REQUESTS, `${spent("requests")} requests`);
      assert.ok(spent("requests") >= REQUESTS - mayLack);
      assert.ok(spent("requests") >= backend.produced.size - 1);
      assert.equal(spent("errors"), failing.length);
      const lacking = made - spent("completionTokens");
      assert.ok(lacking >= 0, `${-lacking} too many`);
      assert.ok(lacking <= mayLack, `${lacking} too few`);

      const charged = spent("promptTokens") + spent("completionTokens");
      for (const side of ["key", "owner"] as const) {
        const perMinute = side === "key" ? KEY_TOKENS : OWNER_TOKENS;
        const day = after[side].dayTokens - before[side].dayTokens;
        assert.equal(day, charged, `the day of the ${side}`);
        const movedMs = after[side].tokensTatMs - before[side].tokensTatMs;
        const bucket = movedMs * perMinute / MINUTE_MS;
        const what = `the minute of the ${side}: ${bucket}, not ${charged}`;
        assert.ok(Math.abs(bucket - charged) < 0.01, what);
      }
    });
  }
}
