import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { Backend, BackendCall, BackendEvent } from "../backend.ts";
import {
  type AttemptReport,
  type Begun,
  type Failed,
  type Slot,
  startAttempt,
} from "./attempt.ts";
import { type BreakerState, createCircuitBreaker } from "./circuit_breaker.ts";
import { orderByRank, type Rank } from "./order.ts";
import { createRetryBudget, type RetryBudget } from "./retry_budget.ts";
import type { Sleep } from "./sleep.ts";

/** Backends asked for one request. */
const ATTEMPTS_MAX = 3;
/** Before the same backend is asked again: enough for a proxy to come back, too little to be felt. */
const RETRY_DELAY_MS_MIN = 50;
const RETRY_DELAY_MS_MAX = 150;
const UNAVAILABLE_MS_MIN = 1_000;

/** A backend of the pool. */
export interface PoolBackend extends Rank {
  backend: Backend;
}

/** What {@link createBackendPool} needs. */
export interface BackendPoolOptions {
  /** The model's id. */
  model: string;
  /** At least one. */
  backends: readonly PoolBackend[];
  now: MonotonicNow;
  /** Uniform in [0, 1). */
  random: () => number;
  sleep: Sleep;
  /** For metrics and logs. Must not throw. */
  onAttempt?: (report: AttemptReport) => void;
}

/** The backends of one model, as one backend. */
export interface BackendPool extends Backend {
  /** By name of the backend, for metrics. */
  breakerStates(): ReadonlyMap<string, BreakerState>;
  /** Gives up what the backends keep between calls. */
  close(): void;
}

interface Shared {
  options: BackendPoolOptions;
  slots: readonly Slot[];
  budget: RetryBudget;
}

/**
 * Makes the pool. Before the first event a failure is mended where that can
 * help: by the next backend, or, if there is none, by asking the same one once
 * more after a moment, as far as the retry budget allows. After the first event
 * nothing is repeated: what the caller has is a prefix of one answer.
 *
 * Backends that keep failing are left alone by their circuit breakers; when all
 * are, the error is `service_unavailable`, at once. Backends that said they are
 * at their limit, or busy, are asked last until their wait is over.
 */
export function createBackendPool(options: BackendPoolOptions): BackendPool {
  const { backends, now } = options;
  if (backends.length === 0) {
    throw new Error(`Model ${options.model} has no backend`);
  }
  const slots: readonly Slot[] = backends.map((entry) => ({
    ...entry,
    breaker: createCircuitBreaker(now),
    limitedUntilMs: -Infinity,
  }));
  const shared = { options, slots, budget: createRetryBudget(now) };
  return {
    name: options.model,
    fingerprint: commonFingerprint(backends),
    complete: (request, call) => run(shared, request, call),
    breakerStates: () =>
      new Map(slots.map((slot) => [slot.backend.name, slot.breaker.state])),
    close() {
      for (const { backend } of slots) backend.close?.();
    },
  };
}

async function* run(
  shared: Shared,
  request: ChatRequest,
  call: BackendCall,
): AsyncGenerator<readonly BackendEvent[], void, void> {
  call.signal.throwIfAborted();
  shared.budget.request();
  const attempt = await begin(shared, request, call);
  let isOver = false;
  try {
    yield attempt.first;
    for (;;) {
      const step = await attempt.next();
      if (step.done) break;
      yield step.value;
    }
    isOver = true;
    attempt.succeeded();
  } catch (error) {
    isOver = true;
    attempt.failed(error);
    throw error;
  } finally {
    if (!isOver) await attempt.abandoned();
  }
}

/** Goes through the backends until one brings its first events. */
async function begin(
  shared: Shared,
  request: ChatRequest,
  call: BackendCall,
): Promise<Begun> {
  const { options, slots } = shared;
  const failures: Failed[] = [];
  for (const slot of candidates(options, slots)) {
    if (failures.length === ATTEMPTS_MAX) break;
    const permit = slot.breaker.enter();
    if (permit === null) continue;
    const attempt = await startAttempt(options, slot, permit, request, call);
    if (attempt.isBegun) return attempt;
    if (!attempt.verdict.isWorthElsewhere) throw attempt.error;
    failures.push(attempt);
  }
  const [only, ...others] = failures;
  if (only === undefined) throw unavailable(slots);
  if (others.length === 0) {
    const attempt = await tryAgain(shared, only, request, call);
    if (attempt?.isBegun) return attempt;
    if (attempt !== null) failures.push(attempt);
  }
  // A limit tells the caller when to come back; else the last word counts.
  const limited = failures.find(({ verdict }) => verdict.isLimit);
  throw (limited ?? failures.at(-1) ?? only).error;
}

/** Asks the same backend once more, or null where that is not to be. */
async function tryAgain(
  shared: Shared,
  failure: Failed,
  request: ChatRequest,
  call: BackendCall,
): Promise<Begun | Failed | null> {
  const { options, budget } = shared;
  if (!failure.verdict.isWorthAgain || !budget.tryTake()) return null;
  const spreadMs = RETRY_DELAY_MS_MAX - RETRY_DELAY_MS_MIN;
  // Jitter: callers that failed together must not come back together.
  const delayMs = RETRY_DELAY_MS_MIN + options.random() * spreadMs;
  await options.sleep(delayMs, call.signal);
  const permit = failure.slot.breaker.enter();
  if (permit === null) return null;
  return await startAttempt(options, failure.slot, permit, request, call);
}

function candidates(
  options: BackendPoolOptions,
  slots: readonly Slot[],
): readonly Slot[] {
  const ordered = orderByRank(slots, options.random);
  const nowMs = options.now();
  const isLimited = (slot: Slot) => nowMs < slot.limitedUntilMs;
  if (ordered.length < 2 || !ordered.some(isLimited)) return ordered;
  return [
    ...ordered.filter((slot) => !isLimited(slot)),
    ...ordered.filter(isLimited),
  ];
}

function unavailable(slots: readonly Slot[]): ApiError {
  const waitMs = Math.min(...slots.map((slot) => slot.breaker.waitMs));
  return new ApiError(
    "service_unavailable",
    "No model server is available for this model at the moment",
    { retryAfterMs: Math.max(UNAVAILABLE_MS_MIN, Math.ceil(waitMs)) },
  );
}

function commonFingerprint(backends: readonly PoolBackend[]): string | null {
  const fingerprints = new Set(
    backends.map(({ backend }) => backend.fingerprint),
  );
  const [fingerprint = null] = fingerprints;
  return fingerprints.size === 1 ? fingerprint : null;
}
