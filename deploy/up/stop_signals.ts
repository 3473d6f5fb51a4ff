import type { MonotonicNow } from "@gateway/shared/process/clock";

/** How the operator ends it. */
export interface StopRequest {
  /** Stop in order. */
  requested: AbortSignal;
  /** Stop waiting for streams under way. */
  hurry: AbortSignal;
}

/**
 * One Ctrl-C arrives several times: from the terminal and once more from each
 * runner above us that passes it on. Within this time they are one.
 */
const SAME_INTERRUPT_MS = 300;

/** What ends the launcher: Ctrl-C, `kill`, and the end of its terminal. */
export type StopSignal = "SIGINT" | "SIGTERM" | "SIGHUP";

export interface StopSignalDeps {
  addListener: (signal: StopSignal, listener: () => void) => void;
  /** True under `nohup`: then the end of the terminal is no reason to stop. */
  isHangUpIgnored: boolean;
  now: MonotonicNow;
}

/**
 * Turns signals into a request to stop: each asks for it, and a later Ctrl-C asks
 * to hurry. A second SIGTERM does not: supervisors repeat theirs.
 */
export function listenForStop(deps: StopSignalDeps): StopRequest {
  const { addListener, isHangUpIgnored, now } = deps;
  const requested = new AbortController();
  const hurry = new AbortController();
  let requestedAtMs = 0;
  const stop = () => {
    if (requested.signal.aborted) return;
    requestedAtMs = now();
    requested.abort();
  };
  addListener("SIGTERM", stop);
  // Deno handles SIGHUP once it handles any signal, so ignoring it takes a listener.
  addListener("SIGHUP", isHangUpIgnored ? () => {} : stop);
  addListener("SIGINT", () => {
    if (!requested.signal.aborted) return stop();
    if (now() - requestedAtMs > SAME_INTERRUPT_MS) hurry.abort();
  });
  return { requested: requested.signal, hurry: hurry.signal };
}
