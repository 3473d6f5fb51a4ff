/** What is settled of an admission, and the script call that does it. */
import {
  dayLimitField,
  HOUR_MS,
  limiterDay,
  USAGE_ENDPOINTS,
  USAGE_KINDS,
  usageDay,
  usageHour,
  usageSuffix,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { z } from "zod";
import { type Cost, unitsSchema } from "./cost.ts";
import type { LeaseHold } from "./budgets/lease_budgets.ts";
import { priced, rateSchema } from "./rate.ts";

/**
 * What an admission reserved, and where that is settled. Plain data, which is kept with
 * a video.
 */
export const reservationSchema = z.object({
  /** The id of the lease. */
  id: z.string(),
  principal: z.object({ keyId: z.string(), ownerId: z.string() }),
  model: z.string().nullable(),
  /** Absent in reservations that an earlier version has kept. */
  endpoint: z.enum(USAGE_ENDPOINTS).nullish(),
  /** The time of the admission, in Unix ms by Redis' clock. */
  atMs: z.number(),
  reservedTokens: z.number(),
  reservedUnits: unitsSchema.nullable(),
  /** The prices in force at the admission; null or absent: there were none. */
  rate: rateSchema.nullish(),
  /** Whether it holds something of budgets; null or absent: not known. */
  isHeld: z.boolean().nullish(),
});
/** What an admission reserved: {@link reservationSchema}, read. */
export type Reservation = z.output<typeof reservationSchema>;

/** What is to be settled of an admission. */
export interface Settlement {
  readonly reservation: Reservation;
  /**
   * Null: the admission, which may or may not have happened, is undone, including the
   * request it counted.
   */
  readonly cost: Cost | null;
  /** Whether the lease is that of a video that the request has started. */
  readonly isVideo?: boolean;
  /** An attempt may have succeeded without a reply. */
  readonly mayHaveRun?: boolean;
  /** Whether other edges may settle it, too: the first one does. */
  readonly isShared?: boolean;
  /** Whether the edge is lost: then what was reserved is charged. */
  readonly isLost?: boolean;
  /** What it holds of budgets; null or absent: Redis has to look for it. */
  readonly hold?: LeaseHold | null;
}

/** Settlements with the same account can be made in one call. */
export function accountOf(
  { reservation, cost, isVideo, hold }: Settlement,
): string {
  const { principal, model, endpoint, atMs, reservedUnits } = reservation;
  const hour = cost === null ? "" : Math.floor(atMs / HOUR_MS);
  const unit = reservedUnits?.unit ?? "";
  const end = unit === "videoSeconds" ? `${cost?.kind} ${isVideo}` : "";
  const budgets = hold?.budgets ?? "";
  return `${principal.keyId} ${hour} ${unit} ${end} ${endpoint} ${model} ${budgets}`;
}

/**
 * The KEYS and ARGV of the script that makes settlements of one account, at least one.
 */
export function settleCall(
  settlements: readonly Settlement[],
): { keys: readonly string[]; args: readonly string[] } {
  const [first] = settlements;
  if (first === undefined) throw new Error("There is nothing to settle");
  const { reservation, cost, isVideo = false, hold } = first;
  const { principal, model, endpoint, atMs } = reservation;
  const { ownerId } = principal;
  const unit = reservation.reservedUnits?.unit ?? null;
  const day = usageDay(atMs);
  const [lease, ownerLease] = isVideo
    ? [record.videoLeaseKey, record.ownerVideoLeaseKey]
    : [record.leaseKey, record.ownerLeaseKey];
  return {
    keys: [
      record.limiterKey(principal),
      lease(principal),
      record.ownerLimiterKey(ownerId),
      ownerLease(ownerId),
      record.usageKey(principal, day),
      record.ownerUsageKey(ownerId, day),
      ...isVideo ? [] : videoKeys(principal, unit),
    ],
    args: [
      cost === null ? "" : String(limiterDay(atMs)),
      cost === null ? "" : usageHour(atMs),
      usageSuffix({ model: model ?? "", endpoint }),
      unit === null ? "" : USAGE_KINDS[unit],
      unit === null ? "" : dayLimitField(unit),
      cost?.kind === "complete" ? "1" : "0",
      hold?.budgets ?? "",
    ].concat(...settlements.map(amountsOf)),
  };
}

/** The lease, and what is to be returned and counted. */
function amountsOf(
  { reservation, cost, isVideo, mayHaveRun, isLost, isShared, hold }:
    Settlement,
): string[] {
  const { id, reservedTokens, reservedUnits, isHeld } = reservation;
  const { promptTokens = 0, completionTokens = 0, unitsMade = 0, kind } =
    cost ?? {};
  const { cachedTokens = 0, cacheWriteTokens = 0, nanos = 0 } = cost ?? {};
  const reserved = reservedUnits?.count ?? 0;
  // Others may have settled it, or have charged it as lost.
  const isOnlyOurs = !mayHaveRun && !isShared;
  const held = isHeld === false ? "" : isOnlyOurs && hold ? hold.nanos : "?";
  // If the lease is gone otherwise, there is nothing to do.
  const mustHaveLease = cost === null || isVideo || mayHaveRun || isLost ||
    isShared;
  return [
    id,
    mustHaveLease ? "" : "1",
    String(promptTokens + completionTokens - reservedTokens),
    cost === null ? "1" : "0",
    isVideo ? "0" : "1",
    String(promptTokens),
    String(completionTokens),
    kind === "failed" ? "1" : "0",
    String(cachedTokens),
    String(cacheWriteTokens),
    String(unitsMade ?? 0),
    String((unitsMade ?? reserved) - reserved),
    String(nanos),
    cost?.isUnpriced ? "1" : "0",
    isLost ? "1" : "0",
    String(held),
  ];
}

/** The end of a video of which this many seconds were made; 0: it failed. */
export function videoEnd(
  reservation: Reservation,
  seconds: number,
): Settlement {
  const kind = seconds > 0 ? "complete" : "failed";
  const usage = { promptTokens: 0, completionTokens: 0, unitsMade: seconds };
  const cost = priced({ ...usage, kind }, "videoSeconds", reservation.rate);
  // Only its request can fail, which was counted as such.
  return { reservation, cost: { ...cost, kind: "complete" }, isVideo: true };
}

/** The leases of the videos of a key and its owner, if that is what a request makes. */
export const videoKeys = (
  principal: record.Principal,
  unit: UsageUnit | null,
) =>
  unit === "videoSeconds"
    ? [
      record.videoLeaseKey(principal),
      record.ownerVideoLeaseKey(principal.ownerId),
    ]
    : [];
