import type { MonotonicNow } from "../clock.ts";
import type { BusTiming } from "./link_options.ts";

/** What a pace depends on. */
export interface RedialPaceDeps {
  timing: Pick<
    BusTiming,
    | "reconnectSoonMs"
    | "reconnectSoonForMs"
    | "reconnectWaitMs"
    | "reconnectJitterMs"
  >;
  now: MonotonicNow;
  /** Uniform in [0, 1). */
  random: () => number;
}

/** How soon a server is dialled again that could not be reached. */
export interface RedialPace {
  /** What must have passed since it was last dialled; asked before every dial. */
  waitMs(): number;
  /** There is a connection: the next wait belongs to another outage. */
  onConnected(): void;
}

/**
 * Dials often while an outage is young, and seldom after: a hiccup ends before
 * anybody takes this process for lost, and a bus that is away for long does not
 * come back to a crowd. With the timing of production: every 50 to 100 ms for
 * half a second, then every 250 to 500 ms.
 */
export function createRedialPace(deps: RedialPaceDeps): RedialPace {
  const { timing, now, random } = deps;
  let outageSinceMs: number | null = null;
  return {
    waitMs() {
      const nowMs = now();
      outageSinceMs ??= nowMs;
      const isYoung = nowMs - outageSinceMs < timing.reconnectSoonForMs;
      return isYoung
        ? timing.reconnectSoonMs * (1 + random())
        : timing.reconnectWaitMs + random() * timing.reconnectJitterMs;
    },
    onConnected: () => void (outageSinceMs = null),
  };
}
