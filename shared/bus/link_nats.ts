import {
  createInbox,
  type NatsConnection,
  PermissionViolationError,
  RequestError,
  type Status,
  type Subscription,
  TimeoutError,
} from "nats";
import { SteadyClock } from "../process/clock.ts";
import { settlesWithin } from "../process/serve.ts";
import {
  type BusHandler,
  type BusLink,
  type BusMessage,
  type BusStatus,
  type BusSubscription,
  BusTimeoutError,
  BusUnavailableError,
  NoRespondersError,
} from "./link.ts";
import {
  BUS_TIMING,
  type BusOptions,
  type BusTiming,
  dial,
  parseServer,
  SocketGuard,
} from "./link_dial.ts";

export { BUS_TIMING, type BusOptions } from "./link_dial.ts";

/** The link is not ready while more bytes than this wait to be sent. */
const BACKLOG_BYTES_MAX = 8 * 1024 * 1024;
/** After a connection that lasted this long, the next dial starts without delay. */
const STABLE_MS = 1_000;
/** Errors that may occur with every message or dial are logged at most once in this time. */
const LOG_INTERVAL_MS = 1_000;
const NO_BYTES = new Uint8Array();

/**
 * Connects to the bus. Servers need not run yet: it tries for `firstConnectMs`.
 *
 * @throws TypeError at once if an address is malformed.
 * @throws BusUnavailableError if no server was reached, with the reason for each.
 */
export async function connectBus(options: BusOptions): Promise<BusLink> {
  const link = new NatsLink(options);
  await link.connected;
  return link;
}

/** A subscription, with what is needed to renew it on the next connection. */
interface Subscribed {
  subject: string;
  handler: BusHandler;
  queue: string | undefined;
  /** The subscription on the current connection. */
  live: Subscription | null;
  isRefused: boolean;
}

/** The current connection. */
interface Connection {
  client: NatsConnection;
  sockets: SocketGuard;
  server: string;
  /** Resolves with the reason when it is lost. */
  lost: PromiseWithResolvers<string>;
}

/**
 * The only implementation of {@link BusLink}. It has one connection of the NATS client
 * at a time, and makes a new one when that is lost: the client's own reconnect waits
 * forever for a server that reads nothing.
 */
class NatsLink implements BusLink {
  /** Resolves when the first connection works. */
  readonly connected: Promise<void>;
  readonly #options: BusOptions;
  readonly #timing: BusTiming;
  readonly #servers: readonly string[];
  readonly #clock: SteadyClock;
  readonly #echo: string;
  readonly #subscribed = new Set<Subscribed>();
  readonly #listeners: ((status: BusStatus) => void)[] = [];
  readonly #loggedAtMs = new Map<string, number>();
  readonly #first = Promise.withResolvers<void>();
  /** Ends the wait between two rounds of dialling. */
  #retry = Promise.withResolvers<void>();
  readonly #running: Promise<void>;
  #isClosed = false;
  /** The sockets of the current connection, or of the one that is being made. */
  #sockets: SocketGuard | null = null;
  #connection: Connection | null = null;
  #lostAtMs: number | null = null;
  #flowingSinceMs: number | null = null;
  #receivedAtMs = -Infinity;
  /** The same on the steady clock. */
  #receivedSteadyMs = -Infinity;

  constructor(options: BusOptions) {
    const servers = options.servers.map(parseServer);
    const credentials = options.credentials ??
      servers.find((server) => server.credentials !== undefined)?.credentials;
    const tls = options.tls ??
      (servers.some(({ isTls }) => isTls) ? {} : undefined);
    this.#options = {
      ...options,
      ...(credentials === undefined ? {} : { credentials }),
      ...(tls === undefined ? {} : { tls }),
    };
    this.#timing = { ...BUS_TIMING, ...options.timing };
    this.#servers = shuffle(
      servers.map(({ address }) => address),
      options.random,
    );
    this.#clock = new SteadyClock(options.now);
    this.#echo = `${createInbox(options.inboxPrefix)}.echo`;
    this.connected = this.#first.promise;
    this.#running = this.#run();
  }

  get isConnected(): boolean {
    // The client reports a closed socket only some turns of the event loop later.
    return this.#connection?.sockets.isOpen ?? false;
  }

  get flowingSinceMs(): number | null {
    return this.isConnected ? this.#flowingSinceMs : null;
  }

  get receivedAtMs(): number {
    return this.#receivedAtMs;
  }

  get isReady(): boolean {
    return this.flowingSinceMs !== null &&
      this.pendingBytes <= BACKLOG_BYTES_MAX &&
      ![...this.#subscribed].some(({ isRefused }) => isRefused);
  }

  get pendingBytes(): number {
    return this.#connection?.sockets.pendingBytes ?? 0;
  }

  publish(
    subject: string,
    payload: Uint8Array,
    options?: { reply?: string },
  ): void {
    this.#present().client.publish(subject, payload, options);
  }

  subscribe(
    subject: string,
    handler: BusHandler,
    options: { queue?: string } = {},
  ): BusSubscription {
    const one: Subscribed = {
      subject,
      handler,
      queue: options.queue,
      live: null,
      isRefused: false,
    };
    this.#subscribed.add(one);
    if (this.#connection !== null) this.#open(one, this.#connection.client);
    const unsubscribe = () => {
      this.#subscribed.delete(one);
      if (one.live?.isClosed() === false) one.live.unsubscribe();
    };
    return { unsubscribe, drain: () => this.#drain(one).finally(unsubscribe) };
  }

  async request(
    subject: string,
    payload: Uint8Array,
    { timeoutMs: timeout }: { timeoutMs: number },
  ): Promise<BusMessage> {
    const { client } = this.#present();
    try {
      return await client.request(subject, payload, { timeout });
    } catch (cause) {
      const what = `Cannot request "${subject}"`;
      if (cause instanceof TimeoutError) {
        throw new BusTimeoutError(`${what}: no answer within ${timeout} ms`);
      }
      throw cause instanceof RequestError && cause.isNoResponders()
        ? new NoRespondersError(`${what}: it has no subscriber`)
        : new BusUnavailableError(`${what}: ${cause}`, { cause });
    }
  }

  async flush(): Promise<void> {
    await this.#inTime(this.#present().client.flush());
  }

  onStatus(listener: (status: BusStatus) => void): void {
    this.#listeners.push(listener);
  }

  async drain(): Promise<void> {
    await Promise.all([...this.#subscribed].map((one) => this.#drain(one)));
    await this.flush().catch((error) => this.#drainFailed(error));
    await this.close();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#retry.resolve();
    this.#connection?.lost.resolve("it was closed");
    this.#sockets?.destroy();
    await this.#running;
  }

  /**
   * Connects to one server after another. Each is used until it is lost. After a
   * round in which none could be reached, it waits.
   */
  async #run(): Promise<void> {
    const { now, random } = this.#options;
    const { firstConnectMs, retryMs, retryMaxMs } = this.#timing;
    const giveUpAtMs = now() + firstConnectMs;
    const reasons = new Map<string, string>();
    let failures = 0;
    for (let turn = 0; !this.#isClosed; turn++) {
      const server = this.#servers[turn % this.#servers.length] ?? "";
      reasons.set(server, await this.#connectTo(server));
      if (this.#isClosed) break;
      const sinceMs = this.#flowingSinceMs;
      this.#flowingSinceMs = null;
      failures = sinceMs === null ? failures + 1 : 0;
      const isStable = sinceMs !== null && now() - sinceMs >= STABLE_MS;
      if (isStable || failures % this.#servers.length > 0) continue;
      if (this.#lostAtMs === null && now() >= giveUpAtMs) {
        const all = [...reasons.values()].join("; ");
        return this.#first.reject(new BusUnavailableError(all));
      }
      const rounds = Math.floor((failures - 1) / this.#servers.length);
      const waitMs = Math.min(retryMaxMs, retryMs * 2 ** rounds);
      this.#retry = Promise.withResolvers<void>();
      await settlesWithin(this.#retry.promise, waitMs * (1 - random() / 2));
    }
    this.#first.reject(unavailable("it was closed"));
  }

  /** Returns why the server could not be reached, or why the connection ended. */
  async #connectTo(server: string): Promise<string> {
    const sockets = new SocketGuard();
    this.#sockets = sockets;
    let client: NatsConnection;
    try {
      const { dialMs: timeoutMs } = this.#timing;
      client = await dial(server, this.#options, { timeoutMs, sockets });
    } catch (error) {
      const { message } = error instanceof Error ? error : new Error();
      this.#logSometimes("bus_not_reached", { server, error: message });
      return message;
    }
    const lost = Promise.withResolvers<string>();
    this.#connection = { client, sockets, server, lost };
    this.#receivedSteadyMs = this.#clock.now();
    void client.closed().then(() => lost.resolve("it was cut"));
    const reading = this.#read(client.status());
    client.subscribe(this.#echo, { callback: () => this.#onMessage() });
    for (const one of this.#subscribed) this.#open(one, client);
    const timer = setInterval(() => this.#sendEcho(), this.#timing.echoMs);
    this.#sendEcho();
    const reason = await lost.promise;
    clearInterval(timer);
    this.#connection = null;
    sockets.destroy();
    if (!this.#isClosed) {
      this.#options.log.warn("bus_disconnected", { server, reason });
    }
    if (this.#flowingSinceMs !== null) {
      this.#lostAtMs = this.#options.now();
      this.#emit("disconnected");
    }
    await client.close();
    await reading;
    return `Cannot stay with the bus at "${server}": ${reason}`;
  }

  #sendEcho(): void {
    this.#clock.tick();
    const silenceMs = this.#clock.now() - this.#receivedSteadyMs;
    if (silenceMs >= this.#timing.silentMs) {
      this.#connection?.lost.resolve(
        `a message to "${this.#echo}" did not come back`,
      );
    } else if (this.isConnected) this.publish(this.#echo, NO_BYTES);
  }

  #onMessage(): void {
    this.#receivedAtMs = this.#options.now();
    this.#receivedSteadyMs = this.#clock.now();
    if (this.#flowingSinceMs !== null || this.#connection === null) return;
    this.#flowingSinceMs = this.#receivedAtMs;
    const { server } = this.#connection;
    if (this.#lostAtMs === null) {
      this.#options.log.info("bus_connected", { server });
      return this.#first.resolve();
    }
    const outageMs = this.#receivedAtMs - this.#lostAtMs;
    this.#options.log.info("bus_reconnected", { server, outageMs });
    this.#emit("reconnected");
  }

  /** Subscribes on a connection. A handler that throws would end its read loop. */
  #open(one: Subscribed, client: NatsConnection): void {
    const { subject, queue } = one;
    one.isRefused = false;
    one.live = client.subscribe(subject, {
      ...(queue === undefined ? {} : { queue }),
      callback: (refused, message) => {
        if (refused !== null) return void (one.isRefused = true);
        this.#onMessage();
        try {
          one.handler(message);
        } catch (error) {
          this.#logSometimes("bus_handler_failed", { subject, error });
        }
      },
    });
  }

  async #drain({ live, subject }: Subscribed): Promise<void> {
    if (live === null || live.isClosed() || !this.isConnected) return;
    await this.#inTime(live.drain())
      .catch((error) => this.#drainFailed(error, subject));
  }

  #drainFailed(error: unknown, subject?: string): void {
    this.#options.log.warn("bus_drain_incomplete", { error, subject });
  }

  /** Awaits a promise of the client until a deadline or the loss of the connection. */
  async #inTime(work: Promise<void>): Promise<void> {
    const { flushMs } = this.#timing;
    const lost = this.#present().lost.promise.then((reason) => {
      throw unavailable(reason);
    });
    if (await settlesWithin(Promise.race([work, lost]), flushMs)) return;
    throw new BusTimeoutError(`No answer within ${flushMs} ms`);
  }

  /** Reads the events of the client until its end. */
  async #read(events: AsyncIterable<Status>): Promise<void> {
    const { log } = this.#options;
    for await (const event of events) {
      if (event.type === "ldm") {
        log.info("bus_lame_duck", { server: event.server });
        this.#emit("lame_duck");
      } else if (event.type === "error") {
        const { error } = event;
        this.#logSometimes("bus_complaint", { error });
        const isRefusal = error instanceof PermissionViolationError;
        this.#emit(isRefusal ? "refused" : "error", error);
      }
    }
  }

  #emit(type: BusStatus["type"], error?: Error): void {
    const status = error === undefined ? { type } : { type, error };
    for (const listener of this.#listeners) listener(status);
  }

  #logSometimes(event: string, fields: Record<string, unknown>): void {
    const { now, log } = this.#options;
    const atMs = this.#loggedAtMs.get(event) ?? -Infinity;
    if (now() - atMs < LOG_INTERVAL_MS) return;
    this.#loggedAtMs.set(event, now());
    log.error(event, fields);
  }

  #present(): Connection {
    if (this.#connection === null || !this.isConnected) {
      throw unavailable("it is not connected");
    }
    return this.#connection;
  }
}

function unavailable(reason: string): BusUnavailableError {
  return new BusUnavailableError(`Cannot use the bus: ${reason}`);
}

/** In random order, so that the clients of a lost server spread over the others. */
function shuffle<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, rank: random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}
