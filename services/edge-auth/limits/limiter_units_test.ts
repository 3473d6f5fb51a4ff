/** The budgets of a day, and what is settled of them at the end of a request. */
import assert from "node:assert/strict";
import {
  LIMITER_EPOCH_MS,
  limiterDay,
  USAGE_KINDS,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerVideoLeaseKey,
  videoLeaseKey,
} from "@gateway/shared/keys/record";
import { DONE } from "../../../tests/support/limits/admission_fixture.ts";
import {
  letDayEnd,
  letTimePass,
} from "../../../tests/support/limits/limiter_clock.ts";
import type { Cost } from "./cost.ts";
import type { Ask } from "./limiter.ts";
import { asks, close, DAY_MS, onStage } from "./limiter_fixture.ts";

Deno.test(
  "the day's budget: a larger request passes while it is whole, and it starts anew with the UTC day",
  onStage(async (t) => {
    const large = await t.world.addKey({ limits: { tokensPerDay: 500 } });
    await t.admitted(large, { wantTokens: 5_000 });
    const { which, waitMs } = await t.limited(large, { wantTokens: 1 });
    assert.equal(which, "key:day");
    const nowMs = await t.world.time();
    close(waitMs, DAY_MS - nowMs % DAY_MS, 2_000);

    const key = await t.world.addKey({ limits: { tokensPerDay: 200 } });
    const request = await t.admitted(key);
    await t.admitted(key);
    assert.equal((await t.limited(key)).which, "key:day");
    const state = await t.state(key);
    assert.equal(state.dayTokens, 200);
    const moveDay = (days: number) =>
      t.write(key, { ...state, day: state.day + days });
    await moveDay(-1);
    await t.admitted(key);
    const today = await t.state(key);
    assert.equal(today.day, limiterDay(await t.world.time()));
    assert.equal(today.dayTokens, 100);
    // A settlement does not touch the budget of another day, nor revive a state.
    await moveDay(1);
    await t.edge.settle(request, { ...DONE, promptTokens: 0 });
    assert.equal((await t.state(key)).dayTokens, 200);
    const late = await t.admitted(await t.world.addKey());
    const name = limiterKey(late.principal);
    await t.world.command("DEL", name);
    await t.edge.settle(late, { ...DONE, promptTokens: 0 });
    assert.equal(await t.world.command("EXISTS", name), 0);
  }),
);

/** Two requests around a limit of 10 a day. */
interface TwoRequests {
  readonly unit: UsageUnit;
  /** What each asks for. */
  readonly first: number;
  readonly second: number;
  /** The limit that refuses the second one. */
  readonly refusedBy: string | null;
}

/** The bounds themselves: `tests/limits/invariants_test.ts`. */
const UNITS: TwoRequests[] = [
  // Larger than the whole budget, which is not used yet.
  { unit: "images", first: 11, second: 1, refusedBy: "images_per_day" },
  // Nobody knows how long a recording is before it has run.
  { unit: "audioSeconds", first: 0, second: 0, refusedBy: null },
  { unit: "audioSeconds", first: 9, second: 0, refusedBy: null },
  {
    unit: "audioSeconds",
    first: 10,
    second: 0,
    refusedBy: "audio_seconds_per_day",
  },
  {
    unit: "videoSeconds",
    first: 9,
    second: 2,
    refusedBy: "video_seconds_per_day",
  },
];
const PER_DAY = {
  imagesPerDay: 10,
  charactersPerDay: 10,
  audioSecondsPerDay: 10,
  videoSecondsPerDay: 10,
};

Deno.test(
  "the day's budget of each unit is bounded, apart from the others, and starts anew with the UTC day",
  onStage(async (t) => {
    for (const side of ["limits", "ownerLimits"]) {
      for (const { unit, first, second, refusedBy } of UNITS) {
        const limits = { ...PER_DAY, tokensPerDay: 1, tokensPerMinute: 1 };
        const key = await t.world.addKey({ [side]: limits });
        await t.admitted(key, asks(unit, first));
        if (refusedBy === null) {
          await t.admitted(key, asks(unit, second));
          continue;
        }
        const refusal = await t.limited(key, asks(unit, second));
        const whose = side === "limits" ? "key" : "owner";
        assert.equal(refusal.which, `${whose}:${refusedBy}`);
        const nowMs = await t.world.time();
        close(refusal.waitMs, DAY_MS - nowMs % DAY_MS, 2_000);
        const other = unit === "images" ? "characters" : "images";
        await t.admitted(key, asks(other, 10));
        await t.admitted(key, { wantTokens: 1 });
        await letDayEnd(t.world.link, key);
        await t.admitted(key, asks(unit, second));
      }
    }
    const unlimited = await t.world.addKey();
    await t.admitted(unlimited, asks("images", 11));
    await t.world.setKey(unlimited, { images_per_day: "11" });
    const { which } = await t.limited(unlimited, asks("images", 0));
    assert.equal(which, "key:images_per_day", "counts what was used before");
  }),
);

/** A request that has ended, and what becomes of that. */
interface Settled {
  readonly cost: Partial<Cost>;
  /** What stays charged for the day. */
  readonly charged: number;
  /** What is counted, by the kinds of its table; null: nothing. */
  readonly counted: readonly (string | null)[];
}

/** Counted are requests, units and errors. */
const UNIT_COSTS: Settled[] = [
  {
    cost: { kind: "complete", unitsMade: 3 },
    charged: 3,
    counted: ["1", "3", null],
  },
  {
    cost: { kind: "complete", unitsMade: 12 },
    charged: 12,
    counted: ["1", "12", null],
  },
  {
    cost: { kind: "failed", unitsMade: 0 },
    charged: 0,
    counted: ["1", null, "1"],
  },
  {
    cost: { kind: "failed", unitsMade: 2 },
    charged: 2,
    counted: ["1", "2", "1"],
  },
  // Settled when a video has ended: the reservation stays until then.
  {
    cost: { kind: "cancelled", unitsMade: null },
    charged: 8,
    counted: ["1", null, null],
  },
  // No worker ran it.
  { cost: { kind: "cancelled" }, charged: 0, counted: ["1", null, null] },
];
/** Counted are requests, prompt tokens, completion tokens and errors. */
const TOKEN_COSTS: Settled[] = [
  {
    cost: { kind: "complete", promptTokens: 100, completionTokens: 400 },
    charged: 500,
    counted: ["1", "100", "400", null],
  },
  {
    cost: { kind: "failed", promptTokens: 0, completionTokens: 0 },
    charged: 0,
    counted: ["1", null, null, "1"],
  },
  {
    cost: { kind: "cancelled", promptTokens: 10, completionTokens: 5 },
    charged: 15,
    counted: ["1", "10", "5", null],
  },
];

/** What is reserved for a request, and what is looked at after its end. */
interface Metered {
  readonly unit: UsageUnit | null;
  readonly reserved: number;
  readonly ask: Partial<Ask>;
  readonly rows: readonly Settled[];
  readonly kinds: readonly string[];
}

const METERED: Metered[] = [
  {
    unit: null,
    reserved: 100,
    ask: {},
    rows: TOKEN_COSTS,
    kinds: ["req", "in", "out", "err"],
  },
  ...(["images", "characters", "audioSeconds"] as const).map((unit) => ({
    unit,
    reserved: 8,
    ask: asks(unit, 8),
    rows: UNIT_COSTS,
    kinds: ["req", USAGE_KINDS[unit], "err"],
  })),
];

Deno.test(
  "a request is settled once: what it used stays charged and is counted, the rest is returned",
  onStage(async (t) => {
    const limits = { ...PER_DAY, tokensPerDay: 10_000, concurrency: 10 };
    for (const { unit, reserved, ask, rows, kinds } of METERED) {
      for (const { cost, charged, counted } of rows) {
        const key = await t.world.addKey({ limits, ownerLimits: limits });
        const request = await t.admitted(key, ask);
        assert.deepEqual(await t.usedToday(key, unit), [reserved, reserved]);
        const ended = {
          ...DONE,
          promptTokens: 0,
          completionTokens: 0,
          ...cost,
        };
        await t.edge.settle(request, ended);
        await t.edge.settle(request, ended);
        assert.deepEqual(await t.usedToday(key, unit), [charged, charged]);
        assert.deepEqual(await t.usage(request, kinds), [counted, counted]);
        for (const leases of [leaseKey(key), ownerLeaseKey(key.ownerId)]) {
          assert.equal(await t.world.command("ZCARD", leases), 0);
        }
      }
    }
  }),
);

Deno.test(
  "a video holds its slot and its seconds until it has ended, and is counted then, once",
  onStage(async (t) => {
    const limits = { videoJobs: 2, videoSecondsPerDay: 20 };
    for (const side of ["limits", "ownerLimits"]) {
      const whose = side === "limits" ? "key" : "owner";
      const key = await t.world.addKey({ [side]: limits });
      const ask = asks("videoSeconds", 8);
      const reservation = await t.admitted(key, ask);
      const failed = await t.admitted(key, ask);
      const { which } = await t.limited(key, ask);
      assert.equal(which, `${whose}:video_seconds_per_day`);
      await t.edge.settle(failed, { ...DONE, kind: "failed", unitsMade: 0 });
      const third = await t.admitted(key, ask);
      for (const request of [reservation, third]) {
        await t.edge.settle(request, { ...DONE, unitsMade: null });
      }
      assert.equal(await t.world.command("ZCARD", leaseKey(key)), 0);
      await letTimePass(t.world.link, { principal: key, ms: 60_000 });
      const slots = await t.limited(key, asks("videoSeconds", 4));
      assert.equal(slots.which, `${whose}:video_jobs`);
      assert.ok(await t.edge.endVideo(reservation, 5));
      assert.equal(await t.edge.endVideo(reservation, 5), null);
      assert.ok(await t.edge.endVideo(third, 0));
      const [ofKey, ofOwner] = await t.usedToday(key, "videoSeconds");
      assert.equal(side === "limits" ? ofKey : ofOwner, 5);
      const [counted] = await t.usage(reservation, ["req", "vis"]);
      assert.deepEqual(counted, ["3", "5"]);
      // One that its engine never ends, or that no edge could register, ends by itself.
      const lost = await t.admitted(key, ask);
      await t.edge.settle(lost, { ...DONE, unitsMade: null });
      const short = asks("videoSeconds", 1);
      await t.admitted(key, short);
      const nowMs = await t.world.time() - LIMITER_EPOCH_MS;
      const names = [
        videoLeaseKey(key),
        ownerVideoLeaseKey(key.ownerId),
      ];
      for (const name of names) {
        const all = ["ZRANGE", name, "0", "-1", "WITHSCORES"];
        const slots = await t.world.command(...all);
        assert.ok(Array.isArray(slots));
        const [, startsByMs, , endsByMs] = slots.map(Number);
        close((startsByMs ?? 0) - nowMs, 15 * 60_000, 60_000);
        close((endsByMs ?? 0) - nowMs, DAY_MS, 60_000);
      }
      assert.equal((await t.limited(key, short)).which, `${whose}:video_jobs`);
      for (const name of names) {
        await t.world.command("ZINCRBY", name, String(-DAY_MS), lost.id);
      }
      await t.admitted(key, short);
      assert.ok(await t.edge.endVideo(lost, 2));
    }
  }),
);
