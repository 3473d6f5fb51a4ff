import type { MonotonicNow } from "@gateway/shared/clock";
import type { StopRequest } from "./up.ts";

/**
 * One Ctrl-C arrives several times: from the terminal and once more from each
 * runner above us that passes it on. Within this time they are one.
 */
const SAME_INTERRUPT_MS = 300;

/** Calls `listener` for each such signal; the seam for tests. */
export type AddSignalListener = (
  signal: "SIGINT" | "SIGTERM" | "SIGHUP",
  listener: () => void,
) => void;

/**
 * Turns signals into a request to stop: any of the three asks for it, and a later
 * Ctrl-C asks to hurry. A second SIGTERM does not: supervisors repeat theirs.
 */
export function listenForStop(
  addListener: AddSignalListener,
  now: MonotonicNow,
): StopRequest {
  const requested = new AbortController();
  const hurry = new AbortController();
  let requestedAtMs = 0;
  const stop = () => {
    if (requested.signal.aborted) return;
    requestedAtMs = now();
    requested.abort();
  };
  addListener("SIGTERM", stop);
  addListener("SIGHUP", stop);
  addListener("SIGINT", () => {
    if (!requested.signal.aborted) return stop();
    if (now() - requestedAtMs > SAME_INTERRUPT_MS) hurry.abort();
  });
  return { requested: requested.signal, hurry: hurry.signal };
}
