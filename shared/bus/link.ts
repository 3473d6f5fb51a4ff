/**
 * The connection to the bus. One small wrapper around the NATS client, because the
 * bare client
 *
 * - stops reading, without a word, after a handler throws;
 * - silently drops what is published while it is disconnected;
 * - lets a request wait for its full timeout when the connection is lost;
 * - never leaves a server that stopped reading while there is something to send;
 * - ends the process when a server refuses its TLS certificate;
 * - gives up for good after ten attempts to reconnect or two refused logins.
 */

import type { BusMessage } from "./link_message.ts";
import { NatsLink } from "./link_nats.ts";
import { dialFirst } from "./link_dial.ts";
import { type BusOptions, planConnection } from "./link_options.ts";
import { createRedial } from "./link_redial.ts";

export * from "./link_errors.ts";
export {
  type BusHeaders,
  type BusMessage,
  isNoResponders,
} from "./link_message.ts";
export {
  BUS_TIMING,
  type BusCredentials,
  type BusOptions,
  type BusTiming,
  type BusTls,
} from "./link_options.ts";

/**
 * Takes one message. What it throws is logged and goes no further. It must not
 * wait: messages are delivered one after another, and the next one would wait too.
 */
export type BusHandler = (message: BusMessage) => void;

/** What may go with a message beside its payload. */
export interface PublishOptions {
  /** Where an answer is expected, and where "no responders" is reported. */
  reply?: string;
  /** A few, on few messages: two headers halve the throughput. Lower-case names. */
  headers?: Readonly<Record<string, string>>;
}

export interface RequestOptions {
  timeoutMs: number;
  headers?: Readonly<Record<string, string>>;
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
   * Answers a message. Does nothing when its sender expects no answer.
   *
   * @throws as `publish()`.
   */
  respond(message: BusMessage, payload: Uint8Array): void;

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
   * Whether messages really flow: one sent to this process itself comes back
   * within half a second, the backlog is small, and no subscription was refused.
   * Needs the permission to publish to `<inboxPrefix>.*.probe`.
   */
  probe(): Promise<boolean>;

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
 * Connects to the bus. Servers need not run yet: it tries for `firstConnectMs`.
 *
 * @throws BusConfigError at once when an option cannot work.
 * @throws BusUnavailableError when no server was reached, with each one's reason.
 */
export async function connectBus(options: BusOptions): Promise<BusLink> {
  const plan = planConnection(options);
  const { log, now, random } = options;
  const redial = createRedial({ timing: plan.timing, now, random });
  const client = await dialFirst(options, plan, redial);
  try {
    const link = new NatsLink({
      client,
      timing: plan.timing,
      inboxPrefix: options.inboxPrefix,
      log,
      now,
    });
    redial.onConnected();
    link.onStatus(({ type }) => {
      if (type === "reconnected") redial.onConnected();
    });
    return link;
  } catch (error) {
    await client.close();
    throw error;
  }
}
