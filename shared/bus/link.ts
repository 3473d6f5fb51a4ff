/**
 * The interface of the connection to the bus. `link_nats.ts` implements it around the
 * NATS client, because the bare client
 *
 * - stops reading, without an error, after a handler throws;
 * - silently drops what is published while it is disconnected;
 * - lets a request wait for its full timeout when the connection is lost;
 * - never leaves a server that has stopped reading while there is data to send;
 * - ends the process when a server refuses its TLS certificate.
 */
import type { MonotonicNow } from "../process/clock.ts";

/**
 * One received message. Fields that are expensive to decode are decoded on access.
 *
 * `data` is a view of the piece of up to 64 KiB that was read from the socket. It
 * stays valid, but keeping it keeps the whole piece in memory: copy what is needed
 * after the handler returns.
 */
export interface BusMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  /** The subject for a reply; absent or empty if none is expected. */
  readonly reply?: string;
  /** `code`: the status set by the server; 0 for ordinary messages. */
  readonly headers?: { readonly code: number };
}

const NO_RESPONDERS_CODE = 503;

/**
 * Whether this is the server's notice that a published message had no subscriber. It
 * arrives on the reply subject of that message, within a round trip.
 */
export function isNoResponders(message: BusMessage): boolean {
  return message.data.length === 0 &&
    message.headers?.code === NO_RESPONDERS_CODE;
}

/**
 * Handles one message. Errors that it throws are logged. It must not be async:
 * messages are delivered one after another.
 */
export type BusHandler = (message: BusMessage) => void;

/** A subscription. It survives reconnects. */
export interface BusSubscription {
  /**
   * Unsubscribes at the server, and resolves when every message sent before has been
   * handled, or the connection is lost.
   */
  drain(): Promise<void>;
  /** Ends it at once; messages in flight are dropped. */
  unsubscribe(): void;
}

/**
 * An event of the connection.
 *
 * | type | meaning |
 * | --- | --- |
 * | `disconnected` | nothing can be sent; messages in flight may be lost |
 * | `reconnected` | subscriptions are active again |
 * | `lame_duck` | the server is shutting down and will close the connection soon |
 * | `refused` | the server denies a subject: its permissions are wrong |
 * | `error` | any other error that the server reports |
 */
export interface BusStatus {
  type: "disconnected" | "reconnected" | "lame_duck" | "refused" | "error";
  /** The server's error, for the last two. */
  error?: Error;
}

/** A connection to the bus that is re-established whenever it is lost, until it is closed. */
export interface BusLink {
  /** Whether messages can be sent and received. */
  readonly isConnected: boolean;

  /**
   * Since when the bus has delivered messages, by the clock of the options; null
   * while it does not. The link sends itself a message every `echoMs`, and leaves a
   * server that delivers nothing for `silentMs`. A new time means that messages may
   * have been lost. Needs permission to publish to `<inboxPrefix>.*.echo`.
   */
  readonly flowingSinceMs: number | null;

  /** When the last message of any kind arrived. */
  readonly receivedAtMs: number;

  /** Whether it is connected, the backlog is small, and no subject was refused. */
  readonly isReady: boolean;

  /** Published bytes that the operating system has not accepted yet. */
  readonly pendingBytes: number;

  /**
   * Sends a message. Messages of one connection arrive in order, at most once;
   * those in flight when a connection breaks are lost. `payload` must not change
   * before the current turn of the event loop has ended. If there is no subscriber,
   * the server answers on `reply`, see {@link isNoResponders}.
   *
   * @throws BusUnavailableError while disconnected: nothing is queued.
   */
  publish(
    subject: string,
    payload: Uint8Array,
    options?: { reply?: string },
  ): void;

  /**
   * Calls `handler` for every message on a subject, which may contain the wildcards
   * `*` and `>`; with `queue`, each message goes to one member of that group. May
   * be called while disconnected.
   */
  subscribe(
    subject: string,
    handler: BusHandler,
    options?: { queue?: string },
  ): BusSubscription;

  /**
   * Publishes a request and resolves with the first reply.
   *
   * @throws NoRespondersError within a round trip if there is no subscriber.
   * @throws BusTimeoutError after `timeoutMs`.
   * @throws BusUnavailableError at once while disconnected, and as soon as the
   * connection is lost. In the second case the request may have been handled.
   */
  request(
    subject: string,
    payload: Uint8Array,
    options: { timeoutMs: number },
  ): Promise<BusMessage>;

  /**
   * Resolves when the server has received everything published before. This is the
   * only back-pressure.
   *
   * @throws BusTimeoutError, BusUnavailableError
   */
  flush(): Promise<void>;

  /** Calls `listener` for every event. It must not throw. */
  onStatus(listener: (status: BusStatus) => void): void;

  /**
   * Shuts down in order: drains the remaining subscriptions, flushes, closes. To
   * lose nothing, first drain the subscriptions that receive work and wait until the
   * work is done; its results can be published until then. Never rejects, and takes
   * at most two flush deadlines.
   */
  drain(): Promise<void>;

  /** Closes it at once. Messages that were not flushed may be lost. */
  close(): Promise<void>;
}

/**
 * Nothing can be sent or received: the connection is down, was lost while waiting for
 * a reply, or is closed.
 */
export class BusUnavailableError extends Error {
  override readonly name = "BusUnavailableError";
}

/** No reply in time. The request may still have been received and handled. */
export class BusTimeoutError extends Error {
  override readonly name = "BusTimeoutError";
}

/** The subject of a request has no subscriber. */
export class NoRespondersError extends Error {
  override readonly name = "NoRespondersError";
}

/** Detects outages of a bus for a caller that polls it. */
export class FlowWatch {
  readonly #bus: Pick<BusLink, "flowingSinceMs">;
  readonly #now: MonotonicNow;
  #sinceMs: number | null;
  #lostAtMs: number | null;

  constructor(bus: Pick<BusLink, "flowingSinceMs">, now: MonotonicNow) {
    this.#bus = bus;
    this.#now = now;
    this.#sinceMs = bus.flowingSinceMs;
    this.#lostAtMs = this.#sinceMs === null ? now() : null;
  }

  /** How long the bus has been down, as of the last `look`; 0 while it works. */
  get lostForMs(): number {
    return this.#lostAtMs === null ? 0 : this.#now() - this.#lostAtMs;
  }

  /** Returns true if the bus works again after an outage since the last call. */
  look(): boolean {
    const sinceMs = this.#bus.flowingSinceMs;
    if (sinceMs === this.#sinceMs) return false;
    this.#sinceMs = sinceMs;
    this.#lostAtMs = sinceMs === null ? this.#now() : null;
    return sinceMs !== null;
  }
}
