import type { NatsConnection, Subscription } from "nats";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import type { BusHandler, BusSubscription } from "./link.ts";
import type { BusMessage } from "./link_message.ts";
import { createThrottle } from "./link_throttle.ts";
import type { Waits } from "./link_waits.ts";

/** A handler that fails per message is logged once in this time, with a count of the others. */
const LOG_INTERVAL_MS = 1_000;

/** What subscriptions need. */
export interface SubscriptionsDeps {
  client: NatsConnection;
  waits: Waits;
  /** How long draining one may take. */
  drainMs: number;
  log: Log;
  now: MonotonicNow;
}

/**
 * All subscriptions of a link. A handler that throws, or an async one that rejects,
 * is contained here: the first would end the client's read loop and with it every
 * subscription of the connection, the second would end the process.
 */
export class Subscriptions {
  readonly #deps: SubscriptionsDeps;
  readonly #open = new Set<Subscription>();
  readonly #refused = new Set<Subscription>();
  readonly #mayLogFault: () => number | undefined;

  constructor(deps: SubscriptionsDeps) {
    this.#deps = deps;
    this.#mayLogFault = createThrottle(deps.now, LOG_INTERVAL_MS);
  }

  /** Whether the server denied one that nobody has given up. */
  get hasRefused(): boolean {
    return this.#refused.size > 0;
  }

  add(subject: string, handler: BusHandler, queue?: string): BusSubscription {
    const subscription = this.#deps.client.subscribe(subject, {
      ...(queue === undefined ? {} : { queue }),
      callback: (error, message) => {
        if (error === null) this.#deliver(subject, handler, message);
        else this.#refused.add(subscription);
      },
    });
    this.#open.add(subscription);
    return {
      drain: () => this.#drain(subscription),
      unsubscribe: () => this.#remove(subscription),
    };
  }

  async drainAll(): Promise<void> {
    await Promise.all([...this.#open].map((one) => this.#drain(one)));
  }

  #deliver(subject: string, handler: BusHandler, message: BusMessage): void {
    try {
      // A promise says that it is an async function, which the type cannot forbid.
      const result: unknown = handler(message);
      if (result instanceof Promise) {
        void result.catch((error) => this.#reportFault(subject, error));
      }
    } catch (error) {
      this.#reportFault(subject, error);
    }
  }

  #reportFault(subject: string, error: unknown): void {
    const heldBack = this.#mayLogFault();
    if (heldBack === undefined) return;
    this.#deps.log.error("bus_handler_failed", { subject, error, heldBack });
  }

  async #drain(subscription: Subscription): Promise<void> {
    if (!this.#open.has(subscription)) return;
    const { waits, drainMs, log } = this.#deps;
    try {
      if (!subscription.isClosed()) {
        await waits.within(subscription.drain(), drainMs, "drain");
      }
    } catch (error) {
      const subject = subscription.getSubject();
      log.warn("bus_drain_incomplete", { subject, error });
    }
    this.#remove(subscription);
  }

  #remove(subscription: Subscription): void {
    this.#open.delete(subscription);
    this.#refused.delete(subscription);
    if (!subscription.isClosed()) subscription.unsubscribe();
  }
}
