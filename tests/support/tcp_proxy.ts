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
export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** `127.0.0.1:<port>`. */
  readonly server: string;
  /** Replaces all toxics, for present and future connections. `{}` heals. */
  set(toxics: Toxics): void;
  /** Closes every connection that is open now. */
  cut(): void;
  connections(): number;
  /** Connections that were refused so far. */
  refusals(): number;
}

const PIECE_BYTES = 64 * 1024;
/** Pieces under way in one direction; enough for 16 MB/s at a delay of 200 ms. */
const LINE_PIECES = 50;

/**
 * Starts a proxy from a free port to `target`, a port of this machine. A function
 * is asked for every new connection, so that an address can move to another
 * server, or go around several; open connections stay where they are.
 */
export function startTcpProxy(target: number | (() => number)): TcpProxy {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const valve = createValve();
  const pairs = new Set<Pair>();
  const running = new Set<Promise<void>>();

  const serve = async (client: Deno.TcpConn): Promise<void> => {
    const port = typeof target === "number" ? target : target();
    const pair = await openPair(client, port);
    if (pair === undefined) return;
    pairs.add(pair);
    await Promise.all([
      pump(pair, "up", valve),
      pump(pair, "down", valve),
    ]);
    pairs.delete(pair);
  };
  let refusals = 0;
  const accepting = (async () => {
    for await (const client of listener) {
      if (valve.toxics().refuse === true) {
        refusals += 1;
        client.close();
        continue;
      }
      const work = serve(client);
      running.add(work);
      void work.finally(() => running.delete(work));
    }
  })();
  const cut = () => {
    for (const pair of pairs) pair.close();
    valve.wake();
  };
  return {
    port: listener.addr.port,
    server: `127.0.0.1:${listener.addr.port}`,
    set: (toxics) => valve.set(toxics),
    cut,
    connections: () => pairs.size,
    refusals: () => refusals,
    [Symbol.asyncDispose]: async () => {
      listener.close();
      cut();
      await accepting;
      await Promise.all(running);
    },
  };
}

/** Both ends of one proxied connection, closed together. */
interface Pair {
  readonly client: Deno.TcpConn;
  readonly server: Deno.TcpConn;
  readonly closed: AbortSignal;
  close(): void;
}

async function openPair(
  client: Deno.TcpConn,
  port: number,
): Promise<Pair | undefined> {
  let server: Deno.TcpConn;
  try {
    server = await Deno.connect({ hostname: "127.0.0.1", port });
  } catch (error) {
    client.close();
    if (error instanceof Deno.errors.ConnectionRefused) return undefined;
    throw error;
  }
  client.setNoDelay(true);
  server.setNoDelay(true);
  const controller = new AbortController();
  return {
    client,
    server,
    closed: controller.signal,
    close: () => {
      if (controller.signal.aborted) return;
      controller.abort();
      client.close();
      server.close();
    },
  };
}

/** Copies one direction until either end is gone; then both are closed. */
async function pump(
  pair: Pair,
  direction: "up" | "down",
  valve: Valve,
): Promise<void> {
  const [from, to] = direction === "up"
    ? [pair.client, pair.server]
    : [pair.server, pair.client];
  const line = createLine(pair.closed);
  const take = async () => {
    const buffer = new Uint8Array(PIECE_BYTES);
    while (true) {
      await valve.open(direction, pair.closed);
      const length = await from.read(buffer);
      if (length === null) return line.end();
      await valve.open(direction, pair.closed);
      const dueAt = performance.now() + (valve.toxics().delayMs ?? 0);
      await line.put({ bytes: buffer.slice(0, length), dueAt });
    }
  };
  const give = async () => {
    for (;;) {
      const piece = await line.next();
      if (piece === undefined) return;
      await delay(piece.dueAt - performance.now(), pair.closed);
      await writeAll(to, piece.bytes);
    }
  };
  await Promise.all([untilGone(take, pair), untilGone(give, pair)]);
  pair.close();
}

/** Runs one half of a pump. When its connection is gone, the pair is closed. */
async function untilGone(
  half: () => Promise<void>,
  pair: Pair,
): Promise<void> {
  try {
    await half();
  } catch (error) {
    pair.close();
    if (!isGone(error)) throw error;
  }
}

/** Bytes under way, and when they arrive. */
interface Piece {
  bytes: Uint8Array;
  dueAt: number;
}

/** The wire between two ends: pieces keep their order, and only so many fit. */
interface Line {
  put(piece: Piece): Promise<void>;
  /** No more pieces will come. */
  end(): void;
  /** The oldest piece, or `undefined` after the last one. */
  next(): Promise<Piece | undefined>;
}

function createLine(closed: AbortSignal): Line {
  const pieces: Piece[] = [];
  let isEnded = false;
  let changed = Promise.withResolvers<void>();
  const wake = () => {
    const { resolve } = changed;
    changed = Promise.withResolvers<void>();
    resolve();
  };
  closed.addEventListener("abort", wake);
  return {
    put: async (piece) => {
      pieces.push(piece);
      wake();
      while (pieces.length > LINE_PIECES && !closed.aborted) {
        await changed.promise;
      }
    },
    end: () => {
      isEnded = true;
      wake();
    },
    next: async () => {
      while (pieces.length === 0 && !isEnded && !closed.aborted) {
        await changed.promise;
      }
      const piece = pieces.shift();
      wake();
      return closed.aborted ? undefined : piece;
    },
  };
}

async function writeAll(to: Deno.TcpConn, bytes: Uint8Array): Promise<void> {
  for (let sent = 0; sent < bytes.length;) {
    sent += await to.write(bytes.subarray(sent));
  }
}

/** What reading and writing throw when an end was closed, by a peer or by us. */
function isGone(error: unknown): boolean {
  return error instanceof Deno.errors.ConnectionReset ||
    error instanceof Deno.errors.ConnectionAborted ||
    error instanceof Deno.errors.BrokenPipe ||
    error instanceof Deno.errors.NotConnected ||
    error instanceof Deno.errors.BadResource ||
    error instanceof Deno.errors.Interrupted;
}

/** The toxics in force, and a way to wait until they let bytes pass. */
interface Valve {
  toxics(): Toxics;
  set(toxics: Toxics): void;
  /** Has every waiting pump look again. */
  wake(): void;
  /** Returns when bytes may pass in this direction, or the pair is closed. */
  open(direction: "up" | "down", closed: AbortSignal): Promise<void>;
}

function createValve(): Valve {
  let toxics: Toxics = {};
  let changed = Promise.withResolvers<void>();
  const wake = () => {
    const { resolve } = changed;
    changed = Promise.withResolvers<void>();
    resolve();
  };
  return {
    toxics: () => toxics,
    set: (wanted) => {
      toxics = wanted;
      wake();
    },
    wake,
    open: async (direction, closed) => {
      while (!closed.aborted) {
        const { blackHole } = toxics;
        if (blackHole !== direction && blackHole !== "both") return;
        await changed.promise;
      }
    },
  };
}

function delay(ms: number, closed: AbortSignal): Promise<void> {
  if (ms <= 0 || closed.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      closed.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    closed.addEventListener("abort", done);
  });
}
