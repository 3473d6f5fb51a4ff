import type { MonotonicNow } from "@gateway/shared/process/clock";

/** How the operator ends it. */
export interface StopRequest {
  /** Stop in order. */
  requested: AbortSignal;
  /** Stop waiting for what still runs. */
  hurry: AbortSignal;
}

/** A request to stop that signals make, or the loss of a runner. */
export interface StopListener extends StopRequest {
  stop(): void;
}

/** One Ctrl-C arrives from the terminal and again from each runner that passes it on. */
const SAME_INTERRUPT_MS = 300;

/**
 * Turns signals into a request to stop: each asks for it, and a later Ctrl-C asks
 * to hurry. A second SIGTERM does not: supervisors repeat theirs.
 */
export async function listenForStop(now: MonotonicNow): Promise<StopListener> {
  const requested = new AbortController();
  const hurry = new AbortController();
  let requestedAtMs = 0;
  const stop = () => {
    if (!requested.signal.aborted) requestedAtMs = now();
    requested.abort();
  };
  const isHangUpIgnored = await ignoresHangUp();
  Deno.addSignalListener("SIGTERM", stop);
  // Deno ends at SIGHUP once it handles any signal, so ignoring it takes a listener.
  Deno.addSignalListener("SIGHUP", isHangUpIgnored ? () => {} : stop);
  Deno.addSignalListener("SIGINT", () => {
    const isSecond = requested.signal.aborted &&
      now() - requestedAtMs > SAME_INTERRUPT_MS;
    if (isSecond) hurry.abort();
    else stop();
  });
  return { requested: requested.signal, hurry: hurry.signal, stop };
}

/** True under `nohup`: a new process inherits what is ignored. Must be asked before we listen. */
async function ignoresHangUp(): Promise<boolean> {
  const child = new Deno.Command("sleep", { args: ["0.1"] }).spawn();
  child.kill("SIGHUP");
  return (await child.status).success;
}
