import type { MonotonicNow } from "../process/clock.ts";
import type { BusTiming } from "./link_options.ts";

/** A server of the pool. */
export interface DialledServer {
  /** When it was last dialled; 0: never. */
  readonly lastConnect: number;
}

/** What redialling depends on. */
export interface RedialDeps {
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

/** How soon and in which order servers are dialled that could not be reached. */
export interface Redial {
  /** What must have passed since a server was last dialled; asked before every dial. */
  waitMs(): number;
  /** Which one is next; null when there is none. */
  next<S extends DialledServer>(servers: readonly S[]): S | null;
  /** There is a connection: the next wait belongs to another outage. */
  onConnected(): void;
}

/**
 * Dials often while an outage is young, and seldom after: a hiccup ends before
 * anybody takes this process for lost, and a bus that is away for long does not
 * come back to a crowd. With the timing of production: every 50 to 100 ms for
 * half a second, then every 250 to 500 ms.
 *
 * The server that was dialled longest ago is next, so never the one just lost
 * while there is another: a frozen one would take a dial's whole deadline. Of
 * several it is any, so that those of a lost server spread over the others.
 */
export function createRedial(deps: RedialDeps): Redial {
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
    next(servers) {
      const oldest = Math.min(...servers.map(({ lastConnect }) => lastConnect));
      const oldestOnes = servers.filter(({ lastConnect }) =>
        lastConnect === oldest
      );
      return oldestOnes[Math.floor(random() * oldestOnes.length)] ?? null;
    },
    onConnected: () => void (outageSinceMs = null),
  };
}
