/**
 * The estimated cost of a request before it runs, its actual cost afterwards, and the
 * settlement of both.
 */
import {
  dayLimitField,
  limiterDay,
  USAGE_ENDPOINTS,
  USAGE_KINDS,
  USAGE_UNITS,
  usageDay,
  usageHour,
  usageSuffix,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import { TOKEN_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { promptTokens } from "@gateway/shared/openai/tokens";
import * as z from "zod";
import type { RunOutcome } from "../dispatch/outcome.ts";

/** What requests without tokens cost: images, characters, or seconds. */
const unitsSchema = z.object({
  unit: z.enum(USAGE_UNITS),
  count: z.number(),
});
/** An amount of one unit: `{ unit: "images", count: 2 }`. */
export type Units = z.output<typeof unitsSchema>;

/** What a request may cost, estimated before it runs. */
export interface Estimate {
  promptTokens: number;
  /** The tokens to reserve: the prompt, and the answer of each of the `n` choices. */
  totalTokens: number;
  /** The largest counts of a model server that are believed. */
  bounds: { promptTokensMax: number; completionTokensMax: number };
  /**
   * What the request costs instead of tokens, or null. A count of 0: not known before
   * it has run.
   */
  units: Units | null;
}

/** What the list of models says of the lengths of a model; absent: not known. */
export interface ModelLengths {
  /** The longest answer. */
  output_tokens?: number | undefined;
  /** The longest prompt together with its answer. */
  context_tokens?: number | undefined;
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
  { output_tokens = Infinity, context_tokens }: ModelLengths = {},
): Estimate {
  const { thinking_budget = OUTPUT_TOKENS_DEFAULT, max_tokens, n } = request;
  // Thinking counts as output, and is added where `max_tokens` does not cover both.
  const isThinking = request.enable_thinking === true;
  const thinking = isThinking ? thinking_budget : 0;
  const answerTokens = max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinking;
  const prompt = promptTokens(request);
  const contextTokens = context_tokens ?? TOKEN_LIMITS.contextTokensMax;
  // A server may count thinking beside `max_tokens`.
  const longest = max_tokens === undefined
    ? contextTokens
    : Math.min(max_tokens + thinking, contextTokens);
  return {
    promptTokens: prompt,
    totalTokens: prompt + Math.min(answerTokens, output_tokens) * n,
    bounds: {
      promptTokensMax: Math.max(prompt, contextTokens),
      completionTokensMax: longest * n,
    },
    units: null,
  };
}

/** What is known of the size of a request that generates tokens. */
export interface GenerationSize {
  promptTokens: number;
  /** How many answers are asked for. */
  choices: number;
  /** The longest answer; null: the client has set no bound. */
  outputTokensMax: number | null;
}

/** Estimates a request of which only the size is known. */
export function estimateGeneration(
  { promptTokens, choices, outputTokensMax }: GenerationSize,
  { output_tokens = Infinity, context_tokens }: ModelLengths,
): Estimate {
  const contextTokens = context_tokens ?? TOKEN_LIMITS.contextTokensMax;
  const answerTokens = outputTokensMax ?? OUTPUT_TOKENS_DEFAULT;
  const longest = Math.min(outputTokensMax ?? contextTokens, contextTokens);
  return {
    promptTokens,
    totalTokens: promptTokens + Math.min(answerTokens, output_tokens) * choices,
    bounds: {
      promptTokensMax: Math.max(promptTokens, contextTokens),
      completionTokensMax: longest * choices,
    },
    units: null,
  };
}

/** The estimate of a request that costs nothing. */
export function costsNothing(): Estimate {
  return {
    promptTokens: 0,
    totalTokens: 0,
    bounds: { promptTokensMax: 0, completionTokensMax: 0 },
    units: null,
  };
}

/** The estimate of a request that costs units; a count of 0: not known yet. */
export function costsOnly(unit: UsageUnit, count = 0): Estimate {
  return {
    promptTokens: 0,
    totalTokens: 0,
    bounds: { promptTokensMax: 0, completionTokensMax: 0 },
    units: { unit, count },
  };
}

/** What a request is charged: the same in limits, usage and metrics. */
export interface Cost {
  promptTokens: number;
  completionTokens: number;
  /** Of the prompt tokens, those that a cache had. Absent: none are known. */
  cachedTokens?: number;
  /** Of the prompt tokens, those that were written to a cache. */
  cacheWriteTokens?: number;
  /**
   * The units that were made. Null: settled when the video has ended, until then the
   * reservation stays charged. Absent: none.
   */
  unitsMade?: number | null;
  /** Only `failed` counts as an error; a client that disconnects does not. */
  kind: RunOutcome["kind"];
}

/**
 * The one rule for what is charged. Charged is the largest of
 *
 * - what the model server has stated so far,
 * - what was passed on, estimated from the text,
 * - where a server works as a whole (images, transcriptions), what was started there
 *   and is not known to have stopped.
 *
 * It makes no difference when the client leaves. The worker finds the largest of the
 * three, and its last frame says so (`completionTokens`). What is not known is never
 * free: otherwise a backend that reports no usage would have no limit.
 *
 * | the request | charge |
 * | --- | --- |
 * | never ran: no worker accepted it | nothing |
 * | the backend reported its usage | that usage, as far as it is possible |
 * | something was received: complete, failed, cut, or its worker lost | the estimated
 * prompt, and the largest of the three |
 * | complete without usage and without a token | the reservation |
 * | failed before its first token | nothing |
 * | stopped before its first token, as its worker reported | the estimated prompt |
 * | stopped, and its worker did not report the tokens | the reservation |
 *
 * For requests without tokens, the same is true of what was made: images, characters
 * spoken, or seconds. The request that begins a video keeps its reservation, which
 * is settled when the video has ended. A client that leaves before it learns the id of
 * its video is charged all of it, because the model server may make it.
 */
export function costOf(run: RunOutcome | null, estimate: Estimate): Cost {
  const { kind, dispatchMs } = run ?? NEVER_RAN;
  if (run === null || dispatchMs === null) {
    const nothing = { promptTokens: 0, completionTokens: 0, kind };
    return estimate.units === null ? nothing : { ...nothing, unitsMade: 0 };
  }
  return estimate.units === null
    ? costInTokens(run, estimate)
    : costInUnits(run, estimate.units);
}

const NEVER_RAN = { kind: "cancelled", dispatchMs: null } as const;

/** Whether nobody can say what a run has made, so that it may be all that was asked. */
function isUnknown(run: RunOutcome): boolean {
  const { kind, completionTokens, cancelReason, isFinal } = run;
  if (completionTokens > 0) return false;
  return kind === "complete" || (cancelReason !== null && !isFinal);
}

function costInTokens(run: RunOutcome, estimate: Estimate): Cost {
  const { kind, usage, completionTokens, cancelReason, answerBytes } = run;
  const { promptTokensMax, completionTokensMax } = estimate.bounds;
  // A token has at least one byte, so an answer that ignores `max_tokens` still counts.
  const completionMax = Math.max(completionTokensMax, answerBytes);
  // A prompt has at least one token, so a usage of 0 means that it was not counted.
  if (usage !== null && usage.prompt_tokens + usage.completion_tokens > 0) {
    const promptTokens = Math.min(usage.prompt_tokens, promptTokensMax);
    return {
      promptTokens,
      completionTokens: Math.min(usage.completion_tokens, completionMax),
      ...cachedIn(usage, promptTokens),
      kind,
    };
  }
  const { promptTokens, totalTokens } = estimate;
  if (isUnknown(run)) {
    return { promptTokens, completionTokens: totalTokens - promptTokens, kind };
  }
  const hasBegun = completionTokens > 0 || cancelReason !== null;
  return {
    promptTokens: hasBegun ? promptTokens : 0,
    completionTokens: Math.min(completionTokens, completionMax),
    kind,
  };
}

/** What a server says of its cache, as far as the prompt has so many tokens. */
function cachedIn(
  { prompt_tokens_details: details }: Usage,
  promptTokens: number,
): Pick<Cost, "cachedTokens" | "cacheWriteTokens"> {
  if (details === undefined) return {};
  const { cached_tokens, cache_write_tokens = 0 } = details;
  const cachedTokens = Math.min(cached_tokens, promptTokens);
  const cacheWriteTokens = Math.min(
    cache_write_tokens,
    promptTokens - cachedTokens,
  );
  return { cachedTokens, cacheWriteTokens };
}

function costInUnits(run: RunOutcome, { unit, count }: Units): Cost {
  const { kind, completionTokens } = run;
  const none = { promptTokens: 0, completionTokens: 0, kind };
  if (unit === "videoSeconds" && kind === "complete") {
    return { ...none, unitsMade: null };
  }
  // Closing the connection does not stop a video that the model server has started.
  const runsOn = unit === "videoSeconds" && kind === "cancelled";
  const isWhole = isUnknown(run) || runsOn;
  return { ...none, unitsMade: isWhole ? count : completionTokens };
}

/**
 * What an admission reserved, and where that is settled. Plain data, which is kept with
 * a video.
 */
export const reservationSchema = z.object({
  /** The id of the lease. */
  id: z.string(),
  principal: z.object({ keyId: z.string(), ownerId: z.string() }),
  model: z.string().nullable(),
  /** Absent in what an earlier version has kept. */
  endpoint: z.enum(USAGE_ENDPOINTS).nullish(),
  /** The time of the admission, in Unix ms by Redis' clock. */
  atMs: z.number(),
  reservedTokens: z.number(),
  reservedUnits: unitsSchema.nullable(),
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
}

const HOUR_MS = 3_600_000;

/** Settlements with the same account can be made in one call. */
export function accountOf({ reservation, cost, isVideo }: Settlement): string {
  const { principal, model, endpoint, atMs, reservedUnits } = reservation;
  const hour = cost === null ? "" : Math.floor(atMs / HOUR_MS);
  const unit = reservedUnits?.unit ?? "";
  const end = unit === "videoSeconds" ? `${cost?.kind} ${isVideo}` : "";
  return [principal.keyId, hour, unit, end, endpoint, model].join(" ");
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
  const { cachedTokens = 0, cacheWriteTokens = 0 } = cost ?? {};
  const reserved = reservedUnits?.count ?? 0;
  const amounts = [
    promptTokens + completionTokens - reservedTokens,
    cost === null ? 1 : 0,
    isVideo ? 0 : 1,
    promptTokens,
    completionTokens,
    kind === "failed" ? 1 : 0,
    cachedTokens,
    cacheWriteTokens,
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
