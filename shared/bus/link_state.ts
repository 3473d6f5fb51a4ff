import { PermissionViolationError, type Status } from "nats";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import type { BusStatus } from "./link.ts";
import { createThrottle } from "./link_throttle.ts";

/** Complaints of the server are logged once in this time, with a count of the others. */
const LOG_INTERVAL_MS = 1_000;

/** What the state needs, and whom it tells before all listeners. */
export interface LinkStateDeps {
  server: string;
  /** A connection that is called stale has this long to end. */
  staleEndMs: number;
  log: Log;
  now: MonotonicNow;
  onLost: () => void;
  /** The client called the connection stale and then did not leave it. */
  onStuck: () => void;
  onRefused: (operation: "publish" | "subscribe", subject: string) => void;
}

/**
 * Whether there is a connection, as told by the client's events. The client tells
 * some things several times and calls a refused login a stale connection; the
 * listeners here hear of each change once.
 */
export class LinkState {
  readonly #deps: LinkStateDeps;
  readonly #mayLogComplaint: () => number | undefined;
  readonly #listeners = new Set<(status: BusStatus) => void>();
  #server: string;
  #lostAt: number | undefined;
  #staleTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(deps: LinkStateDeps) {
    this.#deps = deps;
    this.#server = deps.server;
    this.#mayLogComplaint = createThrottle(deps.now, LOG_INTERVAL_MS);
  }

  get isLost(): boolean {
    return this.#lostAt !== undefined;
  }

  onStatus(listener: (status: BusStatus) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes one event of the client. */
  handle(status: Status): void {
    switch (status.type) {
      case "staleConnection":
        return this.#expectEnd();
      case "disconnect":
        clearTimeout(this.#staleTimer);
        return this.#lose("closed");
      case "reconnect":
        return this.#regain(status.server);
      case "ldm":
        this.#deps.log.info("bus_lame_duck", { server: status.server });
        return this.#tell({ type: "lame_duck", server: status.server });
      case "error":
        return this.#complain(status.error);
      default:
        // Pings, dials and news of the cluster change nothing here.
        return;
    }
  }

  /** Nothing more will be told. */
  end(): void {
    clearTimeout(this.#staleTimer);
  }

  #expectEnd(): void {
    // Said also of a connection that is gone already, whose end was told before.
    if (this.isLost) return;
    this.#lose("stale");
    const { onStuck, staleEndMs } = this.#deps;
    this.#staleTimer = setTimeout(onStuck, staleEndMs);
  }

  #lose(reason: string): void {
    if (this.isLost) return;
    this.#lostAt = this.#deps.now();
    this.#deps.log.warn("bus_disconnected", { server: this.#server, reason });
    this.#deps.onLost();
    this.#tell({ type: "disconnected", server: this.#server });
  }

  #regain(server: string): void {
    if (this.#lostAt === undefined) return;
    const outageMs = this.#deps.now() - this.#lostAt;
    this.#lostAt = undefined;
    this.#server = server;
    this.#deps.log.info("bus_reconnected", { server, outageMs });
    this.#tell({ type: "reconnected", server, outageMs });
  }

  #complain(error: Error): void {
    const heldBack = this.#mayLogComplaint();
    if (heldBack !== undefined) {
      this.#deps.log.error("bus_complaint", { error, heldBack });
    }
    if (!(error instanceof PermissionViolationError)) {
      return this.#tell({ type: "error", error });
    }
    const { subject } = error;
    const operation = error.operation === "publish" ? "publish" : "subscribe";
    this.#deps.onRefused(operation, subject);
    this.#tell({ type: "refused", operation, subject });
  }

  #tell(status: BusStatus): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(status);
      } catch (error) {
        this.#deps.log.error("bus_listener_failed", {
          status: status.type,
          error,
        });
      }
    }
  }
}
