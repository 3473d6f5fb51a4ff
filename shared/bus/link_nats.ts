/**
 * The connection of a service to the bus, as `link.ts` describes it: one NATS client
 * after another, with subscriptions that outlive them.
 */
import * as nats from "nats";
import { SteadyClock } from "../process/clock.ts";
import { errorMessage } from "../process/env.ts";
import { settlesWithin } from "../process/lifecycle/serve.ts";
import {
  type BusEvent,
  type BusHandler,
  type BusMessage,
  type BusSubscription,
  BusUnavailableError,
  type MessageHeader,
  NoRespondersError,
  type PublishOptions,
} from "./link.ts";
import {
  BUS_TIMING,
  type BusOptions,
  type BusTiming,
  dial,
  readServers,
  SocketGuard,
} from "./link_dial.ts";

export { BUS_TIMING, type BusOptions } from "./link_dial.ts";

/** The link is not ready while more bytes than this wait to be sent. */
const BACKLOG_BYTES_MAX = 8 * 1024 * 1024;
/** After a connection that lasted this long, the next dial starts without delay. */
const STABLE_MS = 1_000;
/**
 * Errors that may occur with every message or dial are logged at most once in this
 * time.
 */
const LOG_INTERVAL_MS = 1_000;

/**
 * Connects to the bus, whose servers need not run yet. Throws {@link
 * BusUnavailableError} if none was reached within `firstConnectMs`.
 */
export async function connectBus(options: BusOptions): Promise<BusLink> {
  const link = new BusLink(options);
  await link.first.promise;
  return link;
}

/** A subscription, with what is needed to renew it on the next connection. */
interface Subscribed {
  subject: string;
  handler: BusHandler;
  queue: { queue?: string };
  /** The subscription on the current connection. */
  live?: nats.Subscription;
  isRefused?: boolean;
}

/**
 * A connection that is made anew whenever it is lost, until it is closed: the client's
 * own reconnect waits forever for a server that reads nothing.
 */
export class BusLink {
  readonly #options: BusOptions;
  readonly #timing: BusTiming;
  readonly #clock: SteadyClock;
  readonly #echo: string;
  readonly #subscribed = new Set<Subscribed>();
  readonly #listeners: ((event: BusEvent, error?: Error) => void)[] = [];
  readonly #loggedAtMs = new Map<string, number>();
  /** Resolves at the first connection; rejects if there was none in time. */
  readonly first = Promise.withResolvers<void>();
  /** Ends the current connection, with the reason, or the pause before the next. */
  #ending = Promise.withResolvers<string>();
  readonly #running: Promise<void>;
  #isClosed = false;
  /** The sockets of the current connection, or of the one that is being made. */
  #sockets = new SocketGuard();
  /** Set from the login until the connection is lost. */
  #connection: { client: nats.NatsConnection; server: string } | null = null;
  #lostAtMs: number | null = null;
  #flowingSinceMs: number | null = null;
  /** When the latest message arrived, on the clock of the options. */
  receivedAtMs = -Infinity;
  /** When the latest message arrived, on the steady clock. */
  #receivedSteadyMs = -Infinity;

  constructor(options: BusOptions) {
    this.#options = readServers(options);
    this.#timing = { ...BUS_TIMING, ...options.timing };
    this.#clock = new SteadyClock(options.now);
    this.#echo = `${nats.createInbox(options.inboxPrefix)}.echo`;
    this.#running = this.#run();
  }

  /** Whether messages can be sent now. */
  get isConnected(): boolean {
    // The client reports a closed socket only some turns of the event loop later.
    return this.#connection !== null && this.#sockets.last?.destroyed === false;
  }

  /**
   * Since when messages arrive, null while not even the link's own do. A new time: some
   * may have been lost.
   */
  get flowingSinceMs(): number | null {
    return this.isConnected ? this.#flowingSinceMs : null;
  }

  /** Whether messages arrive, leave soon, and no subscription was denied. */
  get isReady(): boolean {
    return this.flowingSinceMs !== null &&
      this.pendingBytes <= BACKLOG_BYTES_MAX &&
      ![...this.#subscribed].some(({ isRefused }) => isRefused);
  }

  /**
   * The client of the present connection, for libraries that need one: another after an
   * outage. Throws {@link BusUnavailableError} while disconnected.
   */
  get client(): nats.NatsConnection {
    return this.#present();
  }

  /** Published bytes that the operating system has not accepted yet. */
  get pendingBytes(): number {
    return this.#sockets.last?.writableLength ?? 0;
  }

  /** A subject for replies that nobody else has; subscribe to it, or below it. */
  createInbox(): string {
    return nats.createInbox(this.#options.inboxPrefix);
  }

  /**
   * Sends a message, at most once, in order. `payload` must not change in this turn
   * of the event loop. Without a subscriber, the server answers on `reply`. Throws
   * {@link BusUnavailableError} while disconnected.
   */
  publish(
    subject: string,
    payload: Uint8Array,
    options: PublishOptions = {},
  ): void {
    const { header } = options;
    const sent = header ? { ...options, headers: headersOf(header) } : options;
    this.#present().publish(subject, payload, sent);
  }

  /**
   * Handles the messages of a subject, which may contain `*` and `>`. With `queue`,
   * each message goes to one member of that group. Works while disconnected.
   */
  subscribe(
    subject: string,
    handler: BusHandler,
    queue: { queue?: string } = {},
  ): BusSubscription {
    const one: Subscribed = { subject, handler, queue };
    this.#subscribed.add(one);
    if (this.#connection !== null) this.#open(one, this.#connection.client);
    return {
      drain: async () => {
        this.#subscribed.delete(one);
        const { live } = one;
        if (live?.isClosed() !== false || !this.isConnected) return;
        await this.#inTime(live.drain()).catch((error) =>
          this.#options.log.warn("bus_drain_incomplete", { error, subject })
        );
      },
    };
  }

  /**
   * Resolves with the first reply. Throws {@link NoRespondersError} if nobody receives
   * the request, and {@link BusUnavailableError} while disconnected or after
   * `timeoutMs`, when it may have been handled all the same.
   */
  async request(
    subject: string,
    payload: Uint8Array,
    { timeoutMs: timeout }: { timeoutMs: number },
  ): Promise<BusMessage> {
    const client = this.#present();
    try {
      return await client.request(subject, payload, { timeout });
    } catch (cause) {
      const what = `Cannot request "${subject}"`;
      throw cause instanceof nats.RequestError && cause.isNoResponders()
        ? new NoRespondersError(`${what}: it has no subscriber`)
        : new BusUnavailableError(`${what}: ${cause}`, { cause });
    }
  }

  /**
   * Resolves when the server has received everything published before, which is the
   * only back-pressure. Throws {@link BusUnavailableError} after `flushMs`.
   */
  async flush(): Promise<void> {
    await this.#inTime(this.#present().flush());
  }

  /**
   * Calls the listener for every event, with the server's error for `refused` and
   * `error`. It must not throw.
   */
  onEvent(listener: (event: BusEvent, error?: Error) => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Closes when everything is sent, or after the deadline of a flush. To lose nothing,
   * first drain the subscriptions that receive work.
   */
  async drain(): Promise<void> {
    await this.flush().catch((error) =>
      this.#options.log.warn("bus_drain_incomplete", { error })
    );
    await this.close();
  }

  /** Closes at once. Messages that were not sent are lost; requests fail. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#ending.resolve("it was closed");
    this.#sockets.destroy();
    await this.#running;
  }

  /**
   * Connects to one server after another, each until it is lost. Waits after a round
   * without any.
   */
  async #run(): Promise<void> {
    const { servers, now, random } = this.#options;
    const { firstConnectMs, retryMs, retryMaxMs } = this.#timing;
    const giveUpAtMs = now() + firstConnectMs;
    const reasons = new Map<string, string>();
    let failures = 0;
    for (let turn = 0; !this.#isClosed; turn++) {
      const server = servers[turn % servers.length] ?? "";
      reasons.set(server, await this.#connectTo(server));
      if (this.#isClosed) break;
      const sinceMs = this.#flowingSinceMs;
      this.#flowingSinceMs = null;
      failures = sinceMs === null ? failures + 1 : 0;
      const isStable = sinceMs !== null && now() - sinceMs >= STABLE_MS;
      if (isStable || failures % servers.length > 0) continue;
      if (this.#lostAtMs === null && now() >= giveUpAtMs) {
        const all = [...reasons.values()].join("; ");
        return this.first.reject(new BusUnavailableError(all));
      }
      const rounds = Math.floor((failures - 1) / servers.length);
      const waitMs = Math.min(retryMaxMs, retryMs * 2 ** rounds);
      this.#ending = Promise.withResolvers();
      await settlesWithin(this.#ending.promise, waitMs * (1 - random() / 2));
    }
    this.first.reject(unavailable("it was closed"));
  }

  /** Returns why the server could not be reached, or why the connection ended. */
  async #connectTo(server: string): Promise<string> {
    const sockets = new SocketGuard();
    this.#sockets = sockets;
    let client: nats.NatsConnection;
    try {
      const { dialMs: timeoutMs } = this.#timing;
      client = await dial(server, this.#options, { timeoutMs, sockets });
    } catch (thrown) {
      const error = errorMessage(thrown);
      this.#logSometimes("bus_not_reached", { server, error });
      return error;
    }
    const ending = Promise.withResolvers<string>();
    this.#ending = ending;
    this.#connection = { client, server };
    void client.closed().then(() => ending.resolve("it was cut"));
    this.#receivedSteadyMs = this.#clock.now();
    const reading = this.#read(client.status());
    client.subscribe(this.#echo, { callback: () => this.#onMessage() });
    for (const one of this.#subscribed) this.#open(one, client);
    const timer = setInterval(() => this.#sendEcho(), this.#timing.echoMs);
    this.#sendEcho();
    const reason = await ending.promise;
    clearInterval(timer);
    this.#connection = null;
    sockets.destroy();
    const { log, now } = this.#options;
    const message = `The connection to NATS was lost: ${reason}`;
    if (!this.#isClosed) log.warn("bus_disconnected", { server, message });
    if (this.#flowingSinceMs !== null) {
      this.#lostAtMs = now();
      this.#emit("disconnected");
    }
    await client.close();
    await reading;
    return `Lost the connection to the bus at "${server}": ${reason}`;
  }

  #sendEcho(): void {
    this.#clock.tick();
    const silenceMs = this.#clock.now() - this.#receivedSteadyMs;
    if (silenceMs >= this.#timing.silentMs) {
      const reason = `a message to "${this.#echo}" did not come back`;
      this.#ending.resolve(reason);
    } else if (this.isConnected) this.publish(this.#echo, new Uint8Array());
  }

  #onMessage(): void {
    const nowMs = this.#options.now();
    this.receivedAtMs = nowMs;
    this.#receivedSteadyMs = this.#clock.at(nowMs);
    if (this.#flowingSinceMs !== null || this.#connection === null) return;
    this.#flowingSinceMs = nowMs;
    const { server } = this.#connection;
    if (this.#lostAtMs === null) {
      this.#options.log.info("bus_connected", { server });
      return this.first.resolve();
    }
    const outageMs = Math.round(nowMs - this.#lostAtMs);
    this.#options.log.info("bus_reconnected", { server, outageMs });
    this.#emit("reconnected");
  }

  /** Subscribes on a connection. A handler that throws would end its read loop. */
  #open(one: Subscribed, client: nats.NatsConnection): void {
    const { subject, queue } = one;
    one.isRefused = false;
    one.live = client.subscribe(subject, {
      ...queue,
      callback: (refused, message) => {
        if (refused !== null) {
          one.isRefused = true;
          return;
        }
        this.#onMessage();
        try {
          one.handler(message);
        } catch (error) {
          this.#logSometimes("bus_handler_failed", { subject, error });
        }
      },
    });
  }

  /** Awaits a promise of the client until a deadline or the loss of its connection. */
  async #inTime(work: Promise<void>): Promise<void> {
    const { flushMs } = this.#timing;
    const loss = this.#ending.promise.then((reason) => {
      throw unavailable(reason);
    });
    if (await settlesWithin(Promise.race([work, loss]), flushMs)) return;
    throw unavailable(`no answer within ${flushMs} ms`);
  }

  async #read(events: AsyncIterable<nats.Status>): Promise<void> {
    for await (const event of events) {
      if (event.type === "ldm") {
        this.#options.log.info("bus_lame_duck", { server: event.server });
        this.#emit("lame_duck");
      } else if (event.type === "error") {
        const { error } = event;
        this.#logSometimes("bus_error", { error });
        const isRefusal = error instanceof nats.PermissionViolationError;
        this.#emit(isRefusal ? "refused" : "error", error);
      }
    }
  }

  #emit(event: BusEvent, error?: Error): void {
    for (const listener of this.#listeners) listener(event, error);
  }

  #logSometimes(event: string, fields: Record<string, unknown>): void {
    const nowMs = this.#options.now();
    const atMs = this.#loggedAtMs.get(event) ?? -Infinity;
    if (nowMs - atMs < LOG_INTERVAL_MS) return;
    this.#loggedAtMs.set(event, nowMs);
    this.#options.log.error(event, fields);
  }

  #present(): nats.NatsConnection {
    if (this.#connection === null || !this.isConnected) {
      throw unavailable("it is not connected");
    }
    return this.#connection.client;
  }
}

function headersOf({ name, value }: MessageHeader): nats.MsgHdrs {
  const headers = nats.headers();
  headers.append(name, value);
  return headers;
}

function unavailable(reason: string): BusUnavailableError {
  return new BusUnavailableError(`Cannot use the bus: ${reason}`);
}
