/** A proxy between two parts of a test that delays, drops and cuts. */
import { once } from "node:events";
import { setTimeout } from "node:timers/promises";

/** What the proxy does to the connections that run through it. */
export interface Toxics {
  /** Every piece arrives this much later; order is kept. */
  delayMs?: number;
  /**
   * Takes no bytes to the server, to the client, or both, like a network that drops
   * every packet.
   */
  blackHole?: "up" | "down" | "both";
  /** New connections are closed at once. */
  refuse?: boolean;
}

/**
 * Starts a proxy from a free port to `target`, a port of this machine; a function is
 * asked anew for every connection. `change` rewrites what comes down.
 */
export function startTcpProxy(
  target: number | (() => number),
  change = (bytes: Uint8Array) => bytes,
): TcpProxy {
  return new TcpProxy(target, change);
}

/** A proxy that listens. Disposing ends it and its connections. */
export class TcpProxy implements AsyncDisposable {
  readonly #target: number | (() => number);
  readonly #change: (bytes: Uint8Array) => Uint8Array;
  readonly #listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #open = new Set<AbortController>();
  readonly #running = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;
  #toxics: Toxics = {};
  #changed = Promise.withResolvers<void>();
  #refusals = 0;

  constructor(
    target: number | (() => number),
    change: (bytes: Uint8Array) => Uint8Array,
  ) {
    this.#target = target;
    this.#change = change;
    this.#accepting = this.#accept();
  }

  get port(): number {
    return this.#listener.addr.port;
  }

  /** Its address, as `host:port`. */
  get server(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** Replaces all toxics, for present and future connections. `{}` heals. */
  set(toxics: Toxics): void {
    this.#toxics = toxics;
    this.#wake();
  }

  /** Closes every connection that is open now. */
  cut(): void {
    for (const ending of this.#open) ending.abort();
    this.#wake();
  }

  /** How many connections are open now. */
  connections(): number {
    return this.#open.size;
  }

  /** How many connections were refused so far. */
  refusals(): number {
    return this.#refusals;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    this.cut();
    await this.#accepting;
    await Promise.all(this.#running);
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  async #accept(): Promise<void> {
    for await (const client of this.#listener) {
      if (this.#toxics.refuse === true) {
        this.#refusals += 1;
        client.close();
        continue;
      }
      const work = this.#serve(client).finally(() =>
        this.#running.delete(work)
      );
      this.#running.add(work);
    }
  }

  async #serve(client: Deno.TcpConn): Promise<void> {
    const target = this.#target;
    const port = typeof target === "number" ? target : target();
    // However one side ends, the other ends with it.
    const server = await Deno.connect({ hostname: "127.0.0.1", port })
      .catch(() => null);
    if (server === null) return client.close();
    client.setNoDelay(true);
    server.setNoDelay(true);
    const ending = new AbortController();
    const { signal } = ending;
    this.#open.add(ending);
    const both = [
      this.#pump(client, server, { isDown: false, signal }),
      this.#pump(server, client, { isDown: true, signal }),
    ];
    const aborted = once(signal, "abort");
    await Promise.race([...both, aborted]).catch(() => {});
    this.#open.delete(ending);
    ending.abort();
    this.#wake();
    for (const side of [client, server]) close(side);
    await Promise.allSettled(both);
  }

  async #pump(
    from: Deno.TcpConn,
    to: Deno.TcpConn,
    { isDown, signal }: { isDown: boolean; signal: AbortSignal },
  ): Promise<void> {
    const blackHoles = ["both", isDown ? "down" : "up"];
    const isHeld = () => blackHoles.includes(this.#toxics.blackHole ?? "");
    const writer = to.writable.getWriter();
    let delivery: Promise<unknown> = Promise.resolve();
    for await (const read of from.readable) {
      while (isHeld() && !signal.aborted) await this.#changed.promise;
      if (signal.aborted) return;
      const { delayMs = 0 } = this.#toxics;
      const bytes = isDown ? this.#change(read) : read;
      const due = delayMs && setTimeout(delayMs, undefined, { signal });
      delivery = Promise.all([delivery, due]).then(() => writer.write(bytes));
      delivery.catch(() => {}); // The next write reports it.
      if (delayMs === 0) await delivery;
    }
    await delivery;
  }
}

/**
 * Closes a connection, even if the other side, a stream or the test has done so before.
 */
export function close(connection: Pick<Deno.Conn, "close">): void {
  try {
    connection.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}
