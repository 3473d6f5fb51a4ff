import { once } from "node:events";
import { setTimeout } from "node:timers/promises";

/** Bytes on their way to the server, to the client, or both. */
export type Direction = "up" | "down" | "both";

/** What the proxy does to the connections that run through it. */
export interface Toxics {
  /** Every piece arrives this much later; order is kept. */
  delayMs?: number;
  /**
   * Bytes are no longer taken in this direction, as on a network that drops every
   * packet: connections stay open, and the sender's buffers fill up.
   */
  blackHole?: Direction;
  /** New connections are closed at once. */
  refuse?: boolean;
}

/** A TCP proxy on 127.0.0.1 that can fail in the ways that networks do. */
export type TcpProxy = ReturnType<typeof startTcpProxy>;

/** Pieces under way in one direction; enough for 16 MB/s at a delay of 200 ms. */
const PIECES_UNDER_WAY = 50;

/** Bytes under way, and when they arrive. */
interface Piece {
  bytes: Uint8Array;
  dueAt: number;
}

/**
 * Starts a proxy from a free port to `target`, a port of this machine. A function
 * is asked for every new connection, so that an address can move to another
 * server, or go around several; open connections stay where they are. `change`
 * rewrites what comes down.
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
  const isHeld = (direction: Direction) =>
    toxics.blackHole === direction || toxics.blackHole === "both";

  const pump = (
    from: Deno.TcpConn,
    to: Deno.TcpConn,
    { direction, signal }: { direction: Direction; signal: AbortSignal },
  ) => {
    const line = new TransformStream<Uint8Array, Piece>(
      {
        async transform(read, line) {
          while (isHeld(direction) && !signal.aborted) await changed.promise;
          if (signal.aborted) return;
          const dueAt = performance.now() + (toxics.delayMs ?? 0);
          const bytes = direction === "down" ? change(read) : read;
          line.enqueue({ bytes, dueAt });
        },
      },
      undefined,
      { highWaterMark: PIECES_UNDER_WAY },
    );
    const writer = to.writable.getWriter();
    const arrival = new WritableStream<Piece>({
      async write({ bytes, dueAt }) {
        const waitMs = dueAt - performance.now();
        if (waitMs > 0) await sleep(waitMs, signal);
        await writer.write(bytes);
      },
    });
    return from.readable.pipeThrough(line).pipeTo(arrival);
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
      pump(client, server, { direction: "up", signal }),
      pump(server, client, { direction: "down", signal }),
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

/** Closes a connection, even if the other side, a stream or the test has done so before. */
export function close(connection: Pick<Deno.Conn, "close">): void {
  try {
    connection.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}

/** Waits, or rejects when the signal aborts. */
function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return setTimeout(ms, undefined, { signal });
}
