/**
 * The estimated cost of a request before it runs, its actual cost afterwards, and the
 * settlement of both.
 */
import {
  dayLimitField,
  limiterDay,
  USAGE_KINDS,
  USAGE_UNITS,
  usageDay,
  usageHour,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { promptTokens } from "@gateway/shared/openai/tokens";
import * as z from "zod";
import { RunOutcome } from "../dispatch/outcome.ts";

/** What requests without tokens cost: images, characters, or seconds. */
const unitsSchema = z.object({
  unit: z.enum(USAGE_UNITS),
  count: z.number(),
});
export type Units = z.output<typeof unitsSchema>;

/** What a request may cost, estimated before it runs. */
export interface Estimate {
  promptTokens: number;
  /** The tokens to reserve: the prompt, and the answer of each of the `n` choices. */
  totalTokens: number;
  /**
   * What the request costs instead of tokens, or null. A count of 0: not known before
   * it has run.
   */
  units: Units | null;
}

/**
 * Reserved for an answer without `max_tokens`, and for thinking without
 * `thinking_budget`.
 */
const OUTPUT_TOKENS_DEFAULT = 1_024;

/**
 * Estimates a validated request. Example: one message "hello", `max_tokens` 10, `n` 2:
 * 6 + 20 = 26.
 */
export function estimateTokens(
  request: ChatRequest,
  outputTokensMax = Infinity,
): Estimate {
  const { thinking_budget = OUTPUT_TOKENS_DEFAULT, n } = request;
  // Thinking counts as output, and is added where `max_tokens` does not cover both.
  const thinking = request.enable_thinking === true ? thinking_budget : 0;
  const wanted = request.max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinking;
  const prompt = promptTokens(request);
  const totalTokens = prompt + Math.min(wanted, outputTokensMax) * n;
  return { promptTokens: prompt, totalTokens, units: null };
}

export const costsOnly = (unit: UsageUnit, count = 0): Estimate => ({
  promptTokens: 0,
  totalTokens: 0,
  units: { unit, count },
});

/** The cost to settle. Null: unknown, so the reservation stays charged. */
export interface Cost {
  promptTokens: number | null;
  completionTokens: number | null;
  /** The units that were made; null: unknown, as above. Absent: none. */
  unitsMade?: number | null;
  /** Only `failed` counts as an error; a client that disconnects does not. */
  kind: RunOutcome["kind"];
}

/**
 * The rule for what is charged. An unknown cost is never free: otherwise a backend that
 * reports no usage, or a client that always disconnects early, would have no limit.
 *
 * | the request | charge |
 * | --- | --- |
 * | never ran: no worker accepted it | nothing |
 * | the backend reported its usage | that usage |
 * | tokens were received: complete, failed, cut, or its worker lost | the estimated
 * prompt, and these tokens |
 * | complete without usage and without a token | the reservation |
 * | failed before its first token | nothing |
 * | stopped before its first token, as its worker reported | the estimated prompt |
 * | stopped, and its worker did not report the tokens | the reservation |
 *
 * For requests without tokens, the same is true of what was made: images, characters
 * spoken, or seconds. The request that begins a video keeps its reservation, which
 * is settled when the video has ended; it stays charged if the client has left.
 */
export function costOf(run: RunOutcome | null, estimate: Estimate): Cost {
  const { kind, usage, completionTokens, cancelReason, isFinal, dispatchMs } =
    run ?? NEVER_RAN;
  const cost = (promptTokens: number | null, completion: number | null) => ({
    promptTokens,
    completionTokens: completion,
    kind,
  });
  // Closing the connection does not stop a video that the model server has started.
  const mayRunOn = kind === "cancelled" &&
    estimate.units?.unit === "videoSeconds";
  const isUnknown = dispatchMs !== null && completionTokens === 0 &&
    (kind === "complete" || cancelReason !== null && (!isFinal || mayRunOn));
  if (estimate.units !== null) {
    return { ...cost(0, 0), unitsMade: isUnknown ? null : completionTokens };
  }
  if (dispatchMs === null) return cost(0, 0);
  // A prompt has at least one token, so a usage of 0 means that it was not counted.
  if (usage !== null && usage.prompt_tokens + usage.completion_tokens > 0) {
    return cost(usage.prompt_tokens, usage.completion_tokens);
  }
  if (isUnknown) return cost(null, null);
  if (completionTokens === 0 && cancelReason === null) return cost(0, 0);
  return cost(estimate.promptTokens, completionTokens);
}

const NEVER_RAN = Object.assign(new RunOutcome(), {
  kind: "cancelled" as const,
});

/**
 * What an admission reserved, and where that is settled. Plain data, which is kept with
 * a video.
 */
export const reservationSchema = z.object({
  /** Of the lease. */
  id: z.string(),
  principal: z.object({ keyId: z.string(), ownerId: z.string() }),
  model: z.string().nullable(),
  /** The time of the admission, in Unix ms by Redis' clock. */
  atMs: z.number(),
  reservedTokens: z.number(),
  reservedUnits: unitsSchema.nullable(),
});
export type Reservation = z.output<typeof reservationSchema>;

/** What is to be settled of an admission. */
export interface Settlement {
  readonly reservation: Reservation;
  /**
   * Null: the admission, which may or may not have happened, is undone, including the
   * request it counted.
   */
  readonly cost: Cost | null;
  /** Of the video that the request has started. */
  readonly isVideo?: boolean;
  /** An attempt may have succeeded without a reply. */
  readonly mayHaveRun?: boolean;
}

const HOUR_MS = 3_600_000;

/** Settlements with the same account can be made in one call. */
export function accountOf({ reservation, cost, isVideo }: Settlement): string {
  const { principal, model, atMs, reservedUnits } = reservation;
  const hour = cost === null ? "" : Math.floor(atMs / HOUR_MS);
  const unit = reservedUnits?.unit ?? "";
  const end = unit === "videoSeconds" ? `${cost?.kind} ${isVideo}` : "";
  return [principal.keyId, hour, unit, end, model].join(" ");
}

/**
 * The KEYS and ARGV of the script that makes settlements of one account, at least one.
 */
export function settleCall(
  settlements: readonly Settlement[],
): { keys: readonly string[]; args: readonly string[] } {
  const [first] = settlements;
  if (first === undefined) throw new Error("There is nothing to settle");
  const { reservation, cost, isVideo = false } = first;
  const { principal, model, atMs } = reservation;
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
      model ?? "",
      unit === null ? "" : USAGE_KINDS[unit],
      unit === null ? "" : dayLimitField(unit),
      cost?.kind === "complete" ? "1" : "0",
      ...settlements.flatMap(amountsOf),
    ],
  };
}

/** The lease, and what is to be returned and counted. */
function amountsOf(
  { reservation, cost, isVideo = false, mayHaveRun = false }: Settlement,
): string[] {
  const { id, reservedTokens, reservedUnits } = reservation;
  const { promptTokens = 0, completionTokens = 0, unitsMade = 0, kind } =
    cost ?? {};
  const used = promptTokens === null || completionTokens === null
    ? reservedTokens
    : promptTokens + completionTokens;
  const reserved = reservedUnits?.count ?? 0;
  const amounts = [
    used - reservedTokens,
    cost === null ? 1 : 0,
    isVideo ? 0 : 1,
    promptTokens ?? 0,
    completionTokens ?? 0,
    kind === "failed" ? 1 : 0,
    unitsMade ?? 0,
    (unitsMade ?? reserved) - reserved,
  ];
  // If the lease is gone otherwise, there is nothing to do.
  const mustHaveLease = cost === null || isVideo || mayHaveRun;
  return [id, mustHaveLease ? "" : "1", ...amounts.map(String)];
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
