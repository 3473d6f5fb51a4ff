/** What a pool knows of its backends, and what operators have changed of them. */
import type { BreakerState } from "../backends/breaker.ts";
import type { BackendOverride } from "../backends/overrides.ts";
import type { BackendConfig } from "../models/catalog.ts";
import { UpstreamError } from "./http/errors.ts";

/** A backend as it is used: the list of models says so, or an operator. */
export interface UsedBackend {
  name: string;
  preference: number;
  weight: number;
  /** It gets no new requests. */
  isDrained: boolean;
}

/** What the pool knows of one backend. */
export interface BackendState extends UsedBackend {
  breaker: BreakerState;
  /** Requests that run there, of this pool. */
  running: number;
  /** How long the breaker stays open; 0: it is not. */
  openMs: number;
  /** How long the server has asked not to be called; 0: it has not. */
  limitedMs: number;
}

/** What an operator has changed of a backend; undefined: nothing. */
export type OverrideOf = (backend: string) => BackendOverride | undefined;

/** What a pool keeps of a backend, as far as its state is concerned. */
interface Slot {
  readonly backend: {
    readonly config: Pick<BackendConfig, "name" | "preference" | "weight">;
  };
  readonly breaker: { readonly state: BreakerState; readonly waitMs: number };
  readonly keyring: { waitMs(): number } | null;
  readonly limitedUntilMs: number;
  readonly running: number;
  weight: number;
}

/** The state of a backend at a time. */
export function stateOf(
  { backend, breaker, keyring, limitedUntilMs, running }: Slot,
  nowMs: number,
  overrideOf?: OverrideOf,
): BackendState {
  const { state, waitMs } = breaker;
  return {
    ...overridden(backend.config, overrideOf),
    breaker: state,
    running,
    openMs: state === "open" ? waitMs : 0,
    limitedMs: Math.max(keyring?.waitMs() ?? 0, limitedUntilMs - nowMs, 0),
  };
}

/**
 * Those that are not drained, with the weights that hold now. A request about a job
 * that runs already may also go to one that is.
 */
export function inService<Each extends Slot>(
  slots: readonly Each[],
  overrideOf: OverrideOf | undefined,
  { isOfRunningJob = false }: { isOfRunningJob?: boolean } = {},
): readonly Each[] {
  if (overrideOf === undefined) return slots;
  return those(slots, (slot) => {
    const { isDrained, weight } = overridden(slot.backend.config, overrideOf);
    slot.weight = weight;
    return !isDrained || isOfRunningJob;
  });
}

/** Those that pass; the list itself if all do, as for nearly every request. */
export function those<Each>(
  list: readonly Each[],
  passes: (each: Each) => boolean,
): readonly Each[] {
  return list.every(passes) ? list : list.filter(passes);
}

/** A backend as it is used now. */
export function overridden(
  config: Pick<BackendConfig, "name" | "preference" | "weight">,
  overrideOf?: OverrideOf,
): UsedBackend {
  const { name, preference, weight } = config;
  const changed = overrideOf?.(name);
  return {
    name,
    preference,
    weight: changed?.weight ?? weight,
    isDrained: changed?.isDrained ?? false,
  };
}

/** An operator has to take one back: the caller need not try again soon. */
const DRAINED_RETRY_MS = 30_000;

/** The error of a model of which all servers that are fit are drained. */
export const allDrained = (): UpstreamError =>
  new UpstreamError("unreachable", {
    code: "service_unavailable",
    message: "An operator of the gateway has taken all servers of this model " +
      "out of use for the time being",
    retryAfterMs: DRAINED_RETRY_MS,
  });
