/** What is charged in money, at the prices that were in force at the admission. */
import {
  USAGE_KINDS,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import type { Catalog } from "@gateway/shared/models/catalog";
import { formatAmount } from "@gateway/shared/money/amount";
import {
  costAt,
  costShares,
  PRICE_NAMES,
  type PriceName,
  type Quantities,
} from "@gateway/shared/money/prices";
import type { Usage } from "@gateway/shared/openai/completion";
import { z } from "zod";
import {
  type Cost,
  type Estimate,
  OUTPUT_TOKENS_DEFAULT,
  tokensOf,
} from "./cost.ts";

/**
 * The prices of a model. Plain data, which is kept with a video: what a request costs
 * is decided when it is admitted.
 */
export const rateSchema = z.object({
  /** The id of the table. */
  table: z.string(),
  /** The price of each quantity; null: the model has no price. */
  prices: z.partialRecord(z.enum(PRICE_NAMES), z.number()).nullable(),
});
/** The prices of a model: {@link rateSchema}, read. */
export type Rate = z.output<typeof rateSchema>;

/** The rate of a model; null where no model has a price. */
export function rateOf(catalog: Catalog, model: string | null): Rate | null {
  const { id } = catalog.prices;
  if (id === null || model === null) return null;
  const prices = catalog.get(model)?.prices;
  return { table: id, prices: prices === undefined ? null : { ...prices } };
}

/** A cost with what it is in money. That of a video is known when it has ended. */
export function priced<Of extends Cost>(
  cost: Of,
  unit: UsageUnit | null,
  rate: Rate | null | undefined,
): Of {
  if (!rate || cost.unitsMade === null) return cost;
  const used = quantitiesOf(cost, unit);
  if (used.requests === 0) return { ...cost, nanos: 0 };
  return rate.prices === null
    ? { ...cost, isUnpriced: true }
    : { ...cost, nanos: costAt(rate.prices, used) };
}

/** What a request with this usage costs, in billionths; null: it has no price. */
export function nanosOfUsage(
  usage: Usage,
  rate: Rate | null | undefined,
  bounds: Estimate["bounds"],
): number | null {
  const cost: Cost = { ...tokensOf(usage, bounds), kind: "complete" };
  return priced(cost, null, rate).nanos ?? null;
}

/** How much of a cost each price makes up, in units of the currency. */
export function sharesOf(
  cost: Cost,
  unit: UsageUnit | null,
  rate: Rate | null | undefined,
): [name: PriceName, units: number][] {
  return cost.nanos
    ? costShares(rate?.prices ?? {}, quantitiesOf(cost, unit))
    : [];
}

/** What a request was charged, and at which prices. */
export interface Charge {
  readonly cost: Cost;
  /** Null: no prices are in force. */
  readonly rate: Rate | null;
}

/** What a line of the log says of a charge. */
export interface ChargeFields {
  readonly cost?: string | undefined;
  readonly isUnpriced?: boolean | undefined;
  readonly priceTable?: string;
}

const NO_CHARGE: ChargeFields = {};

/** What a line of the log says of a charge: nothing where no prices are in force. */
export function chargeFields(charge: Charge | null): ChargeFields {
  if (charge === null || charge.rate === null) return NO_CHARGE;
  const { cost: { nanos, isUnpriced }, rate } = charge;
  return {
    cost: nanos === undefined ? undefined : formatAmount(nanos),
    isUnpriced,
    priceTable: rate.table,
  };
}

/** What a request would cost that uses all that it reserves. */
export function nanosReserved(
  { promptTokens, totalTokens, units }: Omit<Estimate, "bounds">,
  rate: Rate | null,
): number {
  const cost: Cost = {
    promptTokens,
    completionTokens: totalTokens - promptTokens,
    unitsMade: units?.count ?? 0,
    kind: "complete",
  };
  return priced(cost, units?.unit ?? null, rate).nanos ?? 0;
}

/**
 * How many times the estimate of a prompt its tokens may be: estimates are at least 0.4
 * of what tokenizers find (`shared/openai/tokens.ts`).
 */
const PROMPT_BOUND = 2.5;

/** The least that is held for an answer without a bound. */
const OPEN_ANSWER_TOKENS_MIN = 256;

/** The tokens of the answers of a request for which it holds at its admission. */
export function answerTokens(
  { promptTokens, totalTokens, openAnswers }: Estimate,
  learned: number | null,
): number {
  if (openAnswers === undefined) return totalTokens - promptTokens;
  const expected = Math.max(
    OPEN_ANSWER_TOKENS_MIN,
    learned ?? OUTPUT_TOKENS_DEFAULT,
  );
  return Math.min(expected, openAnswers.tokensMax) * openAnswers.count;
}

/**
 * What a request is to hold of budgets, in billionths: the bound of what it may cost,
 * at least 1. Null: it has no price.
 */
export const nanosToHold = (
  estimate: Estimate,
  rate: Rate | null,
  learned: number | null = null,
): number | null => nanosFor(estimate, rate, answerTokens(estimate, learned));

/** The same for answers of this many tokens. */
export function nanosFor(
  { promptTokens, units, heldUnits, bounds }: Estimate,
  rate: Rate | null,
  tokens: number,
): number | null {
  if (rate === null || rate.prices === null) return null;
  const { input = 0, cache_write = 0 } = rate.prices;
  const prices = { ...rate.prices, input: Math.max(input, cache_write) };
  const bound = Math.ceil(promptTokens * PROMPT_BOUND);
  const prompt = Math.min(
    bound,
    Math.max(promptTokens, bounds.promptTokensMax),
  );
  const size = {
    promptTokens: prompt,
    totalTokens: prompt + tokens,
    units: units && { ...units, count: heldUnits ?? units.count },
  };
  return Math.max(1, nanosReserved(size, { ...rate, prices }));
}

/** The buckets of a cost, of which none has a part of another. */
function quantitiesOf(cost: Cost, unit: UsageUnit | null): Quantities {
  const { promptTokens, completionTokens, kind } = cost;
  const { cachedTokens = 0, cacheWriteTokens = 0, unitsMade } = cost;
  const units = unitsMade ?? 0;
  const isUsed = promptTokens + completionTokens + units > 0;
  const isSeconds = unit === "audioSeconds" || unit === "videoSeconds";
  return {
    inputTokens: promptTokens - cachedTokens - cacheWriteTokens,
    cachedTokens,
    cacheWriteTokens,
    outputTokens: completionTokens,
    requests: isUsed || kind === "complete" ? 1 : 0,
    images: unit === "images" ? units : 0,
    seconds: isSeconds ? units : 0,
    characters: unit === "characters" ? units : 0,
  };
}

/** What a lease says of its request, so that it can be charged without its edge. */
export interface LeaseTerms {
  /** When it was admitted by the clock of the edge, to the hour: `2026112809`. */
  readonly hour: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly unit: UsageUnit | null;
  readonly count: number;
  readonly nanos: number;
  readonly isUnpriced: boolean;
  /** The end of usage fields: `@chat:small-1`. */
  readonly suffix: string;
}

const TERMS =
  /^[^~]+~(\d{10})~(\d+)~(\d+)~(\w*)~(\d+)~(\d+)~([01])~([^~]*)(?:~\d+ [^~]*)?$/;

/**
 * Writes the id of a lease with its terms; `name` has no `~`. What it holds of budgets
 * may follow (`lua/budget.lua`).
 */
export function leaseId(name: string, terms: LeaseTerms): string {
  const { hour, promptTokens, completionTokens, count, nanos, suffix } = terms;
  const unit = terms.unit === null ? "" : USAGE_KINDS[terms.unit];
  const size = `${promptTokens}~${completionTokens}~${unit}~${count}`;
  const money = `${nanos}~${terms.isUnpriced ? 1 : 0}`;
  return `${name}~${hour}~${size}~${money}~${suffix}`;
}

/** Reads the id of a lease; null for one without terms. */
export function termsOf(id: string): LeaseTerms | null {
  const parts = TERMS.exec(id);
  if (parts === null) return null;
  const [, hour = "", prompt, completion, counter, count, nanos, unpriced] =
    parts;
  const unit = UNIT_OF_COUNTER.get(counter ?? "") ?? null;
  return {
    hour,
    promptTokens: Number(prompt),
    completionTokens: Number(completion),
    unit,
    count: unit === null ? 0 : Number(count),
    nanos: Number(nanos),
    isUnpriced: unpriced === "1",
    suffix: parts[8] ?? "",
  };
}

const UNIT_OF_COUNTER: ReadonlyMap<string, UsageUnit> = new Map(
  (["images", "characters", "audioSeconds"] as const)
    .map((unit) => [USAGE_KINDS[unit], unit]),
);
