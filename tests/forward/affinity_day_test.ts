/**
 * Promise: with affinity, most requests of a conversation find its beginning in the
 * cache of their server, and the servers are as evenly loaded as by chance.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { seededRandom } from "../support/seeded_random.ts";
import { BackendPool, type PoolBackend } from "@gateway/shared/upstream/pool";

const HOUR_MS = 3_600_000;
const SERVERS = 4;
const CONVERSATIONS = 3_000;
/** As many tokens as the cache of one server has room for. */
const CACHE_TOKENS = 100_000;
/** What every turn of a conversation adds to it: a question and its answer. */
const TURN_TOKENS = 600;
/** Instructions and tools, before the first question. */
const BEGINNING_TOKENS = 2_000;

interface Turn {
  readonly atMs: number;
  readonly conversation: number;
  readonly promptTokens: number;
  readonly takesMs: number;
}

/** A server whose cache has the conversations that it has answered last. */
class CachingServer implements PoolBackend {
  readonly config: PoolBackend["config"];
  /** The tokens of each conversation, the one that was asked last at the end. */
  readonly #cached = new Map<number, number>();
  #cachedTokens = 0;
  running = 0;
  requests = 0;

  constructor(index: number) {
    this.config = { name: `openai-${index + 1}`, preference: 0, weight: 1 };
  }

  /** How many tokens of a prompt it has; it has them all from now on. */
  answer({ conversation, promptTokens }: Turn): number {
    this.requests += 1;
    const cachedTokens = this.#cached.get(conversation) ?? 0;
    this.#forget(conversation);
    this.#cached.set(conversation, promptTokens + TURN_TOKENS);
    this.#cachedTokens += promptTokens + TURN_TOKENS;
    for (const oldest of this.#cached.keys()) {
      if (this.#cachedTokens <= CACHE_TOKENS) break;
      this.#forget(oldest);
    }
    return Math.min(cachedTokens, promptTokens);
  }

  #forget(conversation: number): void {
    this.#cachedTokens -= this.#cached.get(conversation) ?? 0;
    this.#cached.delete(conversation);
  }

  close() {}
}

/** The turns of a day in their order: more by day than by night, a minute apart. */
function turnsOfDay(random: () => number): Turn[] {
  const turns: Turn[] = [];
  const exponential = (meanMs: number) => -Math.log(1 - random()) * meanMs;
  for (let conversation = 0; conversation < CONVERSATIONS;) {
    const hour = random() * 24;
    if (random() > 0.2 + 0.8 * Math.sin(Math.PI * hour / 24) ** 2) continue;
    let atMs = hour * HOUR_MS;
    const count = 1 + Math.floor(exponential(8));
    for (let turn = 0; turn < count; turn++) {
      const takesMs = 2_000 + exponential(20_000);
      const promptTokens = BEGINNING_TOKENS + turn * TURN_TOKENS;
      turns.push({ atMs, conversation, promptTokens, takesMs });
      atMs += takesMs + exponential(60_000);
    }
    conversation += 1;
  }
  return turns.sort((a, b) => a.atMs - b.atMs);
}

const sessionOf = (conversation: number) =>
  createHash("sha256").update(`${conversation}`).digest("hex").slice(0, 16);

/** What a day was like. */
interface Day {
  /** The share of the tokens of all prompts that were in a cache. */
  readonly hits: number;
  /** The requests of the busiest server by those of the mean. */
  readonly unevenness: number;
  /** The same of the requests that ran at a time, where there were 20 or more. */
  readonly peak: number;
}

/** Runs the day on servers of one model, of which a pool chooses. */
async function live(
  seed: number,
  { hasAffinity }: { hasAffinity: boolean },
): Promise<Day> {
  const random = seededRandom(seed);
  const turns = turnsOfDay(random);
  let nowMs = 0;
  const servers = Array.from(
    { length: SERVERS },
    (_, index) => new CachingServer(index),
  );
  const pool = new BackendPool({
    backends: servers,
    now: () => nowMs,
    random,
    sleep: () => Promise.resolve(),
    onAttempt: () => {},
    onOddity: () => {},
  });
  const ends: { atMs: number; end: () => Promise<unknown> }[] = [];
  let hits = 0;
  let peak = 0;
  for (const turn of turns) {
    const { atMs, conversation, takesMs } = turn;
    ends.sort((a, b) => a.atMs - b.atMs);
    while ((ends[0]?.atMs ?? Infinity) <= atMs) await ends.shift()?.end();
    nowMs = atMs;
    const { promise, resolve } = Promise.withResolvers<void>();
    const session = hasAffinity ? sessionOf(conversation) : undefined;
    const call = {
      requestId: "0".repeat(32),
      signal: new AbortController().signal,
      ...session !== undefined && { session },
    };
    const run = pool.run(call, async (server, progress) => {
      progress.onBegun();
      hits += server.answer(turn);
      server.running += 1;
      await promise;
      server.running -= 1;
    });
    ends.push({
      atMs: atMs + takesMs,
      end: () => (resolve(), run),
    });
    if (ends.length >= 20) {
      const most = Math.max(...servers.map(({ running }) => running));
      peak = Math.max(peak, most * SERVERS / ends.length);
    }
  }
  for (const { end } of ends) await end();
  const most = Math.max(...servers.map(({ requests }) => requests));
  return {
    hits: hits /
      turns.reduce((sum, { promptTokens }) => sum + promptTokens, 0),
    unevenness: most * SERVERS / turns.length,
    peak,
  };
}

for (const seed of [1, 2, 3]) {
  Deno.test(`a day of conversations finds its caches by affinity (seed ${seed})`, async () => {
    const byChance = await live(seed, { hasAffinity: false });
    const byAffinity = await live(seed, { hasAffinity: true });
    // 38 % of the tokens by chance, 76 % by affinity; loads within 1.06 times the mean.
    assert.ok(byChance.hits < 0.45, `${byChance.hits}`);
    assert.ok(byAffinity.hits > 0.7, `${byAffinity.hits}`);
    assert.ok(byAffinity.unevenness < 1.1, `${byAffinity.unevenness}`);
    assert.ok(byAffinity.peak < byChance.peak, `${byAffinity.peak}`);
  });
}
