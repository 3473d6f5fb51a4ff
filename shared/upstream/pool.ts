/** The model servers of one model: which is called, and what follows its failure. */
import { type BreakerState, CircuitBreaker } from "../backends/breaker.ts";
import type { BackendConfig } from "../models/catalog.ts";
import type { MonotonicNow } from "../process/clock.ts";
import { roundMs } from "../process/log.ts";
import { seedOf } from "../models/affinity.ts";
import { LOOK_AGAIN_MS } from "../server_limits/rule.ts";
import {
  type AttemptProgress,
  type AttemptReport,
  isOfLimit,
  type PoolContext,
  Trial,
} from "./attempt.ts";
import { inOrder, type Place, waitAfter } from "./candidates.ts";
import { DISPATCH_LIMITS } from "../limits.ts";
import type {
  Keyring,
  KeyState,
  Lease,
  RingKey,
} from "../server_limits/keyring.ts";
import {
  allDrained,
  type BackendState,
  inService,
  type OverrideOf,
  stateOf,
  those,
} from "./backend_state.ts";
import { SaturatedError, UpstreamError } from "./http/errors.ts";
import type { OddityReport } from "./oddities.ts";

const ATTEMPTS_MAX = 3;
/**
 * The pause before the same backend is tried again: long enough for a proxy to restart,
 * too short to be noticed.
 */
const RETRY_DELAY_MS_MIN = 50;
const RETRY_DELAY_MS_MAX = 150;
/**
 * Added to the retry budget by each request, and its maximum: unlimited retries would
 * double the load.
 */
const RETRIES_PER_REQUEST = 0.1;
const RETRIES_MAX = 5;
const UNAVAILABLE_MS_MIN = 1_000;

/** One model server, as far as the pool is concerned. */
export interface PoolBackend {
  readonly config: Pick<BackendConfig, "name" | "preference" | "weight">;
  close(): void;
}

/** What a {@link BackendPool} needs; tests pass their own clock and chance. */
export interface BackendPoolOptions<Backend extends PoolBackend> {
  backends: readonly Backend[];
  /** The keys of those that have limits or several keys, in the order of `backends`. */
  keyrings?: readonly (Keyring<Backend> | null)[];
  now: MonotonicNow;
  random: () => number;
  /** Resolves after `ms`, or rejects if the signal aborts first. */
  sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** What an operator has changed of a backend. */
  overrideOf?: OverrideOf;
  /** An attempt at this backend begins. Must not throw. */
  onStart?: (backend: string) => void;
  /** For metrics and logs. Must not throw. */
  onAttempt: (report: AttemptReport) => void;
  /** For metrics and logs. Must not throw. */
  onOddity: (report: OddityReport) => void;
}

interface Slot<Backend extends PoolBackend> extends Place {
  backend: Backend;
  keyring: Keyring<Backend> | null;
  breaker: CircuitBreaker;
  limitedUntilMs: number;
  running: number;
  weight: number;
}

/**
 * The backends of one model. If an attempt fails before the client has received any
 * of it, the next one is tried or, if there is only one, the same again after a
 * moment, within the retry budget. If all circuit breakers are open,
 * `service_unavailable`. Those that reported a limit are tried last. If all are at
 * limits of theirs, a request that may wait does so as long as one waits for a worker.
 */
export class BackendPool<Backend extends PoolBackend> {
  readonly #slots: readonly Slot<Backend>[];
  readonly #hasLimits: boolean;
  #retriesLeft = RETRIES_MAX;
  /** Requests that wait for a limit. */
  #waiting = 0;

  constructor(readonly options: BackendPoolOptions<Backend>) {
    this.#hasLimits = options.keyrings?.some((each) => each !== null) ?? false;
    this.#slots = options.backends.map((backend, index) => ({
      backend,
      keyring: options.keyrings?.[index] ?? null,
      breaker: new CircuitBreaker(options.now),
      limitedUntilMs: -Infinity,
      isLimited: false,
      running: 0,
      seed: seedOf(backend.config.name),
      weight: backend.config.weight,
      arrival: 0,
    }));
  }

  /** The state of each backend's breaker, by the name of the backend. */
  breakerStates(): ReadonlyMap<string, BreakerState> {
    return new Map(
      this.#slots.map((slot) => [slot.backend.config.name, slot.breaker.state]),
    );
  }

  /** The state of each backend, in the order of the list. */
  states(): BackendState[] {
    const { now, overrideOf } = this.options;
    return this.#slots.map((slot) => stateOf(slot, now(), overrideOf));
  }

  /** The keys of the backends that have limits or several keys. */
  *keyStates(): Generator<[backend: string, state: KeyState]> {
    for (const { backend, keyring } of this.#slots) {
      for (const state of keyring?.states() ?? []) {
        yield [backend.config.name, state];
      }
    }
  }

  /**
   * How long a request must wait at least because all backends are at limits of theirs;
   * 0: one of them may take it, or none ever will.
   */
  get saturatedMs(): number {
    if (!this.#hasLimits) return 0;
    const open = inService(this.#slots, this.options.overrideOf)
      .filter(({ breaker }) => breaker.waitMs === 0);
    const waits = open.map(({ keyring }) => keyring?.waitMs() ?? 0);
    if (waits.length === 0) return 0;
    // Those that wait already come first.
    return Math.max(Math.min(...waits), this.#waiting > 0 ? LOOK_AGAIN_MS : 0);
  }

  close(): void {
    for (const { backend, keyring } of this.#slots) {
      if (keyring === null) backend.close();
      else for (const each of keyring.backends) each.close();
    }
  }

  /**
   * Calls `attempt` with one backend after the other until it resolves, of those that
   * are fit, by default all. Throws an `UpstreamError`, or what aborted it.
   */
  async run<Result>(
    context: PoolContext,
    attempt: (backend: Backend, progress: AttemptProgress) => Promise<Result>,
    isFit: (backend: Backend) => boolean = () => true,
  ): Promise<Result> {
    const { now, random, sleep } = this.options;
    context.signal.throwIfAborted();
    const retries = this.#retriesLeft + RETRIES_PER_REQUEST;
    this.#retriesLeft = Math.min(RETRIES_MAX, retries);
    const trial = new Trial<Backend, Result>(context, attempt);
    const { failures } = trial;
    const { session } = context;
    const startedAtMs = now();
    const fit = those(this.#slots, ({ backend }) => isFit(backend));
    const hasFailed: Slot<Backend>[] = [];
    const isLeft = (slot: Slot<Backend>) => !hasFailed.includes(slot);
    // Those that wait already come first.
    if (this.#waiting > 0) await this.#wait(LOOK_AGAIN_MS, trial);
    for (;;) {
      // An operator may have drained one, or taken one back, while it waited.
      const ready = inService(fit, this.options.overrideOf, context);
      if (ready.length === 0 && fit.length > 0) throw allDrained();
      const first = hasFailed.length === 0 ? ready : ready.filter(isLeft);
      let failed: Slot<Backend> | null = null;
      for (const slot of inOrder(first, { session, now, random })) {
        if (failures.length === ATTEMPTS_MAX) break;
        const before = failures.length;
        const success = await this.#tryWithKeys(slot, trial);
        if (success !== null) return success.result;
        if (failures.length === 1) failed ??= slot;
        if (failures.length > before) hasFailed.push(slot);
      }
      const canRetry = failures.length === 1 && failures[0]?.remedy === "again";
      if (failed !== null && canRetry && this.#retriesLeft >= 1) {
        this.#retriesLeft -= 1;
        // Jitter: requests that failed together must not be retried together.
        const spreadMs = RETRY_DELAY_MS_MAX - RETRY_DELAY_MS_MIN;
        await sleep(RETRY_DELAY_MS_MIN + random() * spreadMs, context.signal);
        const success = await this.#tryWithKeys(failed, trial);
        if (success !== null) return success.result;
      }
      const left = first.filter(isLeft);
      const waitMs = waitAfter(left, trial.wasLimited);
      if (waitMs === 0) throw this.#errorOf(trial);
      const untilMs = now() - startedAtMs + waitMs;
      if (untilMs > DISPATCH_LIMITS.queueWaitMs) {
        throw new SaturatedError(waitMs);
      }
      await this.#wait(waitMs, trial);
      trial.keyFailures = [];
      trial.wasLimited = false;
    }
  }

  /**
   * Asks one backend whether it answers, if a request could be sent there now: its
   * limits count, and what comes of it counts for its breaker. Resolves with whether it
   * was asked. Rejects with the `UpstreamError` of its failure, or what aborted it.
   */
  async probe(
    name: string,
    context: Omit<PoolContext, "isProbe">,
    attempt: (backend: Backend, progress: AttemptProgress) => Promise<void>,
  ): Promise<boolean> {
    context.signal.throwIfAborted();
    const slot = this.#slots.find(({ backend }) =>
      backend.config.name === name
    );
    if (slot === undefined || slot.breaker.waitMs > 0) return false;
    const lease = slot.keyring?.take(undefined, new Set()) ?? null;
    if (lease === null && slot.keyring !== null) return false;
    const trial = new Trial({ ...context, isProbe: true }, attempt);
    const done = await this.#attempt(slot, lease, trial);
    const [failure] = [...trial.failures, ...trial.keyFailures];
    if (failure !== undefined) throw failure;
    return done !== null;
  }

  /**
   * Waits for a limit. A request that may not wait fails instead, unless a backend has
   * failed it: queued again, it would fail there again.
   */
  async #wait(
    ms: number,
    { context: { signal, mayWait = true }, failures }: Trial<Backend, unknown>,
  ): Promise<void> {
    if (!mayWait && failures.length === 0) throw new SaturatedError(ms);
    this.#waiting += 1;
    try {
      await this.options.sleep(ms, signal);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** The error of a request that no backend can take any more. */
  #errorOf({ failures, keyFailures }: Trial<Backend, unknown>): UpstreamError {
    // The error of a limit says when to retry; otherwise the last error is returned.
    const limit = failures.find(isOfLimit);
    const last = failures.at(-1) ?? keyFailures.at(-1);
    return limit ?? last ?? this.#unavailable();
  }

  #tryWithKeys<Result>(
    slot: Slot<Backend>,
    trial: Trial<Backend, Result>,
  ): Promise<{ result: Result } | null> {
    const { keyring } = slot;
    return keyring === null
      ? this.#attempt(slot, null, trial)
      : this.#tryKeys(slot, keyring, trial);
  }

  /**
   * Tries a backend with one of its keys after the other, while only the key is at
   * fault. Returns as {@link #attempt}.
   */
  async #tryKeys<Result>(
    slot: Slot<Backend>,
    keyring: Keyring<Backend>,
    trial: Trial<Backend, Result>,
  ): Promise<{ result: Result } | null> {
    const tried = new Set<RingKey<Backend>>();
    for (;;) {
      if (slot.breaker.waitMs > 0) return null;
      const lease = keyring.take(trial.context.session, tried);
      if (lease === null) {
        trial.wasLimited ||= keyring.hasUntried(tried) ||
          trial.keyFailures.some(isOfLimit);
        return null;
      }
      tried.add(lease.key);
      const before = trial.keyFailures.length;
      const success = await this.#attempt(slot, lease, trial);
      if (success !== null || trial.keyFailures.length === before) {
        return success;
      }
    }
  }

  /**
   * Tries a backend. Returns null if its breaker is open, or if another attempt may
   * help, then with the error in `failures` or `keyFailures`; throws any other error.
   * Reports to the breaker only at the end, because an answer that breaks off is a
   * failure.
   */
  async #attempt<Result>(
    slot: Slot<Backend>,
    lease: Lease<Backend> | null,
    { context, attempt, failures, keyFailures }: Trial<Backend, Result>,
  ): Promise<{ result: Result } | null> {
    const { breaker, keyring } = slot;
    const backend = lease?.key.backend ?? slot.backend;
    const enteredAtMs = breaker.enter();
    if (enteredAtMs === null) return null;
    const { now, onStart, onAttempt, onOddity } = this.options;
    let firstTokenMs: number | undefined;
    const progress: AttemptProgress = {
      hasSent: false,
      onBegun: (how) => {
        if (how !== "whole") firstTokenMs = roundMs(now() - enteredAtMs);
        breaker.begun(enteredAtMs);
      },
      onOddity: (oddity, count) =>
        onOddity({ backend: backend.config.name, oddity, count }),
    };
    let outcome: AttemptReport["outcome"] = "success";
    let error: unknown = null;
    let isOfKey = false;
    slot.running += 1;
    if (!context.isProbe) onStart?.(backend.config.name);
    context.onBackend?.(backend.config.name);
    try {
      return { result: await attempt(backend, progress) };
    } catch (thrown) {
      error = thrown;
      outcome = context.signal.aborted ? "aborted" : "internal";
      if (context.signal.aborted || !(thrown instanceof UpstreamError)) {
        throw thrown;
      }
      outcome = thrown.fault;
      isOfKey = lease !== null && keyring?.onFault(lease.key, outcome) === true;
      const untilMs = now() + (thrown.retryAfterMs ?? 0);
      if (isOfLimit(thrown) && !isOfKey) slot.limitedUntilMs = untilMs;
      if (progress.hasSent || thrown.remedy === "none") throw thrown;
      (isOfKey ? keyFailures : failures).push(thrown);
      return null;
    } finally {
      slot.running -= 1;
      lease?.end(progress, error !== null);
      // A key that is refused says nothing about the health of its server.
      const health = isOfKey ? "rate_limited" : outcome;
      breaker.end(enteredAtMs, health, context);
      onAttempt({
        requestId: context.requestId,
        backend: backend.config.name,
        ...lease && { key: lease.key.variable },
        ...context.isProbe && { isProbe: true },
        outcome,
        durationMs: roundMs(now() - enteredAtMs),
        firstTokenMs,
        ...progress.usage && { usage: progress.usage },
        error,
      });
    }
  }

  #unavailable(): UpstreamError {
    const waitMs = Math.min(...this.#slots.map((slot) => slot.breaker.waitMs));
    return new UpstreamError("unreachable", {
      code: "service_unavailable",
      message: "No model server is available for this model at the moment",
      retryAfterMs: Math.max(UNAVAILABLE_MS_MIN, Math.ceil(waitMs)),
    });
  }
}
