/**
 * What the connection to the bus promises. One small wrapper around the NATS client
 * (`link_nats.ts`), because the bare client
 *
 * - stops reading, without a word, after a handler throws;
 * - silently drops what is published while it is disconnected;
 * - lets a request wait for its full timeout when the connection is lost;
 * - never leaves a server that stopped reading while there is something to send;
 * - ends the process when a server refuses its TLS certificate;
 * - gives up for good after ten attempts to reconnect or two refused logins.
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
 * Whether this is the server's own word that nobody subscribes to what was
 * published. It comes on the reply subject of the message, within a round trip.
 */
export function isNoResponders(message: BusMessage): boolean {
  return message.data.length === 0 &&
    message.headers?.code === NO_RESPONDERS_CODE;
}

/**
 * Takes one message. What it throws is logged and goes no further. It must not
 * wait: messages are delivered one after another, and the next one would wait too.
 */
export type BusHandler = (message: BusMessage) => void;

/** What may go with a message beside its payload. */
export interface PublishOptions {
  /** Where an answer is expected, and where "no responders" is reported. */
  reply?: string;
}

export interface RequestOptions {
  timeoutMs: number;
}

export interface SubscribeOptions {
  /** Each message goes to one member of the group of this name. */
  queue?: string;
}

/** A subscription. It outlives reconnects. */
export interface BusSubscription {
  /**
   * Has the server send nothing more, and resolves when all that it had sent
   * before was handled. Resolves also when the connection is lost meanwhile.
   */
  drain(): Promise<void>;
  /** Ends it at once; messages under way are dropped. */
  unsubscribe(): void;
}

/** What happens to the connection. */
export type BusStatus =
  /** Nothing can be sent; frames under way in either direction may be lost. */
  | { type: "disconnected"; server: string }
  /** Subscriptions are in force again. Ask for what was lost. */
  | { type: "reconnected"; server: string; outageMs: number }
  /** The server retires and will cut this connection soon; another one takes over. */
  | { type: "lame_duck"; server: string }
  /** A configuration mistake: the server denies what this service needs. */
  | { type: "refused"; operation: "publish" | "subscribe"; subject: string }
  /** Anything else the server complained about: authentication, a slow reader. */
  | { type: "error"; error: Error };

/** A connection to the bus that comes back by itself until it is closed. */
export interface BusLink {
  readonly isConnected: boolean;

  /**
   * Hands a message to the connection. Messages of one connection arrive in order,
   * at most once; those on the wire when a connection breaks are lost. `payload`
   * must not change before the current turn of the event loop has ended.
   *
   * @throws BusUnavailableError while disconnected: nothing is kept for later.
   * @throws PayloadTooLargeError beyond the server's `max_payload`.
   */
  publish(
    subject: string,
    payload: Uint8Array,
    options?: PublishOptions,
  ): void;

  /**
   * Has `handler` called for every message on a subject, which may hold the
   * wildcards `*` and `>`. May be called while disconnected.
   */
  subscribe(
    subject: string,
    handler: BusHandler,
    options?: SubscribeOptions,
  ): BusSubscription;

  /**
   * Publishes a question and resolves with the first answer.
   *
   * @throws NoRespondersError within a round trip when nobody subscribes.
   * @throws BusTimeoutError after `timeoutMs`.
   * @throws BusUnavailableError at once while disconnected, and as soon as the
   * connection is lost. The question may have had its effect in the second case.
   * @throws BusRefusedError when the server denies the subject.
   * @throws PayloadTooLargeError beyond the server's `max_payload`.
   */
  request(
    subject: string,
    payload: Uint8Array,
    options: RequestOptions,
  ): Promise<BusMessage>;

  /**
   * Resolves when the server has taken all that was published before. This is the
   * only back-pressure there is: a loop that publishes much awaits it every 256 KiB.
   *
   * @throws BusTimeoutError, BusUnavailableError
   */
  flush(): Promise<void>;

  /** Bytes that were published and still wait in this process. */
  readonly pendingBytes: number;

  /** Calls `listener` for every change until the returned function is called. */
  onStatus(listener: (status: BusStatus) => void): () => void;

  /**
   * Since when the bus carries messages, by the clock of the options; null while it
   * does not. The link sends itself a message every `echoMs`, so a bus that brings
   * nothing for `silentMs` is at fault, and nobody's silence proves anything. A new
   * time says that messages may have been lost. Needs the permission to publish to
   * `<inboxPrefix>.*.echo`.
   */
  readonly flowingSinceMs: number | null;

  /** When the bus last brought anything. */
  readonly heardAtMs: number;

  /** Whether messages flow, the backlog is small, and no subscription was refused. */
  readonly isReady: boolean;

  /**
   * Ends in order: drains the subscriptions that are left, flushes, closes. To lose
   * nothing, first drain the subscriptions that bring work and wait until the work
   * is done; its answers can be published until then. Resolves in any case, at the
   * latest after two times the flush deadline.
   */
  drain(): Promise<void>;

  /** Ends at once. What was published and not flushed may be lost. */
  close(): Promise<void>;

  /**
   * Resolves when the link is closed: with `undefined` when asked to, with an error
   * when it gave up. Then the process should exit and be started again.
   */
  readonly closed: Promise<Error | undefined>;
}

/**
 * Nothing can be sent or received now: the connection is down, was lost while an
 * answer was awaited, or is closed. What was to be sent was not sent.
 */
export class BusUnavailableError extends Error {
  override readonly name = "BusUnavailableError";
}

/**
 * No answer in time. What was sent may have arrived and may have had its effect.
 */
export class BusTimeoutError extends Error {
  override readonly name = "BusTimeoutError";
}

/** The server knows nobody who subscribes to the subject of a request. */
export class NoRespondersError extends Error {
  override readonly name = "NoRespondersError";
  readonly subject: string;

  constructor(subject: string) {
    super(`Cannot request "${subject}": nobody subscribes to it`);
    this.subject = subject;
  }
}

/** The message is larger than the server takes. Nothing was sent. */
export class PayloadTooLargeError extends Error {
  override readonly name = "PayloadTooLargeError";

  constructor(subject: string, bytes: number, cause: unknown) {
    super(
      `Cannot publish to "${subject}": ${bytes} bytes are more than the server's max_payload`,
      { cause },
    );
  }
}

/** The server forbids this connection to publish or to subscribe to a subject. */
export class BusRefusedError extends Error {
  override readonly name = "BusRefusedError";
  readonly operation: "publish" | "subscribe";
  readonly subject: string;

  constructor(operation: "publish" | "subscribe", subject: string) {
    super(`Cannot ${operation} to "${subject}": the server denies it`);
    this.operation = operation;
    this.subject = subject;
  }
}

/** An option cannot work, however long one waits: a malformed address or seed. */
export class BusConfigError extends Error {
  override readonly name = "BusConfigError";
}

/** Tells what changed about the flow of a bus since the last look. */
export class FlowWatch {
  readonly #bus: Pick<BusLink, "flowingSinceMs">;
  readonly #now: MonotonicNow;
  #sinceMs: number | null;
  #lostAtMs: number | null;
  #hasFlown: boolean;

  constructor(bus: Pick<BusLink, "flowingSinceMs">, now: MonotonicNow) {
    this.#bus = bus;
    this.#now = now;
    this.#sinceMs = bus.flowingSinceMs;
    this.#hasFlown = this.#sinceMs !== null;
    this.#lostAtMs = this.#hasFlown ? null : now();
  }

  /** How long the bus has been away as of the last look; 0 while it flows. */
  get lostForMs(): number {
    return this.#lostAtMs === null ? 0 : this.#now() - this.#lostAtMs;
  }

  look(): "lost" | "restored" | null {
    const sinceMs = this.#bus.flowingSinceMs;
    if (sinceMs === this.#sinceMs) return null;
    this.#sinceMs = sinceMs;
    this.#lostAtMs = sinceMs === null ? this.#now() : null;
    if (sinceMs === null) return "lost";
    const isReturn = this.#hasFlown;
    this.#hasFlown = true;
    return isReturn ? "restored" : null;
  }
}
