// Promise: what a key and its owner are charged in Redis, in the minute, in the day and
// in the usage that the console shows, is what the backend made: to the token for
// answers that ended, well or not; within one chunk for those that were cut.
import assert from "node:assert/strict";
import { limiterKey, ownerLimiterKey } from "@gateway/shared/keys/record";
import {
  type LimiterState,
  readState,
  type UsageCounted,
  usageCounted,
  writeState,
} from "../support/limits/admission_fixture.ts";
import {
  type ChatOutcome,
  outcomeOf,
} from "../support/gateway/chat_outcome.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LimitedGateway, TestKey } from "../support/gateway/limited.ts";
import { seededRandom, seedsOr } from "../support/seeded_random.ts";
import {
  type TokenBackend,
  tokenBackend,
} from "../support/model_servers/scripted_model_server.ts";
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
/** What Redis has about a key and its owner. */
interface Books {
  key: LimiterState;
  owner: LimiterState;
  usage: UsageCounted;
}

async function readBooks(
  { world }: LimitedGateway,
  key: TestKey,
): Promise<Books> {
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

/** What becomes of the requests of a run, and what may be missing in its books. */
interface Mix {
  name: string;
  /** How the requests end, in turn. */
  fates: readonly Fate[];
  /** Tokens that may not be charged for a request that its client cuts. */
  tokensMissingMax: number;
}

const MIXES: readonly Mix[] = [
  {
    name: "that end",
    fates: ["completes", "fails", "completes"],
    tokensMissingMax: 0,
  },
  {
    name: "of which half are cut",
    fates: ["completes", "leaves"],
    tokensMissingMax: 1,
  },
];

/** Sends every request at once, some of which leave, until nothing of them is left. */
class Run {
  readonly backend: TokenBackend;
  readonly #mix: Mix;

  constructor(mix: Mix) {
    this.#mix = mix;
    this.backend = tokenBackend({
      tokenMs: TOKEN_MS,
      failsAt: (number) => this.fails(number) ? number % 20 : null,
    });
  }

  /** What becomes of a request. */
  fateOf(number: number): Fate {
    const { fates } = this.#mix;
    return fates[number % fates.length] ?? assert.fail("no fates");
  }

  /** Whether a request is one that the backend fails, if it gets that far. */
  fails(number: number): boolean {
    return number < REQUESTS && this.fateOf(number) === "fails";
  }

  /** Tokens, and requests, that the books may lack of what was made. */
  missingMax(): number {
    const leaving = NUMBERS.filter((each) => this.fateOf(each) === "leaves");
    return this.#mix.tokensMissingMax * leaving.length;
  }

  /** Sends all requests with a key, and waits until they are settled. */
  async play(
    gateway: LimitedGateway,
    key: TestKey,
    random: () => number,
  ): Promise<void> {
    await Promise.all(
      NUMBERS.map((number) => this.#ask(gateway, key, { number, random })),
    );
    await until(() => this.backend.running === 0);
    await gateway.settled(key);
  }

  async #ask(
    gateway: LimitedGateway,
    key: TestKey,
    { number, random }: { number: number; random: () => number },
  ): Promise<void> {
    const client = new AbortController();
    const { signal } = client;
    const body = {
      seed: number,
      max_tokens: tokensOf(number),
      stream: number % 3 !== 0,
    };
    const edge = number % EDGES;
    const outcome = served(() =>
      outcomeOf(gateway.ask(key, { edge, body, signal }))
    );
    const fate = this.fateOf(number);
    if (fate === "leaves") {
      await sleep(random() * LEAVES_WITHIN_MS);
      client.abort();
    }
    const { kind } = await outcome;
    if (fate === "completes") assert.equal(kind, "complete");
    if (fate === "fails") assert.match(kind, /^(http|sse)_error$/);
  }
}

/** The tokens that a request asks for. */
const tokensOf = (number: number) => 1 + number % 60;

/** Half of what the buckets of the key and its owner hold is used up. */
async function useHalf(gateway: LimitedGateway, key: TestKey): Promise<void> {
  const { world } = gateway;
  const body = { seed: FIRST_SEED, max_tokens: 1 };
  assert.equal(await gateway.status(key, { body }), 200);
  await gateway.settled(key);
  for (const name of Object.values(namesOf(key))) {
    const state = await readState(world, name) ?? assert.fail();
    const tokensTatMs = await world.time() + AHEAD_MS;
    await writeState(world, name, { ...state, tokensTatMs });
  }
}

/** What was added to a number of the usage. */
const added = (before: Books, after: Books, kind: keyof UsageCounted) =>
  after.usage[kind] - before.usage[kind];

/** The usage has every request and every token that the backend made. */
function assertUsage(run: Run, before: Books, after: Books): void {
  const { backend } = run;
  const total = NUMBERS.reduce(
    (sum, number) => sum + (backend.produced.get(number) ?? 0),
    0,
  );
  assert.ok(total > REQUESTS, `${total} tokens made`);
  const failing = NUMBERS.filter((number) =>
    run.fails(number) && number % 20 < tokensOf(number)
  );
  assert.equal(added(before, after, "errors"), failing.length);
  const missingMax = run.missingMax();
  // Who leaves at once may not have been let in at all.
  const requests = added(before, after, "requests");
  assert.ok(requests <= REQUESTS, `${requests} requests`);
  assert.ok(requests >= REQUESTS - missingMax);
  assert.ok(requests >= backend.produced.size - 1);
  const missing = total - added(before, after, "completionTokens");
  assert.ok(missing >= 0, `${-missing} too many`);
  assert.ok(missing <= missingMax, `${missing} too few`);
}

/** The day and the minute, of the key and of its owner, have what the usage has. */
function assertCharged(before: Books, after: Books): void {
  const charged = added(before, after, "promptTokens") +
    added(before, after, "completionTokens");
  for (const side of ["key", "owner"] as const) {
    const perMinute = side === "key" ? KEY_TOKENS : OWNER_TOKENS;
    const day = after[side].dayTokens - before[side].dayTokens;
    assert.equal(day, charged, `the day of the ${side}`);
    const movedMs = after[side].tokensTatMs - before[side].tokensTatMs;
    const bucket = movedMs * perMinute / MINUTE_MS;
    const what = `the minute of the ${side}: ${bucket}, not ${charged}`;
    assert.ok(Math.abs(bucket - charged) < 0.01, what);
  }
}

for (const seed of seedsOr([11])) {
  for (const mix of MIXES) {
    Deno.test(`${REQUESTS} requests ${mix.name} are charged as the backend made them (TEST_SEED=${seed})`, async () => {
      const run = new Run(mix);
      await using gateway = await startGateway("limited", {
        edges: EDGES,
        runsOn: run.backend,
      });
      const key = await gateway.addKey({
        limits: LIMITS,
        ownerLimits: OWNER_LIMITS,
      });
      await useHalf(gateway, key);
      const before = await readBooks(gateway, key);
      await run.play(gateway, key, seededRandom(seed));
      const after = await readBooks(gateway, key);
      assertUsage(run, before, after);
      assertCharged(before, after);
    });
  }
}
