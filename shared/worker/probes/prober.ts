/**
 * Asks model servers now and then whether they answer, so that one that has failed is
 * known before a request finds out, and one that is well again is used again.
 */
import type { BackendConfig } from "../../models/catalog.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import type { Proofs } from "../../server_limits/proofs.ts";
import { idOf } from "../../server_limits/use_table.ts";
import type { BackendState } from "../../upstream/backend_state.ts";
import { UpstreamError } from "../../upstream/http/errors.ts";

const MS_PER_SECOND = 1_000;
/** Up to this part of the interval is added by chance, so that workers do not agree. */
const SPREAD = 0.25;
/** How often a server is looked at. */
const LOOK_MS = 250;
/** A server at a limit is neither well nor ill. */
const UNCLEAR = /^(rate_limited|overloaded)$/;
/** A server that refuses the request has answered it. */
const ANSWERED = "request";

/** What a prober uses of a pool. */
export interface ProbedPool {
  states(): readonly Pick<
    BackendState,
    "name" | "breaker" | "running" | "isDrained"
  >[];
  /**
   * Asks a backend if it may be asked now, as a request would be. Resolves with
   * whether it was; rejects with its fault.
   */
  probe(backend: string, signal: AbortSignal): Promise<boolean>;
}

/** A backend that may be probed, and how often. */
export interface ProbedBackend
  extends Pick<BackendConfig, "name" | "base_url" | "model"> {
  readonly probe?: { readonly every_seconds: number } | undefined;
}

/** A model with its backends, and whether its pool is open. */
export interface ProbedModel {
  readonly id: string;
  readonly backends: readonly ProbedBackend[];
  readonly pool: unknown;
}

/** What a {@link Prober} needs. */
export interface ProberOptions {
  /** The models of the list. */
  models(): Iterable<ProbedModel>;
  /** The pool of a model, which is opened if it is not. */
  poolOf(model: string): ProbedPool | undefined;
  /** What shows that servers answer. */
  proofs: Pick<Proofs, "watch" | "prove" | "agoMs">;
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
  /** A probe has ended. Must not throw. */
  onProbe(model: string, backend: string, result: ProbeResult): void;
}

/** How a probe ended. */
export interface ProbeResult {
  /** `unclear`: the server is at a limit, and neither well nor ill. */
  readonly outcome: "success" | "failure" | "unclear";
  readonly durationMs: number;
  readonly error: unknown;
  /** Whether this result differs from the last one, or is the first failure. */
  readonly isNew: boolean;
}

/** How a server has answered its last probe. */
export interface ProbeState {
  readonly ageMs: number;
  readonly isFailed: boolean;
}

interface Target {
  readonly model: string;
  readonly backend: string;
  /** Which server it is: one of another address may have its name after a change. */
  readonly proofId: string;
  /** How much longer than its interval this server waits. */
  spreadMs: number;
  /** When it was first known, or asked last. */
  askedAtMs: number;
  isAsking: boolean;
  last: { readonly atMs: number; readonly isFailed: boolean } | null;
}

/**
 * Asks a server when nothing has shown for its interval that it answers: no request and
 * no probe, neither of this worker nor of another that told of it. Therefore all
 * workers together probe a server hardly more often than one does. A server whose
 * breaker is half-open is asked at once; one that runs requests, is drained or is at
 * its limits is not asked.
 */
export class Prober {
  readonly #options: ProberOptions;
  readonly #abort = new AbortController();
  /** By model and backend. */
  readonly #targets = new Map<string, Target>();
  #lookAtMs = -Infinity;

  constructor(options: ProberOptions) {
    this.#options = options;
  }

  /** The last probe of a backend; undefined: there was none. */
  stateOf(model: string, backend: string): ProbeState | undefined {
    const { last } = this.#targets.get(keyOf(model, backend)) ?? {};
    if (!last) return undefined;
    const { atMs, isFailed } = last;
    return { ageMs: this.#options.now() - atMs, isFailed };
  }

  /** The backends that were probed, and whether the last probe has failed. */
  *results(): Generator<
    Pick<Target, "model" | "backend"> & Pick<ProbeState, "isFailed">
  > {
    for (const { model, backend, last } of this.#targets.values()) {
      if (last !== null) yield { model, backend, isFailed: last.isFailed };
    }
  }

  /** Advances time. Should be called several times a second. */
  tick(): void {
    const { models, now, proofs } = this.#options;
    const nowMs = now();
    if (nowMs < this.#lookAtMs) return;
    this.#lookAtMs = nowMs + LOOK_MS;
    const keys = new Set<string>();
    const ids = new Set<string>();
    for (const model of models()) {
      for (const backend of model.backends) {
        if (backend.probe === undefined) continue;
        keys.add(keyOf(model.id, backend.name));
        ids.add(proofIdOf(backend));
        this.#look(model, backend, nowMs);
      }
    }
    proofs.watch(ids);
    for (const key of this.#targets.keys()) {
      if (!keys.has(key)) this.#targets.delete(key);
    }
  }

  /** Ends all probes. */
  stop(): void {
    this.#lookAtMs = Infinity;
    this.#abort.abort(new Error("The worker stops"));
  }

  #look(model: ProbedModel, backend: ProbedBackend, nowMs: number): void {
    const { proofs, poolOf, random } = this.#options;
    const everyMs = (backend.probe?.every_seconds ?? Infinity) * MS_PER_SECOND;
    const target = this.#targetOf(model.id, backend, nowMs - everyMs);
    if (target.isAsking) return;
    const silentMs = Math.min(
      proofs.agoMs(proofIdOf(backend)),
      nowMs - target.askedAtMs,
    );
    const isDue = silentMs >= everyMs + target.spreadMs;
    // No breaker has opened in a pool that nobody has used.
    if (!isDue && model.pool === null) return;
    const pool = poolOf(model.id);
    const state = pool?.states().find(({ name }) => name === backend.name);
    if (pool === undefined || state === undefined) return;
    const { breaker, running, isDrained } = state;
    const isWanted = breaker === "half-open" || breaker === "closed" && isDue;
    if (!isWanted || running > 0 || isDrained) return;
    target.isAsking = true;
    target.askedAtMs = nowMs;
    target.spreadMs = random() * everyMs * SPREAD;
    void this.#ask(model.id, backend, { pool, target });
  }

  /** `dueAtMs`: a server that was asked then is due now. */
  #targetOf(model: string, server: ProbedBackend, dueAtMs: number): Target {
    const { name: backend } = server;
    const key = keyOf(model, backend);
    const proofId = proofIdOf(server);
    const target = this.#targets.get(key);
    if (target?.proofId === proofId) return target;
    const { now, random } = this.#options;
    const made: Target = {
      model,
      backend,
      proofId,
      spreadMs: 0,
      // The first probe comes within the first interval.
      askedAtMs: dueAtMs + (1 - random()) * (now() - dueAtMs),
      isAsking: false,
      last: null,
    };
    this.#targets.set(key, made);
    return made;
  }

  /** Never rejects. */
  async #ask(
    model: string,
    backend: ProbedBackend,
    { pool, target }: { pool: ProbedPool; target: Target },
  ): Promise<void> {
    const { now, onProbe, proofs } = this.#options;
    const startedAtMs = now();
    let outcome: ProbeResult["outcome"] = "success";
    let error: unknown = null;
    try {
      if (!await pool.probe(backend.name, this.#abort.signal)) return;
    } catch (thrown) {
      if (this.#abort.signal.aborted) return;
      outcome = outcomeOf(thrown);
      error = outcome === "success" ? null : thrown;
    } finally {
      target.isAsking = false;
    }
    const atMs = now();
    const isFailed = outcome === "failure";
    const isNew = outcome !== "unclear" &&
      isFailed !== (target.last?.isFailed ?? false);
    if (outcome === "success") proofs.prove(proofIdOf(backend));
    if (outcome !== "unclear") {
      target.last = { atMs, isFailed };
    }
    const durationMs = atMs - startedAtMs;
    onProbe(model, backend.name, { outcome, durationMs, error, isNew });
  }
}

function outcomeOf(error: unknown): ProbeResult["outcome"] {
  if (!(error instanceof UpstreamError)) return "failure";
  if (error.fault === ANSWERED) return "success";
  return UNCLEAR.test(error.fault) ? "unclear" : "failure";
}

/** The server and its model there: several models of the list may be that one. */
const proofIdOf = ({ base_url: baseUrl, model }: ProbedBackend): string =>
  idOf({ baseUrl, model, variable: null });

/** A control character is in no name. */
const keyOf = (model: string, backend: string) => `${model}\n${backend}`;

/** Notes the answers of those backends that are probed. */
export function noteProofs(
  backends: readonly ProbedBackend[],
  proofs: Pick<Proofs, "prove">,
): (attempt: { readonly backend: string; readonly outcome: string }) => void {
  const ids = new Map(
    backends.filter(({ probe }) => probe !== undefined)
      .map((backend) => [backend.name, proofIdOf(backend)]),
  );
  return ({ backend, outcome }) => {
    const id = outcome === "success" ? ids.get(backend) : undefined;
    if (id !== undefined) proofs.prove(id);
  };
}
