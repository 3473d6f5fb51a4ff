// Promise: hostile bodies do not slow down other callers. In
// large_bodies_timed_test.ts they do not fill the memory.
import assert from "node:assert/strict";
import process from "node:process";
import { amountOf } from "../support/amount.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { until } from "../support/wait_for.ts";
import { encoder, HOSTILE, members, postBody } from "./bodies_fixture.ts";

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
const CALLS = amountOf({ usual: 150, full: 300 });
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
  for (let count = 0; count < CALLS; count += 1) {
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

/**
 * Four keys send hostile bodies to the first edge of a gateway with two edges or more,
 * while another key uses it.
 */
export async function checkHostileBodies(
  gateway: LaunchedGateway,
): Promise<void> {
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
}

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
