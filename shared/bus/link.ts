/**
 * What the connection to the bus promises. `link_nats.ts` wraps the NATS client,
 * because the bare client
 *
 * - stops reading, without an error, after a handler throws;
 * - silently drops what is published while it is disconnected;
 * - lets a request wait for its full timeout when the connection is lost;
 * - never leaves a server that stopped reading while there is something to send;
 * - ends the process when a server refuses its TLS certificate.
 */
import type { MonotonicNow } from "../process/clock.ts";

/**
 * One message as it arrived. The fields are read lazily where that costs
 * something, so a handler pays only for what it looks at.
 *
 * `data` is a view of the piece of up to 64 KiB that was read from the socket. It
 * stays valid, but keeping it keeps the whole piece: copy what lives longer than
 * the handler.
 */
export interface BusMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  /** Where an answer is expected; absent or empty when none is. */
  readonly reply?: string;
  /** `code`: the status set by the server, 0 for ordinary messages. */
  readonly headers?: { readonly code: number };
}

const NO_RESPONDERS_CODE = 503;

/**
 * Whether this is the server's notice that nobody subscribes to what was
 * published. It comes on the reply subject of the message, within a round trip.
 */
export function isNoResponders(message: BusMessage): boolean {
  return message.data.length === 0 &&
    message.headers?.code === NO_RESPONDERS_CODE;
}

/**
 * Handles one message. What it throws is logged and goes no further. It must not
 * be async: messages are delivered one after another.
 */
export type BusHandler = (message: BusMessage) => void;

/** A subscription. It outlives reconnects. */
export interface BusSubscription {
  /**
   * Tells the server to send nothing more, and resolves when everything sent
   * before was handled, or the connection is lost.
   */
  drain(): Promise<void>;
  /** Ends it at once; messages under way are dropped. */
  unsubscribe(): void;
}

/**
 * What happens to the connection.
 *
 * | type | meaning |
 * | --- | --- |
 * | `disconnected` | nothing can be sent; frames under way may be lost |
 * | `reconnected` | subscriptions are in force again |
 * | `lame_duck` | the server is shutting down and will close the connection soon |
 * | `refused` | the server denies a subject: its permissions are wrong |
 * | `error` | anything else the server complains about |
 */
export interface BusStatus {
  type: "disconnected" | "reconnected" | "lame_duck" | "refused" | "error";
  /** What the server says, for the last two. */
  error?: Error;
}

/** A connection to the bus that is made again whenever it is lost, until it is closed. */
export interface BusLink {
  /** Whether messages can be sent and arrive. */
  readonly isConnected: boolean;

  /**
   * Since when the bus has carried messages, by the clock of the options; null
   * while it does not. The link sends itself a message every `echoMs`, and leaves a
   * server that delivers nothing for `silentMs`. A new time means that messages may
   * have been lost. Needs the permission to publish to `<inboxPrefix>.*.echo`.
   */
  readonly flowingSinceMs: number | null;

  /** When the last message of any kind arrived. */
  readonly receivedAtMs: number;

  /** Whether it is connected, the backlog is small, and no subject was refused. */
  readonly isReady: boolean;

  /** Bytes that were published and that the operating system has not taken yet. */
  readonly pendingBytes: number;

  /**
   * Sends a message. Messages of one connection arrive in order, at most once;
   * those on the wire when a connection breaks are lost. `payload` must not change
   * before the current turn of the event loop has ended. The server answers on
   * `reply` when nobody subscribes, see {@link isNoResponders}.
   *
   * @throws BusUnavailableError while disconnected: nothing is kept for later.
   */
  publish(
    subject: string,
    payload: Uint8Array,
    options?: { reply?: string },
  ): void;

  /**
   * Calls `handler` for every message on a subject, which may hold the wildcards
   * `*` and `>`; with `queue`, each message goes to one member of that group. May
   * be called while disconnected.
   */
  subscribe(
    subject: string,
    handler: BusHandler,
    options?: { queue?: string },
  ): BusSubscription;

  /**
   * Publishes a question and resolves with the first answer.
   *
   * @throws NoRespondersError within a round trip when nobody subscribes.
   * @throws BusTimeoutError after `timeoutMs`.
   * @throws BusUnavailableError at once while disconnected, and as soon as the
   * connection is lost. In the second case the question may have been acted on.
   */
  request(
    subject: string,
    payload: Uint8Array,
    options: { timeoutMs: number },
  ): Promise<BusMessage>;

  /**
   * Resolves when the server has taken all that was published before. This is the
   * only back-pressure there is.
   *
   * @throws BusTimeoutError, BusUnavailableError
   */
  flush(): Promise<void>;

  /** Calls `listener` for every change. It must not throw. */
  onStatus(listener: (status: BusStatus) => void): void;

  /**
   * Shuts down in order: drains the remaining subscriptions, flushes, closes. To
   * lose nothing, first drain the subscriptions that bring work and wait until the
   * work is done; its answers can be published until then. Never rejects, and takes
   * at most two flush deadlines.
   */
  drain(): Promise<void>;

  /** Closes it at once. What was published and not flushed may be lost. */
  close(): Promise<void>;
}

/**
 * Nothing can be sent or received now: the connection is down, was lost while an
 * answer was awaited, or is closed.
 */
export class BusUnavailableError extends Error {
  override readonly name = "BusUnavailableError";
}

/** No answer in time. What was sent may have arrived and been acted on. */
export class BusTimeoutError extends Error {
  override readonly name = "BusTimeoutError";
}

/** The server knows nobody who subscribes to the subject of a request. */
export class NoRespondersError extends Error {
  override readonly name = "NoRespondersError";
}

/** Follows outages of a bus, seen from whoever looks now and then. */
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

  /** How long the bus had been away at the last look; 0 while it flows. */
  get lostForMs(): number {
    return this.#lostAtMs === null ? 0 : this.#now() - this.#lostAtMs;
  }

  /** Returns true when the bus was away since the last look, and is back. */
  look(): boolean {
    const sinceMs = this.#bus.flowingSinceMs;
    if (sinceMs === this.#sinceMs) return false;
    this.#sinceMs = sinceMs;
    this.#lostAtMs = sinceMs === null ? this.#now() : null;
    return sinceMs !== null;
  }
}
