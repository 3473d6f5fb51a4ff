/** Makes the log of kept answers, and again when its servers have lost it. */
import type { BusLink } from "../bus/link_nats.ts";
import { errorMessage } from "../process/env.ts";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { KEPT_LIMITS } from "./limits.ts";
import type { KeptStreamOptions, NatsKeptLog } from "./log_nats.ts";

/** What {@link StreamWatch} needs. */
export interface StreamWatchOptions {
  readonly keptLog: Pick<NatsKeptLog, "prepare">;
  readonly bus: Pick<BusLink, "isConnected" | "onEvent">;
  readonly stream: KeptStreamOptions;
  readonly now: MonotonicNow;
  readonly log: Pick<Log, "info" | "warn">;
}

/** Knows whether the log can be used. */
export class StreamWatch {
  readonly #options: StreamWatchOptions;
  #isReady = false;
  /** Why it could not be made last; empty: it could. */
  #reason = "";
  /** Since when it could not be made; null: it could. */
  #awaySinceMs: number | null = null;
  #timer: ReturnType<typeof setInterval> | undefined;
  #preparing: Promise<void> | null = null;

  constructor(options: StreamWatchOptions) {
    this.#options = options;
  }

  /**
   * Whether the log could be used when it was last looked at, or shortly before: while
   * its servers choose another leader, workers wait for it.
   */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Whether the log could be used when it was last looked at, and not only before. */
  get isThere(): boolean {
    return this.#isReady && this.#awaySinceMs === null;
  }

  /** Makes the log. Resolves whether or not that succeeds; it is tried again. */
  async start(): Promise<void> {
    this.#timer = setInterval(() => void this.#prepare(), KEPT_LIMITS.watchMs);
    this.#options.bus.onEvent((event) => {
      // A server that keeps it in memory may have been started anew.
      if (event === "reconnected") void this.#prepare();
    });
    await this.#prepare();
  }

  /** Looks no more. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#preparing;
  }

  #prepare(): Promise<void> {
    this.#preparing ??= this.#tryToPrepare().finally(() => {
      this.#preparing = null;
    });
    return this.#preparing;
  }

  async #tryToPrepare(): Promise<void> {
    const { keptLog, bus, stream, now, log } = this.#options;
    if (!bus.isConnected) return;
    try {
      await keptLog.prepare(stream);
      if (!this.#isReady) log.info("kept_log_ready", {});
      this.#isReady = true;
      this.#reason = "";
      this.#awaySinceMs = null;
    } catch (error) {
      const nowMs = now();
      this.#awaySinceMs ??= nowMs;
      const isShort = nowMs - this.#awaySinceMs < KEPT_LIMITS.awayMs;
      if (this.#isReady && isShort) return;
      const reason = errorMessage(error);
      this.#isReady = false;
      if (reason === this.#reason) return;
      this.#reason = reason;
      log.warn("kept_log_unavailable", {
        error,
        message: "Requests that ask for their answers to be kept get 400: " +
          "NATS needs JetStream for that, or KEEP=off ignores the wish",
      });
    }
  }
}
