/** What a worker has seen of its backends in the last hour. */
import type { MonotonicNow } from "../process/clock.ts";
import { BACKEND_LIMITS } from "./limits.ts";
import {
  cellOf,
  CELLS,
  FIRST_TOKEN_MS,
  TOKENS_PER_SECOND,
} from "./log_histogram.ts";

const MINUTE_MS = 60_000;
const MINUTES = 60;
const MS_PER_SECOND = 1_000;

/** What each minute has, one after the other. */
const REQUESTS = 0;
const FAILURES = 1;
const FIRST_TOKENS = 2;
const RATES = FIRST_TOKENS + CELLS;
const MINUTE_CELLS = RATES + CELLS;

/** How an attempt at a backend ended. */
export interface EndedAttempt {
  durationMs: number;
  /** From the request to the first token of a stream; undefined: there was none. */
  firstTokenMs?: number | undefined;
  /** Completion tokens, as far as the server has stated them. */
  tokens?: number | undefined;
  /** What went wrong, without secrets; undefined: the server is not to blame. */
  failure?: string | undefined;
}

/** The last error of a backend. */
export interface BackendError {
  text: string;
  /** How long ago it was. */
  ageMs: number;
}

/** What a backend did within an hour, as sums. */
export interface BackendHour {
  requests: number;
  failures: number;
  /** Counts by cell, see `log_histogram.ts`. */
  firstTokens: Uint32Array;
  rates: Uint32Array;
}

/** One backend of one model. A request costs two additions and two logarithms. */
export class BackendStatistics {
  readonly #now: MonotonicNow;
  /** Made by the first attempt: most backends of a long list are never used. */
  #cells: Uint32Array | null = null;
  /** The minute that each part of the ring is about. */
  readonly #minutes = new Float64Array(MINUTES).fill(-Infinity);
  #error: { text: string; atMs: number } | null = null;
  #usedAtMs = -Infinity;
  #inFlight = 0;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Attempts that have begun and not ended. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** When an attempt has begun or ended last. */
  get usedAtMs(): number {
    return this.#usedAtMs;
  }

  /** The last error, for a day. */
  get error(): BackendError | null {
    if (this.#error === null) return null;
    const ageMs = this.#now() - this.#error.atMs;
    const { text } = this.#error;
    return ageMs < BACKEND_LIMITS.errorMs ? { text, ageMs } : null;
  }

  /** An attempt begins. */
  begin(): void {
    this.#inFlight += 1;
    this.#usedAtMs = this.#now();
  }

  /** An attempt has ended. Each one that has begun must. */
  end({ durationMs, firstTokenMs, tokens = 0, failure }: EndedAttempt): void {
    const nowMs = this.#now();
    this.#inFlight -= 1;
    this.#usedAtMs = nowMs;
    this.#add(nowMs, REQUESTS);
    if (failure !== undefined) {
      this.#add(nowMs, FAILURES);
      this.note(failure);
    }
    if (firstTokenMs !== undefined) {
      this.#add(nowMs, FIRST_TOKENS + cellOf(firstTokenMs, FIRST_TOKEN_MS));
    }
    const rate = rateOf({ durationMs, firstTokenMs, tokens });
    if (failure !== undefined || rate === null) return;
    this.#add(nowMs, RATES + cellOf(rate, TOKENS_PER_SECOND));
  }

  /** Keeps an error without counting a request. */
  note(error: string): void {
    const text = error.slice(0, BACKEND_LIMITS.errorCharsMax).toWellFormed();
    this.#error = { text, atMs: this.#now() };
  }

  /** The sums of this minute and the 59 before; null: no attempt has ended in them. */
  hour(): BackendHour | null {
    const cells = this.#cells;
    if (cells === null) return null;
    const oldest = Math.floor(this.#now() / MINUTE_MS) - MINUTES + 1;
    const sums = new Uint32Array(MINUTE_CELLS);
    for (let part = 0; part < MINUTES; part++) {
      if ((this.#minutes[part] ?? 0) < oldest) continue;
      const from = part * MINUTE_CELLS;
      for (let cell = 0; cell < MINUTE_CELLS; cell++) {
        sums[cell] = (sums[cell] ?? 0) + (cells[from + cell] ?? 0);
      }
    }
    const requests = sums[REQUESTS] ?? 0;
    return requests === 0 ? null : {
      requests,
      failures: sums[FAILURES] ?? 0,
      firstTokens: sums.subarray(FIRST_TOKENS, RATES),
      rates: sums.subarray(RATES),
    };
  }

  #add(nowMs: number, cell: number): void {
    this.#cells ??= new Uint32Array(MINUTES * MINUTE_CELLS);
    const minute = Math.floor(nowMs / MINUTE_MS);
    const part = minute % MINUTES;
    const from = part * MINUTE_CELLS;
    if (this.#minutes[part] !== minute) {
      this.#minutes[part] = minute;
      this.#cells.fill(0, from, from + MINUTE_CELLS);
    }
    this.#cells[from + cell] = (this.#cells[from + cell] ?? 0) + 1;
  }
}

/**
 * Tokens per second: of a stream those after its first token, in the time after it; of
 * an answer that came as a whole all of them. Null if there are too few to tell.
 */
function rateOf(
  { durationMs, firstTokenMs, tokens }:
    & Pick<EndedAttempt, "durationMs" | "firstTokenMs">
    & { tokens: number },
): number | null {
  const isStream = firstTokenMs !== undefined;
  const [count, ms] = isStream
    ? [tokens - 1, durationMs - firstTokenMs]
    : [tokens, durationMs];
  return count > 0 && ms > 0 ? count * MS_PER_SECOND / ms : null;
}

/** The statistics of all backends of a worker, by model and backend. */
export class BackendTable {
  readonly #now: MonotonicNow;
  readonly #models = new Map<string, Map<string, BackendStatistics>>();
  #size = 0;
  #revision = 0;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Changes with every attempt that begins or ends. */
  get revision(): number {
    return this.#revision;
  }

  /** An attempt at a backend begins. */
  begin(model: string, backend: string): void {
    this.#revision += 1;
    this.#statisticsOf(model, backend).begin();
  }

  /** An attempt at a backend has ended. */
  end(model: string, backend: string, attempt: EndedAttempt): void {
    this.#revision += 1;
    this.#statisticsOf(model, backend).end(attempt);
  }

  /** An error that was no request's. */
  note(model: string, backend: string, error: string): void {
    this.#revision += 1;
    this.#statisticsOf(model, backend).note(error);
  }

  /** What is known of a backend; undefined: it was never used, or long ago. */
  get(model: string, backend: string): BackendStatistics | undefined {
    return this.#models.get(model)?.get(backend);
  }

  #statisticsOf(model: string, backend: string): BackendStatistics {
    let backends = this.#models.get(model);
    if (backends === undefined) {
      backends = new Map();
      this.#models.set(model, backends);
    }
    let statistics = backends.get(backend);
    if (statistics === undefined) {
      statistics = new BackendStatistics(this.#now);
      backends.set(backend, statistics);
      this.#size += 1;
      if (this.#size > BACKEND_LIMITS.backendsMax) this.#forgetOne(statistics);
    }
    return statistics;
  }

  /** Forgets the backend that was not used for longest and runs nothing. */
  #forgetOne(but: BackendStatistics): void {
    let oldest: readonly [model: string, backend: string] | undefined;
    let usedAtMs = Infinity;
    for (const [model, backends] of this.#models) {
      for (const [backend, statistics] of backends) {
        if (statistics === but || statistics.inFlight > 0) continue;
        if (statistics.usedAtMs >= usedAtMs) continue;
        usedAtMs = statistics.usedAtMs;
        oldest = [model, backend];
      }
    }
    if (oldest === undefined) return;
    const [model, backend] = oldest;
    const backends = this.#models.get(model);
    backends?.delete(backend);
    if (backends?.size === 0) this.#models.delete(model);
    this.#size -= 1;
  }
}
