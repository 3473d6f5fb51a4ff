/** A Redis and the only edge there is, for tests of the limiter. */
import assert from "node:assert/strict";
import {
  usageDay,
  usageHour,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import {
  limiterKey,
  ownerLimiterKey,
  ownerUsageKey,
  type Principal,
  usageKey,
} from "@gateway/shared/keys/record";
import {
  type LimiterState,
  readState,
  readUnits,
  type RedisWorld,
  startRedisWorld,
  writeState,
} from "../../../tests/support/limits/admission_fixture.ts";
import type { Caller } from "./callers/caller.ts";
import type { Ask, Grant, Limiter } from "./limiter.ts";
import type { Refusal } from "./refusal.ts";
import { loneEdge } from "./lone_edge_fixture.ts";

/** What tests ask for, unless they say otherwise. */
export const ASK: Ask = {
  scope: "chat",
  model: "neutral-3.7-plus",
  wantTokens: 100,
};
/** A day in ms. */
export const DAY_MS = 86_400_000;

const DAY_SECONDS = 86_400;
/** How long usage is kept: 40 days. */
const USAGE_DAYS = 40;

/** A request for an amount of a unit, without tokens. */
export function asks(unit: UsageUnit, count: number): Partial<Ask> {
  return { wantTokens: 0, wantUnits: { unit, count } };
}

/** Asserts that a number is within `slack` of another. */
export function close(actual: number, expected: number, slack: number): void {
  const isClose = Math.abs(actual - expected) <= slack;
  assert.ok(isClose, `${actual} is not ${expected} ± ${slack}`);
}

/** A Redis and an edge, and what tests ask of them. */
export class LimiterStage {
  readonly world: RedisWorld;
  readonly edge: Limiter;

  constructor(world: RedisWorld, edge: Limiter) {
    this.world = world;
    this.edge = edge;
  }

  /** Asks, and expects a refusal. */
  async refused(key: Caller, ask: Partial<Ask> = {}): Promise<Refusal> {
    const decision = await this.edge.admit(key, { ...ASK, ...ask });
    assert.ok(!decision.isAdmitted, "should have been refused");
    return decision;
  }

  /** Asks, and expects to be admitted. */
  async admitted(key: Caller, ask: Partial<Ask> = {}): Promise<Grant> {
    const decision = await this.edge.admit(key, { ...ASK, ...ask });
    assert.ok(decision.isAdmitted, JSON.stringify(decision));
    return decision;
  }

  /**
   * Asks, and expects to be refused for a limit: `<key or owner>:<limit>`, and the wait
   * that is told.
   */
  async limited(key: Principal, ask: Partial<Ask> = {}) {
    const refusal = await this.refused(key, ask);
    assert.ok(refusal.reason === "limited", refusal.reason);
    const { holder, limit, waitMs } = refusal;
    return { which: `${holder}:${limit}`, waitMs };
  }

  /** The meters of a key. */
  async state(key: Principal): Promise<LimiterState> {
    return await readState(this.world, limiterKey(key)) ?? assert.fail();
  }

  /** Replaces the meters of a key. */
  async write(key: Principal, state: LimiterState): Promise<void> {
    await writeState(this.world, limiterKey(key), state);
  }

  /** What is used of the day's budgets of a key and its owner. Null: tokens. */
  async usedToday(
    key: Principal,
    unit: UsageUnit | null,
  ): Promise<(number | undefined)[]> {
    const meters = [limiterKey(key), ownerLimiterKey(key.ownerId)];
    return await Promise.all(meters.map(async (name) => {
      if (unit === null) return (await readState(this.world, name))?.dayTokens;
      return (await readUnits(this.world, name, unit))?.count;
    }));
  }

  /**
   * What is counted of these kinds in the hour of the request, for its key and its
   * owner.
   */
  async usage(
    { principal, atMs }: Grant,
    kinds: readonly string[],
  ): Promise<unknown[]> {
    const { world } = this;
    const hour = usageHour(atMs);
    const fields = kinds.map((kind) => `${hour}:${kind}:${ASK.model}`);
    const day = usageDay(atMs);
    const names = [
      usageKey(principal, day),
      ownerUsageKey(principal.ownerId, day),
    ];
    const counted: unknown[] = [];
    for (const name of names) {
      counted.push(await world.command("HMGET", name, ...fields));
      const ttlS = Number(await world.command("TTL", name));
      const days = ttlS / DAY_SECONDS;
      assert.ok(days > USAGE_DAYS - 1 && days <= USAGE_DAYS, `${ttlS} s`);
    }
    return counted;
  }
}

/**
 * A test with a server and the only edge there is. Its file registers it, so that
 * reports name that file.
 */
export function onStage(
  body: (stage: LimiterStage) => Promise<void>,
): () => Promise<void> {
  return async () => {
    await using world = await startRedisWorld();
    await using edge = await loneEdge(world);
    await body(new LimiterStage(world, edge));
  };
}
