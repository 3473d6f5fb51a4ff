import {
  createInbox,
  InvalidArgumentError,
  type NatsConnection,
  NatsConnectionImpl,
  PermissionViolationError,
  type Status,
  type Subscription,
} from "nats";
import { type MonotonicNow, SteadyClock } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import {
  type BusHandler,
  type BusLink,
  type BusMessage,
  BusRefusedError,
  type BusStatus,
  type BusSubscription,
  BusTimeoutError,
  BusUnavailableError,
  isNoResponders,
  NoRespondersError,
  PayloadTooLargeError,
  type PublishOptions,
  type RequestOptions,
  type SubscribeOptions,
} from "./link.ts";
import {
  createRedial,
  createThrottle,
  dialFirst,
  LinkTransport,
} from "./link_dial.ts";
import {
  type BusOptions,
  type BusTiming,
  planConnection,
} from "./link_options.ts";

export {
  BUS_TIMING,
  type BusCredentials,
  type BusOptions,
  type BusTiming,
  type BusTls,
} from "./link_options.ts";

/** What repeats with every message is logged once in this time, with a count of the others. */
const LOG_INTERVAL_MS = 1_000;
/**
 * A timer that fires later than this says that the event loop stood still. The
 * awaited answer may then be there already, unread, so it gets another moment.
 */
const LAG_MAX_MS = 200;
const LAG_GRACE_MS = 50;
const NO_BYTES = new Uint8Array();

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
    return new NatsLink({
      client,
      timing: plan.timing,
      inboxPrefix: options.inboxPrefix,
      log,
      now,
      onConnected: () => redial.onConnected(),
    });
  } catch (error) {
    await client.close();
    throw error;
  }
}

interface NatsLinkDeps {
  /** Connected, and used by nobody else. */
  client: NatsConnection;
  timing: BusTiming;
  inboxPrefix: string | undefined;
  log: Log;
  now: MonotonicNow;
  onConnected: () => void;
}

/** A request that has no answer yet. */
interface Pending {
  subject: string;
  wait: Wait<BusMessage>;
}

/** The one {@link BusLink}, over a connection of the NATS client. */
class NatsLink implements BusLink {
  readonly closed: Promise<Error | undefined>;
  readonly #d: NatsLinkDeps;
  /** The client, with what its documented interface hides. */
  readonly #client: NatsConnectionImpl;
  readonly #clock: SteadyClock;
  readonly #waits: Waits;
  readonly #open = new Set<Subscription>();
  /** Those that the server denied and that nobody has given up. */
  readonly #refused = new Set<Subscription>();
  readonly #listeners = new Set<(status: BusStatus) => void>();
  readonly #pending = new Map<string, Pending>();
  readonly #inbox: string;
  readonly #mayLogFault: () => number | undefined;
  readonly #mayLogComplaint: () => number | undefined;
  readonly #resolveClosed: (error: Error | undefined) => void;
  readonly #echoTimer: ReturnType<typeof setInterval>;
  #requests = 0;
  #server: string;
  #lostAtMs: number | undefined;
  #staleTimer: ReturnType<typeof setTimeout> | undefined;
  #flowingSinceMs: number | null = null;
  #heardAtMs = -Infinity;
  /** The same on the steady clock. */
  #heardSteadyMs = -Infinity;
  #closing: Promise<void> | undefined;

  constructor(deps: NatsLinkDeps) {
    const { client, timing, log, now } = deps;
    // The client's version is pinned; whatever a new version moves is found here.
    if (
      !(client instanceof NatsConnectionImpl) ||
      !(client.protocol.transport instanceof LinkTransport)
    ) {
      throw new Error("Cannot use the NATS client: it has an unknown form");
    }
    this.#d = deps;
    this.#client = client;
    this.#server = client.getServer();
    this.#clock = new SteadyClock(now);
    this.#waits = new Waits(now);
    this.#mayLogFault = createThrottle(now, LOG_INTERVAL_MS);
    this.#mayLogComplaint = createThrottle(now, LOG_INTERVAL_MS);
    const closed = Promise.withResolvers<Error | undefined>();
    this.closed = closed.promise;
    this.#resolveClosed = closed.resolve;
    this.#inbox = createInbox(deps.inboxPrefix);
    this.subscribe(`${this.#inbox}.*`, (answer) => this.#onAnswer(answer));
    this.#follow();
    this.#echoTimer = setInterval(() => this.#keepFlowing(), timing.echoMs);
    this.#keepFlowing();
    log.info("bus_connected", { server: this.#server });
  }

  get isConnected(): boolean {
    // Exact at once, while the client's status events come some turns later.
    return this.#client.protocol.connected && this.#lostAtMs === undefined &&
      this.#closing === undefined;
  }

  get flowingSinceMs(): number | null {
    return this.isConnected ? this.#flowingSinceMs : null;
  }

  get heardAtMs(): number {
    return this.#heardAtMs;
  }

  get isReady(): boolean {
    return this.flowingSinceMs !== null && this.#refused.size === 0 &&
      this.pendingBytes <= this.#d.timing.backlogBytesMax;
  }

  get pendingBytes(): number {
    const { outbound, transport } = this.#client.protocol;
    const inSocket = transport instanceof LinkTransport
      ? transport.pendingBytes
      : 0;
    return outbound.size() + inSocket;
  }

  publish(
    subject: string,
    payload: Uint8Array,
    options?: PublishOptions,
  ): void {
    if (!this.isConnected) {
      throw new BusUnavailableError(
        `Cannot publish to "${subject}": the bus is not connected`,
      );
    }
    try {
      this.#client.publish(subject, payload, options);
    } catch (error) {
      throw isTooLarge(error)
        ? new PayloadTooLargeError(subject, payload.length, error)
        : error;
    }
  }

  subscribe(
    subject: string,
    handler: BusHandler,
    options: SubscribeOptions = {},
  ): BusSubscription {
    if (this.#closing !== undefined) {
      throw new BusUnavailableError(
        `Cannot subscribe to "${subject}": the bus is closed`,
      );
    }
    const { queue } = options;
    const subscription = this.#client.subscribe(subject, {
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

  /**
   * The client has this as well, but its requests wait for their full timeout when
   * the connection is lost, and only the first of several to a forbidden subject is
   * told.
   */
  async request(
    subject: string,
    payload: Uint8Array,
    { timeoutMs }: RequestOptions,
  ): Promise<BusMessage> {
    const reply = `${this.#inbox}.${++this.#requests}`;
    const wait = this.#waits.open<BusMessage>(
      timeoutMs,
      () =>
        new BusTimeoutError(
          `Cannot request "${subject}": no answer within ${timeoutMs} ms`,
        ),
    );
    this.#pending.set(reply, { subject, wait });
    try {
      this.publish(subject, payload, { reply });
      return await wait.promise;
    } finally {
      this.#pending.delete(reply);
      wait.cancel();
    }
  }

  async flush(): Promise<void> {
    if (!this.isConnected) {
      throw new BusUnavailableError("Cannot flush: the bus is not connected");
    }
    const { flushMs } = this.#d.timing;
    await this.#waits.within(this.#client.flush(), flushMs, "flush");
  }

  onStatus(listener: (status: BusStatus) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async drain(): Promise<void> {
    await Promise.all([...this.#open].map((one) => this.#drain(one)));
    try {
      await this.flush();
    } catch (error) {
      this.#d.log.warn("bus_drain_incomplete", { error });
    }
    await this.close();
  }

  close(): Promise<void> {
    return this.#shutDown(undefined);
  }

  #keepFlowing(): void {
    this.#clock.tick();
    const silenceMs = this.#clock.now() - this.#heardSteadyMs;
    if (silenceMs >= this.#d.timing.silentMs) this.#flowingSinceMs = null;
    if (this.isConnected) this.publish(`${this.#inbox}.echo`, NO_BYTES);
  }

  #onHeard(): void {
    this.#heardAtMs = this.#d.now();
    this.#heardSteadyMs = this.#clock.now();
    if (this.isConnected) this.#flowingSinceMs ??= this.#heardAtMs;
  }

  /**
   * A handler that throws, or an async one that rejects, is contained here: the first
   * would end the client's read loop and with it every subscription of the
   * connection, the second would end the process.
   */
  #deliver(subject: string, handler: BusHandler, message: BusMessage): void {
    this.#onHeard();
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
    this.#d.log.error("bus_handler_failed", { subject, error, heldBack });
  }

  /** Answers that nobody awaits, and echoes, are dropped. */
  #onAnswer(message: BusMessage): void {
    const pending = this.#pending.get(message.subject);
    if (pending === undefined) return;
    if (isNoResponders(message)) {
      pending.wait.reject(new NoRespondersError(pending.subject));
    } else pending.wait.resolve(message);
  }

  async #drain(subscription: Subscription): Promise<void> {
    if (!this.#open.has(subscription)) return;
    try {
      if (!subscription.isClosed()) {
        const { flushMs } = this.#d.timing;
        await this.#waits.within(subscription.drain(), flushMs, "drain");
      }
    } catch (error) {
      const subject = subscription.getSubject();
      this.#d.log.warn("bus_drain_incomplete", { subject, error });
    }
    this.#remove(subscription);
  }

  #remove(subscription: Subscription): void {
    this.#open.delete(subscription);
    this.#refused.delete(subscription);
    if (!subscription.isClosed()) subscription.unsubscribe();
  }

  /** Reads the events of the client, the last of which is its end. */
  #follow(): void {
    const read = async () => {
      for await (const status of this.#client.status()) this.#onEvent(status);
    };
    void read().catch((error) => this.#giveUp(String(error)));
    void this.#client.closed().then((error) => this.#giveUp(String(error)));
  }

  /** The client tells some things several times and calls a refused login a stale connection. */
  #onEvent(event: Status): void {
    switch (event.type) {
      case "staleConnection":
        return this.#expectEnd();
      case "disconnect":
        clearTimeout(this.#staleTimer);
        return this.#lose("closed");
      case "reconnect":
        return this.#regain(event.server);
      case "ldm":
        this.#d.log.info("bus_lame_duck", { server: event.server });
        return this.#tell({ type: "lame_duck", server: event.server });
      case "error":
        return this.#complain(event.error);
      default:
        // Pings, dials and news of the cluster change nothing here.
        return;
    }
  }

  #expectEnd(): void {
    // Said also of a connection that is gone already, whose end was told before.
    if (this.#lostAtMs !== undefined) return;
    this.#lose("stale");
    this.#staleTimer = setTimeout(
      () => this.#giveUp("the client does not leave a dead one"),
      this.#d.timing.staleEndMs,
    );
  }

  #lose(reason: string): void {
    if (this.#lostAtMs !== undefined) return;
    this.#lostAtMs = this.#d.now();
    this.#flowingSinceMs = null;
    this.#d.log.warn("bus_disconnected", { server: this.#server, reason });
    this.#failWaits("the connection to the bus was lost");
    this.#tell({ type: "disconnected", server: this.#server });
  }

  #regain(server: string): void {
    if (this.#lostAtMs === undefined) return;
    const outageMs = this.#d.now() - this.#lostAtMs;
    this.#lostAtMs = undefined;
    this.#server = server;
    this.#d.onConnected();
    this.#keepFlowing();
    this.#d.log.info("bus_reconnected", { server, outageMs });
    this.#tell({ type: "reconnected", server, outageMs });
  }

  #complain(error: Error): void {
    const heldBack = this.#mayLogComplaint();
    if (heldBack !== undefined) {
      this.#d.log.error("bus_complaint", { error, heldBack });
    }
    if (!(error instanceof PermissionViolationError)) {
      return this.#tell({ type: "error", error });
    }
    const { subject } = error;
    const operation = error.operation === "publish" ? "publish" : "subscribe";
    if (operation === "publish") {
      for (const { subject: asked, wait } of this.#pending.values()) {
        if (asked === subject) {
          wait.reject(new BusRefusedError(operation, subject));
        }
      }
    }
    this.#tell({ type: "refused", operation, subject });
  }

  #tell(status: BusStatus): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(status);
      } catch (error) {
        const { type } = status;
        this.#d.log.error("bus_listener_failed", { status: type, error });
      }
    }
  }

  #failWaits(reason: string): void {
    this.#waits.rejectAll(() =>
      new BusUnavailableError(`Cannot await an answer: ${reason}`)
    );
  }

  #giveUp(reason: string): void {
    if (this.#closing !== undefined) return;
    const error = new BusUnavailableError(
      `Cannot keep the connection to the bus: ${reason}`,
    );
    this.#d.log.error("bus_given_up", { error });
    void this.#shutDown(error);
  }

  #shutDown(error: Error | undefined): Promise<void> {
    this.#closing ??= this.#end(error);
    return this.#closing;
  }

  async #end(error: Error | undefined): Promise<void> {
    clearTimeout(this.#staleTimer);
    clearInterval(this.#echoTimer);
    this.#failWaits("the bus was closed");
    await this.#client.close();
    this.#resolveClosed(error);
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof InvalidArgumentError &&
    error.message.includes("max_payload");
}

/** One thing that is awaited. Only the first of its settlements counts. */
interface Wait<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: Error): void;
  /** Nobody waits any more: the promise stays unsettled. */
  cancel(): void;
}

/** All that is awaited from the bus, so that losing the connection can end it at once. */
class Waits {
  readonly #now: MonotonicNow;
  readonly #open = new Set<{ reject(error: Error): void }>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Begins to wait. After `timeoutMs` the promise rejects with `timeoutError()`. */
  open<T>(timeoutMs: number, timeoutError: () => Error): Wait<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const dueAt = this.#now() + timeoutMs;
    let isExtended = false;
    const expire = () => {
      if (!isExtended && this.#now() - dueAt > LAG_MAX_MS) {
        isExtended = true;
        timer = setTimeout(expire, LAG_GRACE_MS);
        return;
      }
      wait.reject(timeoutError());
    };
    let timer = setTimeout(expire, timeoutMs);
    const finish = () => {
      clearTimeout(timer);
      this.#open.delete(wait);
    };
    const wait: Wait<T> = {
      promise,
      resolve: (value) => {
        finish();
        resolve(value);
      },
      reject: (error) => {
        finish();
        reject(error);
      },
      cancel: finish,
    };
    this.#open.add(wait);
    return wait;
  }

  /** Gives a promise of the client a deadline, and an end when the connection is lost. */
  within(work: Promise<void>, timeoutMs: number, what: string): Promise<void> {
    const wait = this.open<void>(
      timeoutMs,
      () => new BusTimeoutError(`Cannot ${what}: no answer in ${timeoutMs} ms`),
    );
    work.then(wait.resolve, (cause) =>
      wait.reject(
        new BusUnavailableError(`Cannot ${what}: the connection was lost`, {
          cause,
        }),
      ));
    return wait.promise;
  }

  /** Ends every wait now. */
  rejectAll(createError: () => Error): void {
    for (const wait of [...this.#open]) wait.reject(createError());
  }
}
