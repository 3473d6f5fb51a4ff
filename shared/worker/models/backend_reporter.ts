/** Tells key-admin what this worker has seen of its backends. */
import type { BackendTable } from "../../backends/statistics.ts";
import { BACKEND_LIMITS } from "../../backends/limits.ts";
import {
  type BackendRowInput,
  encodeReports,
  sparse,
} from "../../backends/report.ts";
import type { WorkerFamily } from "../../bus/subjects.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import { clip } from "../../process/error_text.ts";
import { redactKeys } from "../../process/log.ts";
import { UpstreamError } from "../../upstream/http/errors.ts";
import type { Overrides } from "../../backends/overrides.ts";
import { type BackendState, overridden } from "../../upstream/backend_state.ts";
import type { AttemptReport } from "../../upstream/attempt.ts";
import type { PoolBackend } from "../../upstream/pool.ts";
import type { ProbeState } from "../probes/prober.ts";
import type { ModelPools } from "./model_pools.ts";

/** Outcomes for which the server is not to blame. */
const NOT_ITS_FAULT = /^(success|aborted|internal|request)$/;

/** What a reporter needs. */
export interface BackendReporterOptions {
  family: WorkerFamily;
  pools: Pick<ModelPools<PoolBackend>, "models">;
  statistics: Pick<BackendTable, "revision" | "get">;
  overrides: Pick<Overrides, "forBackend">;
  /** The last probe of a backend; undefined: there was none. */
  probeOf?: (model: string, backend: string) => ProbeState | undefined;
  now: MonotonicNow;
  /** Sends one message. Must not throw. */
  publish(message: Uint8Array): void;
}

/**
 * Tells all backends when the state of one has changed or somebody wants to know, and
 * otherwise every few seconds.
 */
export class BackendReporter {
  readonly #options: BackendReporterOptions;
  #lookAtMs = -Infinity;
  #toldAtMs = -Infinity;
  #isWanted = false;
  /** As of the last report: which requests it has counted, and all states. */
  #revision = -1;
  #states = "";
  /** How long numbers may be out of date: longer, the more there are to tell. */
  #tellMs: number = BACKEND_LIMITS.tellMs;

  constructor(options: BackendReporterOptions) {
    this.#options = options;
  }

  /** Tells at the next tick: somebody wants to know. */
  want(): void {
    this.#isWanted = true;
  }

  /** Advances time. */
  tick(): void {
    const { now, statistics, pools, overrides } = this.#options;
    const nowMs = now();
    if (nowMs < this.#lookAtMs && !this.#isWanted) return;
    this.#lookAtMs = nowMs + BACKEND_LIMITS.lookMs;
    const silentMs = nowMs - this.#toldAtMs;
    const hasChanged = statistics.revision !== this.#revision;
    const states = statesOf(pools, overrides);
    const isDue = this.#isWanted || states !== this.#states ||
      silentMs >= (hasChanged ? this.#tellMs : this.#repeatMs);
    if (!isDue) return;
    this.#isWanted = false;
    this.#toldAtMs = nowMs;
    this.#revision = statistics.revision;
    this.#states = states;
    this.#tell();
  }

  get #repeatMs(): number {
    return Math.max(BACKEND_LIMITS.repeatMs, this.#tellMs);
  }

  #tell(): void {
    const { family, publish } = this.#options;
    const rows = this.#rows();
    const messages = encodeReports(family, rows);
    this.#tellMs = BACKEND_LIMITS.tellMs * Math.max(1, messages.length);
    for (const message of messages) publish(message);
  }

  /** Those that were used first, if there are too many. */
  #rows(): BackendRowInput[] {
    const { pools, statistics, overrides } = this.#options;
    const used: BackendRowInput[] = [];
    const others: BackendRowInput[] = [];
    for (const { id, backends, pool } of pools.models()) {
      const states = pool?.states() ??
        backends.map((each) => unused(id, each, overrides));
      for (const state of states) {
        const row = rowOf(id, state, this.#options);
        const isUsed = statistics.get(id, state.name) !== undefined;
        if (isUsed) used.push(row);
        else if (others.length < BACKEND_LIMITS.backendsMax) others.push(row);
      }
    }
    return [...used, ...others].slice(0, BACKEND_LIMITS.backendsMax);
  }
}

/** The state of a backend whose pool no request has opened yet. */
const unused = (
  model: string,
  config: PoolBackend["config"],
  overrides: Pick<Overrides, "forBackend">,
): BackendState => ({
  ...overridden(config, (name) => overrides.forBackend(model, name)),
  breaker: "closed",
  openMs: 0,
  limitedMs: 0,
  running: 0,
});

/** A text that changes with the state of any backend. */
function statesOf(
  pools: BackendReporterOptions["pools"],
  overrides: Pick<Overrides, "forBackend">,
): string {
  let states = "";
  for (const { id, backends, pool } of pools.models()) {
    for (const { name } of backends) {
      const changed = overrides.forBackend(id, name);
      if (changed === undefined) continue;
      states += `${id} ${name} ${changed.isDrained} ${changed.weight}\n`;
    }
    if (pool === null) continue;
    for (const { name, breaker, limitedMs } of pool.states()) {
      if (breaker === "closed" && limitedMs === 0) continue;
      states += `${id} ${name} ${breaker} ${limitedMs > 0}\n`;
    }
  }
  return states;
}

function rowOf(
  model: string,
  { name, preference, weight, isDrained, ...rest }: BackendState,
  { statistics, probeOf }: Pick<
    BackendReporterOptions,
    "statistics" | "probeOf"
  >,
): BackendRowInput {
  const { breaker, openMs, limitedMs } = rest;
  const probe = probeOf?.(model, name);
  const row: BackendRowInput = {
    model,
    backend: name,
    preference,
    weight,
    state: breaker,
    ...isDrained && { isDrained },
    ...probe && { probe: { ...probe, ageMs: Math.round(probe.ageMs) } },
    ...openMs > 0 && { openMs: Math.ceil(openMs) },
    ...limitedMs > 0 && { limitedMs: Math.ceil(limitedMs) },
  };
  const figures = statistics.get(model, name);
  if (figures === undefined) return row;
  const { inFlight, error } = figures;
  const hour = figures.hour();
  return {
    ...row,
    inFlight,
    ...error && { error: { ...error, ageMs: Math.round(error.ageMs) } },
    ...hour && {
      requests: hour.requests,
      failures: hour.failures,
      firstTokens: sparse(hour.firstTokens),
      rates: sparse(hour.rates),
    },
  };
}

/** Counts an attempt at a backend of a model. Of a probe only an error is kept. */
export function countAttempt(
  statistics: Pick<BackendTable, "note" | "end">,
  model: string,
  report: AttemptReport,
): void {
  const { backend, outcome, error, isProbe } = report;
  const isItsFault = !NOT_ITS_FAULT.test(outcome);
  if (isProbe) {
    if (isItsFault) statistics.note(model, backend, failureText(error));
    return;
  }
  statistics.end(model, backend, {
    durationMs: report.durationMs,
    firstTokenMs: report.firstTokenMs,
    tokens: report.usage?.completion_tokens,
    ...isItsFault && { failure: failureText(error) },
  });
}

/** What a log line says of it, without the line's other members. */
function failureText(error: unknown): string {
  const text = error instanceof UpstreamError ? error.logText : String(error);
  const line = redactKeys(text.replace(/\s+/g, " "));
  return clip(line, BACKEND_LIMITS.errorCharsMax - 1);
}
