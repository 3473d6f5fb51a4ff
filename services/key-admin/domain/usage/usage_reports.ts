/** Usage of a span: in all, by its bars, by model and endpoint, and by parts. */
import type { WallNow } from "@gateway/shared/process/clock";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import pLimit from "p-limit";
import {
  addCounts,
  type Counted,
  countOf,
  type Counts,
  isUsed,
  plusUtcDays,
  readDay,
  readDays,
  sumOf,
  usageHash,
  type UsageScope,
  withoutCounts,
} from "../keys/usage.ts";
import { inBatches } from "../store/hashes.ts";
import { asList, asTexts } from "../store/redis.ts";
import { GATEWAY, lastSummedDay, readSums } from "./day_sums.ts";
import partsLua from "./lua/parts.lua" with { type: "text" };
import type { UsageSpan } from "./span.ts";

/** The groups that bars may be stacked by. */
export const GROUPINGS = ["model", "endpoint", "key", "account"] as const;
/** One of the {@link GROUPINGS}. */
export type Grouping = typeof GROUPINGS[number];

/** A part of all bars. */
export interface UsageGroup {
  /** A model, an endpoint, the id of a key or account; null for all others together. */
  readonly id: string | null;
  readonly total: Counts;
  /** As `marks` of the span. */
  readonly buckets: readonly Counts[];
}

/** A part that bars may be stacked by. */
export interface UsagePart {
  /** The id of a key or an account. */
  readonly id: string;
  readonly scope: UsageScope;
}

/** The usage of a span. */
export interface UsageReport {
  readonly span: UsageSpan;
  /** The counts of each of the span's `marks`. */
  readonly buckets: readonly Counts[];
  readonly total: Counts;
  /** By model; empty for one that does not exist, and counts of earlier versions. */
  readonly models: ReadonlyMap<string, Counts>;
  /** By endpoint; empty if none is known, as in counts of earlier versions. */
  readonly endpoints: ReadonlyMap<string, Counts>;
}

/** Parts of a bar that have a place of their own; the others share one. */
export const GROUPS_MAX = 8;
/** Accounts that are read at the same time. */
const READS = 64;
/** Parts that one script call adds up, so that admissions hardly wait for it. */
const PARTS_AT_ONCE = 25;
/** Calls at the same time, after which admissions get their turn. */
const CALLS = 2;
/** The hours of a UTC day, and that of a day whose hours were added up. */
const HOURS = [
  ...Array.from({ length: 24 }, (_, hour) => String(hour).padStart(2, "0")),
  "",
];
const PARTS_SCRIPT = defineScript("key-admin/usage-parts", partsLua, {});
/** The usage of all accounts today is read again after this time. */
const TODAY_MS = 20_000;

/** Dependencies of {@link UsageReports}. */
export interface UsageReportsDeps {
  readonly redis: RedisLink;
  readonly now: WallNow;
  readonly people: { accountIds: () => Promise<string[]> };
}

/** The counters of a UTC day of all accounts, and the time when they were read. */
interface HeldDay {
  readonly readAtMs: number;
  readonly counted: Promise<Counted[]>;
}

/** Reads usage; `ownerId` may be {@link GATEWAY}. */
export class UsageReports {
  readonly #deps: UsageReportsDeps;
  /** Days of the gateway whose sums are not there yet. */
  readonly #held = new Map<string, HeldDay>();

  constructor(deps: UsageReportsDeps) {
    this.#deps = deps;
  }

  /** Reads the usage in a span. */
  async read(scope: UsageScope, span: UsageSpan): Promise<UsageReport> {
    return (await this.#read(scope, span, null)).report;
  }

  /** The same, with the parts that bars are stacked by, the largest first. */
  async readBy(
    scope: UsageScope,
    span: UsageSpan,
    { by, countMax = GROUPS_MAX }: {
      by: "model" | "endpoint";
      /** Parts that are not among the others. */
      countMax?: number;
    },
  ): Promise<UsageReport & { groups: UsageGroup[] }> {
    const { report, grouped } = await this.#read(scope, span, by);
    const parts = new Map(
      Array.from(grouped, ([id, buckets]) => [id, totalOf(buckets)]),
    );
    const groups = largest(parts, countMax).map((id) => ({
      id,
      total: parts.get(id) ?? {},
      buckets: grouped.get(id) ?? [],
    }));
    return { ...report, groups: withOthers(report, groups) };
  }

  /** Reads the usage of each of these keys, or with {@link GATEWAY} accounts. */
  async parts(
    { ownerId }: Pick<UsageScope, "ownerId">,
    span: UsageSpan,
    ids: readonly string[],
  ): Promise<Map<string, Counts>> {
    const { redis } = this.#deps;
    const { from, to, others } = summedDays(span, await lastSummedDay(redis));
    const sums = new Map<string, Counts>();
    if (from !== null && to !== null) {
      const [before, after] = await Promise.all([
        readSums(redis, ownerId, plusUtcDays(from, -1)),
        readSums(redis, ownerId, to),
      ]);
      for (const id of ids) {
        sums.set(id, withoutCounts(after.get(id) ?? {}, before.get(id) ?? {}));
      }
    }
    for (const day of others) {
      await this.#addParts(sums, { wholeId: ownerId, day, ids }, span);
    }
    return new Map([...sums].filter(([, counts]) => isUsed(counts)));
  }

  /** Adds what these parts used on a UTC day, as far as it is in the span. */
  async #addParts(
    sums: Map<string, Counts>,
    { wholeId, day, ids }: {
      wholeId: string;
      day: string;
      ids: readonly string[];
    },
    span: UsageSpan,
  ): Promise<void> {
    const hours = HOURS.filter((hour) => span.markOf(day, hour) !== null);
    if (hours.length === 0) return;
    await pLimit(CALLS).map(inBatches(ids, PARTS_AT_ONCE), async (some) => {
      const keys = some.map((id) => usageHash(partOf(wholeId, id), day));
      const counted = await this.#addedUp(keys, hours);
      for (const [place, counts] of counted.entries()) {
        addCounts(sumOf(sums, some[place] ?? ""), counts);
      }
    });
  }

  /** Returns these parts of a report with their bars, and the others together. */
  async groupsOf(
    report: UsageReport,
    parts: readonly UsagePart[],
  ): Promise<UsageGroup[]> {
    const { span } = report;
    const shares = span.unit === "day" ? sharesOf(span) : null;
    const groups = await Promise.all(
      parts.map(async ({ id, scope }) => {
        const buckets = shares === null
          ? (await this.read(scope, span)).buckets
          : await this.#bars(scope, span, shares);
        return { id, total: totalOf(buckets), buckets };
      }),
    );
    return withOthers(report, groups);
  }

  /** The bars of a part, which Redis adds up: nothing of its models is shown. */
  async #bars(
    scope: UsageScope,
    span: UsageSpan,
    shares: readonly DayShares[],
  ): Promise<Counts[]> {
    const buckets: Counts[] = span.marks.map(() => ({}));
    for (const { hours, days } of shares) {
      await pLimit(CALLS).map(inBatches(days, PARTS_AT_ONCE), async (some) => {
        const keys = some.map(({ day }) => usageHash(scope, day));
        const sums = await this.#addedUp(keys, hours);
        for (const [place, counts] of sums.entries()) {
          const bucket = buckets[some[place]?.at ?? -1];
          if (bucket !== undefined) addCounts(bucket, counts);
        }
      });
    }
    return buckets;
  }

  /** What was counted in these hashes in some of their hours. */
  async #addedUp(
    keys: readonly string[],
    hours: readonly string[],
  ): Promise<Counts[]> {
    const call = { keys, args: hours };
    const reply = await this.#deps.redis.evalScript(PARTS_SCRIPT, call);
    return asList(reply).map((part) => {
      const flat = asTexts(part);
      const counts: Counts = {};
      for (let at = 0; at < flat.length; at += 2) {
        const name = countOf(flat[at] ?? "");
        if (name !== undefined) counts[name] = Number(flat[at + 1]);
      }
      return counts;
    });
  }

  async #read(scope: UsageScope, span: UsageSpan, by: Grouping | null) {
    const buckets: Counts[] = span.marks.map(() => ({}));
    const total: Counts = {};
    const models = new Map<string, Counts>();
    const endpoints = new Map<string, Counts>();
    const grouped = new Map<string, Counts[]>();
    const days = await this.#days(scope, span.utcDays);
    for (const [place, day] of span.utcDays.entries()) {
      for (const counted of days[place] ?? []) {
        const { name, count, hour, model, endpoint } = counted;
        const at = span.markOf(day, hour);
        const bucket = at === null ? undefined : buckets[at];
        if (at === null || bucket === undefined) continue;
        const sums = [
          bucket,
          total,
          sumOf(models, model),
          sumOf(endpoints, endpoint),
        ];
        if (by === "model" || by === "endpoint") {
          sums.push(groupOf(grouped, counted[by], buckets.length)[at] ?? {});
        }
        for (const sum of sums) sum[name] = (sum[name] ?? 0) + count;
      }
    }
    return { report: { span, buckets, total, models, endpoints }, grouped };
  }

  /** The counters of each of these UTC days. */
  async #days(
    scope: UsageScope,
    days: readonly string[],
  ): Promise<Counted[][]> {
    const { redis } = this.#deps;
    if (scope.ownerId !== GATEWAY) return await readDays(redis, scope, days);
    const summedDay = await lastSummedDay(redis);
    const summed = days.filter((day) => day <= summedDay);
    const others = days.filter((day) => day > summedDay);
    return [
      ...await readDays(redis, scope, summed),
      ...await Promise.all(others.map((day) => this.#gatewayDay(day))),
    ];
  }

  /** The counters of a UTC day of the gateway, which are added up while they grow. */
  async #gatewayDay(day: string): Promise<Counted[]> {
    const { now } = this.#deps;
    const held = this.#held.get(day);
    if (held !== undefined && now() - held.readAtMs < TODAY_MS) {
      return await held.counted;
    }
    const counted = this.allAccounts(day);
    this.#held.set(day, { readAtMs: now(), counted });
    for (const old of this.#held.keys()) {
      if (old < plusUtcDays(day, -2)) this.#held.delete(old);
    }
    return await counted;
  }

  /** The counters of all accounts together on a UTC day. */
  async allAccounts(day: string): Promise<Counted[]> {
    const { redis, people } = this.#deps;
    const sums = new Map<string, Counted>();
    const place = pLimit(READS);
    await place.map(await people.accountIds(), async (ownerId) => {
      const scope = { ownerId, keyId: null };
      for (const counted of await readDay(redis, scope, day)) {
        const { name, hour, endpoint, model } = counted;
        const at = `${name} ${hour} ${endpoint} ${model}`;
        const sum = sums.get(at);
        if (sum === undefined) sums.set(at, counted);
        else sum.count += counted.count;
      }
    });
    return [...sums.values()];
  }
}

/** The accounts that have a place of their own in bars: the largest ones. */
export const accountParts = (
  used: ReadonlyMap<string, Counts>,
): UsagePart[] =>
  largest(used).map((id) => ({ id, scope: { ownerId: id, keyId: null } }));

/** A key of an account, or an account of the gateway. */
const partOf = (wholeId: string, id: string): UsageScope =>
  wholeId === GATEWAY
    ? { ownerId: id, keyId: null }
    : { ownerId: wholeId, keyId: id };

/**
 * The first and the last of the UTC days that are in the span as a whole and whose sums
 * are there, which follow each other; and the others.
 */
function summedDays(span: UsageSpan, lastDay: string) {
  const isWhole = (day: string) =>
    day <= lastDay && span.markOf(day, "00") !== null &&
    span.markOf(day, "23") !== null;
  const whole = span.utcDays.filter(isWhole);
  return {
    from: whole[0] ?? null,
    to: whole.at(-1) ?? null,
    others: span.utcDays.filter((day) => !isWhole(day)),
  };
}

/** Days of which the same hours belong to one bar, and the places of these bars. */
interface DayShares {
  readonly hours: readonly string[];
  readonly days: { day: string; at: number }[];
}

/** Divides a span of days by which hours of a UTC day belong to the same bar. */
function sharesOf({ utcDays, markOf }: UsageSpan): DayShares[] {
  const shares = new Map<string, DayShares>();
  for (const day of utcDays) {
    const byBar = Map.groupBy(HOURS, (hour) => markOf(day, hour));
    for (const [at, hours] of byBar) {
      if (at === null) continue;
      const share = shares.get(hours.join()) ?? { hours, days: [] };
      share.days.push({ day, at });
      shares.set(hours.join(), share);
    }
  }
  return [...shares.values()];
}

/** The bars of a group, which may be new. */
function groupOf(
  grouped: Map<string, Counts[]>,
  id: string,
  count: number,
): Counts[] {
  const buckets = grouped.get(id) ??
    Array.from({ length: count }, (): Counts => ({}));
  grouped.set(id, buckets);
  return buckets;
}

function totalOf(buckets: readonly Counts[]): Counts {
  const total: Counts = {};
  for (const bucket of buckets) addCounts(total, bucket);
  return total;
}

/** The ids of the largest parts, by requests. */
const largest = (
  parts: ReadonlyMap<string, Counts>,
  countMax = GROUPS_MAX,
): string[] =>
  [...parts]
    .sort(([, a], [, b]) => sizeOf(b) - sizeOf(a))
    .slice(0, countMax).map(([id]) => id);

/** The number that parts are compared by. */
export const sizeOf = ({ requests = 0, refused = 0 }: Counts): number =>
  requests + refused / 1e9;

/** The groups, and what is in none of them, if anything is. */
function withOthers(
  { buckets, total }: UsageReport,
  groups: UsageGroup[],
): UsageGroup[] {
  const others = { id: null, total, buckets };
  const rest = groups.reduce<UsageGroup>((rest, group) => ({
    id: null,
    total: withoutCounts(rest.total, group.total),
    buckets: rest.buckets.map((bucket, at) =>
      withoutCounts(bucket, group.buckets[at] ?? {})
    ),
  }), others);
  return isUsed(rest.total) ? [...groups, rest] : groups;
}
