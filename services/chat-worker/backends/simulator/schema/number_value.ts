import { integerBetween } from "../sampling/random.ts";
import type { GeneratorContext } from "./context.ts";

/** Where a schema leaves one end open, numbers stay this near to the other. */
const SPAN = 100;

/** The numbers a schema allows, ends included. */
interface NumberRange {
  min: number;
  max: number;
  /** The numbers are its multiples. 0: any. */
  step: number;
}

/** Numbers to try for a schema, best first: those of the request, then new ones in its range. */
export function* numberCandidates(
  keywords: { [keyword: string]: unknown },
  isInteger: boolean,
  context: GeneratorContext,
): Generator<number> {
  yield* context.hints.numbers();
  const range = rangeOf(keywords, isInteger);
  const { min, max, step } = range;
  if (step > 0) {
    const first = Math.ceil(min / step - 1e-9);
    const last = Math.floor(max / step + 1e-9);
    yield cleanProduct(integerBetween(context.random, first, last), step);
    yield cleanProduct(first, step);
    yield cleanProduct(last, step);
  } else {
    yield Number((min + context.random() * (max - min)).toFixed(2));
    yield (min + max) / 2;
  }
  yield min;
  yield max;
}

function rangeOf(
  keywords: { [keyword: string]: unknown },
  isInteger: boolean,
): NumberRange {
  const given = numberOf(keywords.multipleOf) ?? 0;
  const step = isInteger ? wholeStep(given) : Math.max(0, given);
  // Where an end is excluded, the nearest number beside it that is easy to write.
  const gap = step > 0 ? step : 0.01;
  const low = maxOf(
    numberOf(keywords.minimum),
    shifted(numberOf(keywords.exclusiveMinimum), gap, isInteger),
  );
  const high = minOf(
    numberOf(keywords.maximum),
    shifted(numberOf(keywords.exclusiveMaximum), -gap, isInteger),
  );
  const span = Math.max(SPAN, SPAN * step);
  const min = low ?? (high === undefined ? 0 : Math.min(0, high - span));
  return { min, max: high ?? Math.max(min, 0) + span, step };
}

/** The step of integers that are multiples of `given`: 1 for none, 1 for 0.5. */
function wholeStep(given: number): number {
  return given > 0 && Number.isInteger(given) ? given : 1;
}

function shifted(
  bound: number | undefined,
  gap: number,
  isInteger: boolean,
): number | undefined {
  if (bound === undefined) return undefined;
  if (!isInteger) return bound + gap;
  return gap > 0 ? Math.floor(bound) + 1 : Math.ceil(bound) - 1;
}

function cleanProduct(count: number, step: number): number {
  // 3 * 0.1 is 0.30000000000000004; nobody would write that.
  return Number((count * step).toPrecision(12));
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value)
    ? value
    : undefined;
}

function maxOf(one?: number, other?: number): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.max(one, other);
}

function minOf(one?: number, other?: number): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.min(one, other);
}
