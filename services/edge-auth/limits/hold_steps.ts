/**
 * Lets running answers hold more of budgets: one that passes what it holds reserves its
 * next step, so that other requests see what it is about to cost.
 */
import { limiterKey, ownerLimiterKey } from "@gateway/shared/keys/record";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { Estimate } from "./cost.ts";
import type { Leases } from "./leases.ts";
import type { Grant } from "./limiter.ts";
import { answerTokens, nanosFor, type Rate } from "./rate.ts";
import { RAISE_HOLD } from "./scripts.ts";

/** `raised`: it holds a whole step. `short`: budgets had less left, or nothing. */
export type StepResult = "raised" | "short";

/** What {@link HoldSteps} needs. */
export interface HoldStepsOptions {
  redis: Pick<RedisLink, "evalScript">;
  now: MonotonicNow;
  log: Pick<Log, "warn">;
  /** Is told before each step that the lease may not be true any more. */
  leases: Pick<Leases, "doubtHold">;
  /** Is called for each step, for the metrics. */
  onStep?: (result: StepResult) => void;
}

/** What decides how much an answer holds. */
export interface StepTerms {
  readonly estimate: Estimate;
  readonly rate: Rate | null;
  /** What was learned of the lengths of such answers; null: nothing. */
  readonly learned: number | null;
}

/** An answer asks for a step at most this often. */
const STEP_MS = 1_000;
/** No step is smaller, so that a long answer does not ask every second. */
const STEP_TOKENS_MIN = 256;
const PRICED_TOKENS = 1_000_000;
const PATIENT = { deadlineMs: 1_000 };

/** How an answer that holds something goes on. */
interface Steps {
  /** The tokens for which it holds enough. */
  coveredTokens: number;
  readonly nanosOf: (tokens: number) => number;
  readonly tokensFor: (nanos: number) => number;
  /** The tokens for which it should hold enough once it has passed these. */
  readonly wantTokens: (tokens: number) => number;
}

function stepsOf(
  heldNanos: number,
  { estimate, rate, learned }: StepTerms,
): Steps {
  const price = rate?.prices?.output ?? 0;
  const nanosOf = (tokens: number) => nanosFor(estimate, rate, tokens) ?? 0;
  const promptNanos = nanosOf(PRICED_TOKENS) - price;
  const tokensFor = (nanos: number) =>
    Math.floor((nanos - promptNanos) * PRICED_TOKENS / price);
  const stepTokens = Math.max(
    STEP_TOKENS_MIN,
    answerTokens(estimate, learned),
  );
  const { completionTokensMax } = estimate.bounds;
  const wantTokens = (tokens: number) =>
    Math.max(tokens, Math.min(tokens + stepTokens, completionTokensMax));
  return {
    coveredTokens: tokensFor(heldNanos),
    nanosOf,
    tokensFor,
    wantTokens,
  };
}

/** Makes the steps of the answers of an edge. */
export class HoldSteps {
  readonly #options: HoldStepsOptions;

  constructor(options: HoldStepsOptions) {
    this.#options = options;
  }

  /**
   * What an answer calls with the tokens that it has by now, as often as it likes.
   * Undefined if it holds nothing, or costs no more with more tokens.
   */
  watch(
    { id, principal, heldNanos = 0 }: Pick<
      Grant,
      "id" | "principal" | "heldNanos"
    >,
    { estimate, rate, learned }: StepTerms,
  ): ((tokens: number) => void) | undefined {
    const price = rate?.prices?.output ?? 0;
    if (heldNanos === 0 || price === 0 || estimate.units !== null) {
      return undefined;
    }
    // An answer that is sent as a whole never tells its tokens.
    let steps: Steps | null = null;
    const { now } = this.#options;
    let nextMs = -Infinity;
    return (tokens) => {
      steps ??= stepsOf(heldNanos, { estimate, rate, learned });
      const { nanosOf, tokensFor, wantTokens } = steps;
      if (tokens <= steps.coveredTokens || now() < nextMs) return;
      // A call that takes longer does no harm, because the next one asks for more.
      nextMs = now() + STEP_MS;
      const step = { id, principal, nanos: nanosOf(wantTokens(tokens)) };
      const raised = steps;
      void this.#raise(step).then((nanos) => {
        if (nanos !== null) raised.coveredTokens = tokensFor(nanos);
      });
    };
  }

  /** Returns what the request holds then; null: it is not known. Never rejects. */
  async #raise(
    { id, principal, nanos }: Pick<Grant, "id" | "principal"> & {
      nanos: number;
    },
  ): Promise<number | null> {
    const { redis, log, leases, onStep } = this.#options;
    leases.doubtHold(id);
    const keys = [limiterKey(principal), ownerLimiterKey(principal.ownerId)];
    const input = { keys, args: [id, String(nanos)] };
    try {
      const held = await redis.evalScript(RAISE_HOLD, input, PATIENT);
      // It has ended meanwhile.
      if (typeof held !== "number") return null;
      onStep?.(held >= nanos ? "raised" : "short");
      return held;
    } catch (error) {
      // The link to Redis reports itself when that cannot be reached.
      if (!(error instanceof RedisUnavailableError)) {
        log.warn("hold_not_raised", { ...principal, error });
      }
      return null;
    }
  }
}
