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
) {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const open = new Set<AbortController>();
  const running = new Set<Promise<void>>();
  let toxics: Toxics = {};
  let changed = Promise.withResolvers<void>();
  let refusals = 0;
  const wake = () => {
    changed.resolve();
    changed = Promise.withResolvers();
  };
  const cut = () => {
    for (const ending of open) ending.abort();
    wake();
  };

  const pump = async (
    from: Deno.TcpConn,
    to: Deno.TcpConn,
    { isDown, signal }: { isDown: boolean; signal: AbortSignal },
  ) => {
    const blackHoles = ["both", isDown ? "down" : "up"];
    const isHeld = () => blackHoles.includes(toxics.blackHole ?? "");
    const writer = to.writable.getWriter();
    let sent: Promise<unknown> = Promise.resolve();
    for await (const read of from.readable) {
      while (isHeld() && !signal.aborted) await changed.promise;
      if (signal.aborted) return;
      const { delayMs = 0 } = toxics;
      const bytes = isDown ? change(read) : read;
      const due = delayMs && setTimeout(delayMs, undefined, { signal });
      sent = Promise.all([sent, due]).then(() => writer.write(bytes));
      sent.catch(() => {}); // The next one says it.
      if (delayMs === 0) await sent;
    }
    await sent;
  };
  const serve = async (client: Deno.TcpConn): Promise<void> => {
    const port = typeof target === "number" ? target : target();
    // However one side ends, the other ends with it.
    const server = await Deno.connect({ hostname: "127.0.0.1", port })
      .catch(() => null);
    if (server === null) return client.close();
    client.setNoDelay(true);
    server.setNoDelay(true);
    const ending = new AbortController();
    const { signal } = ending;
    open.add(ending);
    const both = [
      pump(client, server, { isDown: false, signal }),
      pump(server, client, { isDown: true, signal }),
    ];
    const aborted = once(signal, "abort");
    await Promise.race([...both, aborted]).catch(() => {});
    open.delete(ending);
    ending.abort();
    wake();
    for (const side of [client, server]) close(side);
    await Promise.allSettled(both);
  };
  const accepting = (async () => {
    for await (const client of listener) {
      if (toxics.refuse === true) {
        refusals += 1;
        client.close();
        continue;
      }
      const work = serve(client).finally(() => running.delete(work));
      running.add(work);
    }
  })();
  return {
    port: listener.addr.port,
    server: `127.0.0.1:${listener.addr.port}`,
    /** Replaces all toxics, for present and future connections. `{}` heals. */
    set: (wanted: Toxics) => {
      toxics = wanted;
      wake();
    },
    /** Closes every connection that is open now. */
    cut,
    connections: () => open.size,
    /** Connections that were refused so far. */
    refusals: () => refusals,
    [Symbol.asyncDispose]: async () => {
      listener.close();
      cut();
      await accepting;
      await Promise.all(running);
    },
  };
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
