/** What all workers tell of their backends, put together. */
import type { MonotonicNow } from "../process/clock.ts";
import type { BreakerState } from "./breaker.ts";
import { BACKEND_LIMITS } from "./limits.ts";
import {
  CELLS,
  FIRST_TOKEN_MS,
  type Percentiles,
  percentilesOf,
  TOKENS_PER_SECOND,
} from "./log_histogram.ts";
import {
  type BackendReport,
  type BackendRow,
  BREAKER_STATES,
} from "./report.ts";
import type { BackendError } from "./statistics.ts";

/** One backend of one model, over all workers. */
export interface BackendView {
  model: string;
  backend: string;
  preference: number;
  weight: number;
  /** Workers that have it. */
  workers: number;
  /** The worst that a worker has. */
  state: BreakerState;
  /** How many workers have that. */
  stateWorkers: number;
  /** Until a worker may try again; null: none has to wait. */
  openMs: number | null;
  /** How long the server has asked not to be called; null: it has not. */
  limitedMs: number | null;
  /** Workers that send it nothing new. */
  drainedWorkers: number;
  inFlight: number;
  /** In the last hour, as all that follows. */
  requests: number;
  failures: number;
  firstTokenMs: Percentiles | null;
  tokensPerSecond: Percentiles | null;
  error: BackendError | null;
  /** Its last probe by any worker; null: there was none. */
  probe: NonNullable<BackendRow["probe"]> | null;
}

/** A row, and when it came. */
interface TimedRow {
  row: BackendRow;
  atMs: number;
}

/** Keeps what each living worker has told last. */
export class BackendReports {
  readonly #now: MonotonicNow;
  /** By worker, then by model and backend. */
  readonly #rowsByWorker = new Map<string, Map<string, TimedRow>>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** The workers that have told something. */
  get workers(): number {
    return this.#rowsByWorker.size;
  }

  /** A worker has told some of its backends. */
  take(workerId: string, { rows }: BackendReport): void {
    const rowsByKey = this.#rowsByWorker.get(workerId) ??
      new Map<string, TimedRow>();
    this.#rowsByWorker.set(workerId, rowsByKey);
    const atMs = this.#now();
    for (const row of rows) rowsByKey.set(keyOf(row), { row, atMs });
    for (const [key, timed] of rowsByKey) {
      if (atMs - timed.atMs >= BACKEND_LIMITS.rowMs) rowsByKey.delete(key);
    }
  }

  /** A worker is gone. */
  lost(workerId: string): void {
    this.#rowsByWorker.delete(workerId);
  }

  /** Every backend that a worker has, in the order of the first that told it. */
  read(): BackendView[] {
    const nowMs = this.#now();
    const groups = new Map<string, TimedRow[]>();
    for (const rows of this.#rowsByWorker.values()) {
      for (const [key, timed] of rows) {
        if (nowMs - timed.atMs >= BACKEND_LIMITS.rowMs) continue;
        const group = groups.get(key);
        if (group === undefined) groups.set(key, [timed]);
        else group.push(timed);
      }
    }
    return [...groups.values()].map((group) => merged(group, nowMs));
  }
}

/** A control character is in no name. */
const keyOf = ({ model, backend }: BackendRow) => `${model}\n${backend}`;

function merged(group: readonly TimedRow[], nowMs: number): BackendView {
  const rows = group.map(({ row, atMs }) => aged(row, nowMs - atMs));
  const newest = group.reduce((a, b) => b.atMs >= a.atMs ? b : a).row;
  const state =
    BREAKER_STATES.find((each) => rows.some((row) => row.state === each)) ??
      "closed";
  const sum = (valueOf: (row: BackendRow) => number) =>
    rows.reduce((total, row) => total + valueOf(row), 0);
  const errors = rows.flatMap(({ error }) => error ?? [])
    .sort((a, b) => a.ageMs - b.ageMs);
  return {
    model: newest.model,
    backend: newest.backend,
    preference: newest.preference,
    weight: newest.weight,
    workers: rows.length,
    state,
    stateWorkers: sum((row) => Number(row.state === state)),
    openMs: longest(rows.map(({ openMs }) => openMs)),
    limitedMs: longest(rows.map(({ limitedMs }) => limitedMs)),
    drainedWorkers: sum((row) => Number(row.isDrained === true)),
    inFlight: sum((row) => row.inFlight),
    requests: sum((row) => row.requests),
    failures: sum((row) => row.failures),
    firstTokenMs: percentilesOf(
      added(rows.map(({ firstTokens }) => firstTokens)),
      FIRST_TOKEN_MS,
    ),
    tokensPerSecond: percentilesOf(
      added(rows.map(({ rates }) => rates)),
      TOKENS_PER_SECOND,
    ),
    error: errors[0] ?? null,
    probe: lastOf(rows.map(({ probe }) => probe)),
  };
}

/** A row as it would be told now. */
function aged(row: BackendRow, ms: number): BackendRow {
  const left = (waitMs: number | undefined) =>
    waitMs === undefined || waitMs <= ms ? undefined : waitMs - ms;
  return {
    ...row,
    openMs: left(row.openMs),
    limitedMs: left(row.limitedMs),
    error: row.error && { ...row.error, ageMs: row.error.ageMs + ms },
    probe: row.probe && { ...row.probe, ageMs: row.probe.ageMs + ms },
  };
}

function lastOf(probes: readonly BackendRow["probe"][]): BackendView["probe"] {
  return probes.filter((probe) => probe !== undefined)
    .toSorted((a, b) => a.ageMs - b.ageMs)[0] ?? null;
}

function longest(waits: readonly (number | undefined)[]): number | null {
  const waitsMs = waits.filter((waitMs) => waitMs !== undefined);
  return waitsMs.length === 0 ? null : Math.max(...waitsMs);
}

function added(histograms: readonly BackendRow["rates"][]): Uint32Array {
  const counts = new Uint32Array(CELLS);
  for (const histogram of histograms) {
    for (const [cell, count] of histogram) {
      counts[cell] = (counts[cell] ?? 0) + count;
    }
  }
  return counts;
}
