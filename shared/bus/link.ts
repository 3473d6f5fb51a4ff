/**
 * What passes over the connection to the bus, and how its use can fail. The connection
 * is `BusLink` in `link_nats.ts`, not a bare NATS client, because that
 *
 * - stops reading, without an error, after a handler throws;
 * - silently drops what is published while it is disconnected;
 * - lets a request wait for its full timeout when the connection is lost;
 * - never leaves a server that has stopped reading while there is data to send;
 * - ends the process when a server refuses its TLS certificate.
 */
import type { MonotonicNow } from "../process/clock.ts";

/**
 * One received message. `data` is a view of up to 64 KiB that were read from the
 * socket: copy what is needed later.
 */
export interface BusMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  /** The subject for a reply; absent or empty if none is expected. */
  readonly reply?: string;
  /** `code`: the status set by the server; 0 for ordinary messages. */
  readonly headers?: { readonly code: number };
}

/** A header of a message, which the server reads. */
export interface MessageHeader {
  readonly name: string;
  readonly value: string;
}

/** What a message says beside its payload. */
export interface PublishOptions {
  /** The subject for a reply. */
  readonly reply?: string;
  readonly header?: MessageHeader;
}

/**
 * Whether this is the server's notice, on the reply subject, that a message had no
 * subscriber.
 */
export function isNoResponders(message: BusMessage): boolean {
  return message.data.length === 0 && message.headers?.code === 503;
}

/**
 * Handles a message. Errors that it throws are logged. It must not be async: messages
 * are delivered one after another.
 */
export type BusHandler = (message: BusMessage) => void;

/** A subscription. It survives reconnects. */
export interface BusSubscription {
  /**
   * Unsubscribes; resolves when every message sent before has been handled, or the
   * connection is lost.
   */
  drain(): Promise<void>;
}

/** What happened to a connection to the bus. */
export type BusEvent =
  /** Nothing can be sent; messages in flight may be lost. */
  | "disconnected"
  /** Subscriptions are active again. */
  | "reconnected"
  /** The server is shutting down and will close the connection soon. */
  | "lame_duck"
  /** The server denies a subject: its permissions are wrong. */
  | "refused"
  /** The server reports another error. */
  | "error";

/**
 * The connection is down, or was lost before a reply. A request may still have been
 * received and handled.
 */
export class BusUnavailableError extends Error {
  override readonly name = "BusUnavailableError";
}

/** The subject of a request has no subscriber, so nobody has received it. */
export class NoRespondersError extends Error {
  override readonly name = "NoRespondersError";
}

/** Detects outages of a bus for a caller that calls `look` regularly. */
export class FlowWatch {
  #sinceMs: number | null = null;
  #lostAtMs: number | null;

  constructor(
    readonly bus: { readonly flowingSinceMs: number | null },
    readonly now: MonotonicNow,
  ) {
    this.#lostAtMs = now();
    this.look();
  }

  /** How long the bus has been down, as of the last `look`; 0 while it works. */
  get lostForMs(): number {
    return this.#lostAtMs === null ? 0 : this.now() - this.#lostAtMs;
  }

  /** Returns true if the bus works again after an outage since the last call. */
  look(): boolean {
    const sinceMs = this.bus.flowingSinceMs;
    if (sinceMs === this.#sinceMs) return false;
    this.#sinceMs = sinceMs;
    this.#lostAtMs = sinceMs === null ? this.now() : null;
    return sinceMs !== null;
  }
}
