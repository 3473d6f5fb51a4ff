import {
  createInbox,
  headers,
  InvalidArgumentError,
  type MsgHdrs,
  type NatsConnection,
} from "nats";
import type { MonotonicNow } from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import type {
  BusHandler,
  BusLink,
  BusStatus,
  BusSubscription,
  PublishOptions,
  RequestOptions,
  SubscribeOptions,
} from "./link.ts";
import {
  BusRefusedError,
  BusUnavailableError,
  PayloadTooLargeError,
} from "./link_errors.ts";
import { ClientInternals } from "./link_internals.ts";
import type { BusMessage } from "./link_message.ts";
import type { BusTiming } from "./link_options.ts";
import { Requests } from "./link_requests.ts";
import { LinkState } from "./link_state.ts";
import { Subscriptions } from "./link_subscriptions.ts";
import { Waits } from "./link_waits.ts";

const NO_BYTES = new Uint8Array();

/** What a link is made of. */
export interface NatsLinkDeps {
  /** Connected, and used by nobody else. */
  client: NatsConnection;
  timing: BusTiming;
  inboxPrefix: string | undefined;
  log: Log;
  now: MonotonicNow;
}

/** The one {@link BusLink}, over a connection of the NATS client. */
export class NatsLink implements BusLink {
  readonly closed: Promise<Error | undefined>;

  readonly #client: NatsConnection;
  readonly #internals: ClientInternals;
  readonly #timing: BusTiming;
  readonly #log: Log;
  readonly #waits: Waits;
  readonly #state: LinkState;
  readonly #subscriptions: Subscriptions;
  /** Questions to others. */
  readonly #requests: Requests;
  /** Questions to itself. */
  readonly #echoes: Requests;
  readonly #resolveClosed: (error: Error | undefined) => void;
  #closing: Promise<void> | undefined;

  constructor(deps: NatsLinkDeps) {
    const { client, timing, log, now } = deps;
    this.#client = client;
    this.#internals = new ClientInternals(client);
    this.#timing = timing;
    this.#log = log;
    this.#waits = new Waits(now);
    const closed = Promise.withResolvers<Error | undefined>();
    this.closed = closed.promise;
    this.#resolveClosed = closed.resolve;
    this.#state = new LinkState({
      server: client.getServer(),
      staleEndMs: timing.staleEndMs,
      log,
      now,
      onLost: () => this.#failWaits("the connection to the bus was lost"),
      onStuck: () => this.#giveUp("the client does not leave a dead one"),
      onRefused: (operation, subject) => this.#refuse(operation, subject),
    });
    this.#subscriptions = new Subscriptions({
      client,
      waits: this.#waits,
      drainMs: timing.flushMs,
      log,
      now,
    });
    const inbox = createInbox(deps.inboxPrefix);
    this.#requests = new Requests(this.#waits, inbox);
    this.#echoes = new Requests(this.#waits, `${inbox}.probe`);
    this.#subscriptions.add(
      `${inbox}.*`,
      (answer) => this.#requests.receive(answer),
    );
    this.#subscriptions.add(
      `${inbox}.probe.*`,
      (echo) => this.#echoes.receive(echo),
    );
    this.#follow();
    log.info("bus_connected", { server: client.getServer() });
  }

  get isConnected(): boolean {
    return this.#internals.isConnected && !this.#state.isLost &&
      this.#closing === undefined;
  }

  get pendingBytes(): number {
    return this.#internals.pendingBytes;
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
      if (options === undefined) this.#client.publish(subject, payload);
      else this.#client.publish(subject, payload, toClientOptions(options));
    } catch (error) {
      throw isTooLarge(error)
        ? new PayloadTooLargeError(subject, payload.length, error)
        : error;
    }
  }

  subscribe(
    subject: string,
    handler: BusHandler,
    options?: SubscribeOptions,
  ): BusSubscription {
    if (this.#closing !== undefined) {
      throw new BusUnavailableError(
        `Cannot subscribe to "${subject}": the bus is closed`,
      );
    }
    return this.#subscriptions.add(subject, handler, options?.queue);
  }

  request(
    subject: string,
    payload: Uint8Array,
    options: RequestOptions,
  ): Promise<BusMessage> {
    return this.#requests.ask(
      subject,
      options.timeoutMs,
      (reply) => this.publish(subject, payload, { ...options, reply }),
    );
  }

  respond(message: BusMessage, payload: Uint8Array): void {
    if (message.reply === undefined || message.reply === "") return;
    this.publish(message.reply, payload);
  }

  async flush(): Promise<void> {
    if (!this.isConnected) {
      throw new BusUnavailableError("Cannot flush: the bus is not connected");
    }
    const { flushMs } = this.#timing;
    await this.#waits.within(this.#client.flush(), flushMs, "flush");
  }

  onStatus(listener: (status: BusStatus) => void): () => void {
    return this.#state.onStatus(listener);
  }

  async probe(): Promise<boolean> {
    if (!this.isConnected || this.#subscriptions.hasRefused) return false;
    if (this.pendingBytes > this.#timing.backlogBytesMax) return false;
    try {
      await this.#echoes.ask(
        "itself",
        this.#timing.probeMs,
        (self) => this.publish(self, NO_BYTES),
      );
      return true;
    } catch (error) {
      this.#log.warn("bus_probe_failed", { error });
      return false;
    }
  }

  async drain(): Promise<void> {
    await this.#subscriptions.drainAll();
    try {
      await this.flush();
    } catch (error) {
      this.#log.warn("bus_drain_incomplete", { error });
    }
    await this.close();
  }

  close(): Promise<void> {
    return this.#shutDown(undefined);
  }

  #failWaits(reason: string): void {
    this.#waits.rejectAll(() =>
      new BusUnavailableError(`Cannot await an answer: ${reason}`)
    );
  }

  #refuse(operation: "publish" | "subscribe", subject: string): void {
    if (operation === "subscribe") return;
    this.#requests.reject(
      subject,
      () => new BusRefusedError(operation, subject),
    );
  }

  /** Passes on the events of the client, the last of which is its end. */
  #follow(): void {
    const read = async () => {
      for await (const status of this.#client.status()) {
        this.#state.handle(status);
      }
    };
    void read().catch((error) => this.#giveUp(String(error)));
    void this.#client.closed().then((error) => this.#giveUp(String(error)));
  }

  #giveUp(reason: string): void {
    if (this.#closing !== undefined) return;
    const error = new BusUnavailableError(
      `Cannot keep the connection to the bus: ${reason}`,
    );
    this.#log.error("bus_given_up", { error });
    void this.#shutDown(error);
  }

  #shutDown(error: Error | undefined): Promise<void> {
    this.#closing ??= this.#end(error);
    return this.#closing;
  }

  async #end(error: Error | undefined): Promise<void> {
    this.#state.end();
    this.#failWaits("the bus was closed");
    await this.#client.close();
    this.#resolveClosed(error);
  }
}

function toClientOptions(
  options: PublishOptions,
): { reply?: string; headers?: MsgHdrs } {
  const result: { reply?: string; headers?: MsgHdrs } = {};
  if (options.reply !== undefined) result.reply = options.reply;
  if (options.headers !== undefined) {
    result.headers = toClientHeaders(options.headers);
  }
  return result;
}

function toClientHeaders(fields: Readonly<Record<string, string>>): MsgHdrs {
  const result = headers();
  // `set` refuses line breaks, with which a value could add headers of its own.
  for (const [name, value] of Object.entries(fields)) result.set(name, value);
  return result;
}

function isTooLarge(error: unknown): boolean {
  return error instanceof InvalidArgumentError &&
    error.message.includes("max_payload");
}
