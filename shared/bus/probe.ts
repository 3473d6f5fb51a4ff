/**
 * Whether messages flow. A connection may stand while nothing comes through it: a
 * server without its cluster, a missing permission, a backlog. So each service
 * sends itself a message now and then.
 */
import type { BusLink } from "./link.ts";

/** A probe that goes on in the background. */
export interface BusProbe {
  /** Connected, and not two probes in a row have failed. */
  readonly isFlowing: boolean;
  stop(): void;
}

export interface BusProbeOptions {
  bus: Pick<BusLink, "isConnected" | "probe">;
  /** Default 5 s. */
  intervalMs?: number;
}

const INTERVAL_MS = 5_000;
/** One probe may fail because this process was busy. */
const FAILURES_MAX = 2;

/** Starts to probe. */
export function startBusProbe(options: BusProbeOptions): BusProbe {
  const { bus, intervalMs = INTERVAL_MS } = options;
  let failures = 0;
  const timer = setInterval(() => {
    if (!bus.isConnected) return; // Nothing to find out.
    bus.probe().then(
      (isFlowing) => failures = isFlowing ? 0 : failures + 1,
      () => failures += 1, // Why is in the link's own log.
    );
  }, intervalMs);
  return {
    get isFlowing() {
      return bus.isConnected && failures < FAILURES_MAX;
    },
    stop: () => clearInterval(timer),
  };
}
