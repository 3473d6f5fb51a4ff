/**
 * An HTTP server that knows at once when a client leaves.
 *
 * Deno's own does not look at a connection between the last byte of a request's
 * body and the first of its answer (2.8.3 to 2.9.6; spared is only a small body in
 * one piece with the head), so whoever leaves then would cost a whole answer. Here
 * each connection is taken in front of that server and passed on to it byte for
 * byte: whoever passes it on sees its end.
 */
import { type GracefulServer, serve, settlesWithin } from "./serve.ts";

/** The client at the other end of a connection, for all requests that come on it. */
export interface Visitor {
  readonly address: string;
  readonly hasLeft: boolean;
  /**
   * Calls back once, later, when the client leaves or if it has left. Returns what
   * takes that back: a connection outlives its requests.
   */
  onLeft(callback: () => void): () => void;
}

/** Answers a request of somebody who may leave meanwhile. */
export type VisitorHandler = (
  request: Request,
  visitor: Visitor,
) => Response | Promise<Response>;

export interface VisitorServerOptions {
  hostname: string;
  /** 0 takes any free port. */
  port: number;
  handler: VisitorHandler;
  /** Answers for a handler that threw, which is a fault of ours. */
  onError: (error: unknown) => Response | Promise<Response>;
}

const LOOPBACK = "127.0.0.1";
/** The pieces of a connection that moves little, which are most, and of one that moves much. */
const PIECE_BYTES = 4 * 1024;
const LARGE_PIECE_BYTES = 64 * 1024;
/** Out of file handles: some may be free after this. */
const ACCEPT_AGAIN_MS = 50;
/** A client that was told that its connection ends may send for so long what it had begun. */
const LINGER_MS = 2_000;
/** The last bytes of answers have this long to leave when the server stops. */
const FLUSH_MS = 1_000;
/** Somebody came to the inner port by himself, or has left before he was looked at. */
const MISDIRECTED_REQUEST = 421;

/** Starts to listen. Throws `Deno.errors.AddrInUse` when the port is taken. */
export function serveVisitors(options: VisitorServerOptions): GracefulServer {
  const { hostname, port, handler, onError } = options;
  const listener = Deno.listen({ hostname, port });
  const visitors = new Map<number, Visitor>();
  const inner = serve({
    hostname: LOOPBACK,
    port: 0,
    handler: forVisitors(visitors, handler),
    onError,
  });
  const passages = new Set<Passage>();
  const accepting = acceptAll(listener, async (client) => {
    const passage = new Passage(client);
    passages.add(passage);
    await passage.run(inner.port, visitors);
    passages.delete(passage);
  });
  return {
    hostname: listener.addr.hostname,
    port: listener.addr.port,
    stopping: inner.stopping,
    stop: async (times) => {
      listener.close();
      const passed = accepting.then((all) => Promise.all(all));
      for (const passage of passages) passage.hurry();
      await inner.stop(times);
      if (await settlesWithin(passed, FLUSH_MS)) return;
      for (const passage of passages) passage.cut();
      await passed;
    },
  };
}

/** Answers those whose connections are passed on, by the port these come from, and nobody else. */
export function forVisitors(
  visitors: ReadonlyMap<number, Visitor>,
  handler: VisitorHandler,
): (
  request: Request,
  info: { remoteAddr: Deno.NetAddr },
) => Response | Promise<Response> {
  return (request, { remoteAddr }) => {
    const visitor = visitors.get(remoteAddr.port);
    return visitor === undefined
      ? new Response(null, { status: MISDIRECTED_REQUEST })
      : handler(request, visitor);
  };
}

/** Takes connections until the listener is closed; resolves to those that still run. */
async function acceptAll(
  listener: Deno.TcpListener,
  pass: (client: Deno.TcpConn) => Promise<void>,
): Promise<Set<Promise<void>>> {
  const running = new Set<Promise<void>>();
  for (;;) {
    try {
      const client = await listener.accept();
      const passed = pass(client).finally(() => running.delete(passed));
      running.add(passed);
    } catch (error) {
      if (error instanceof Deno.errors.BadResource) return running;
      await new Promise((resolve) => setTimeout(resolve, ACCEPT_AGAIN_MS));
    }
  }
}

/** A connection on its way through. */
class Passage implements Visitor {
  readonly address: string;
  readonly #client: Deno.TcpConn;
  #callbacks: Set<() => void> | null = new Set();
  #lingerMs = LINGER_MS;

  constructor(client: Deno.TcpConn) {
    this.#client = client;
    this.address = client.remoteAddr.hostname;
  }

  get hasLeft(): boolean {
    return this.#callbacks === null;
  }

  onLeft(callback: () => void): () => void {
    const callbacks = this.#callbacks;
    if (callbacks === null) {
      queueMicrotask(callback);
      return () => {};
    }
    callbacks.add(callback);
    return () => void callbacks.delete(callback);
  }

  /** Passes everything on until one side ends the connection. Rejects never. */
  async run(port: number, visitors: Map<number, Visitor>): Promise<void> {
    const server = await openServer(port);
    if (server === null) return close(this.#client);
    const key = server.localAddr.port;
    visitors.set(key, this);
    const up = copy(this.#client, server);
    const down = copy(server, this.#client);
    const isDone = await Promise.race([
      up.then(() => false),
      down.then(() => true),
    ]);
    visitors.delete(key);
    this.#leave();
    close(server);
    if (isDone) await this.#linger(up);
    close(this.#client);
    await Promise.all([up, down]);
  }

  /** Whoever is told that the connection ends is not waited for. */
  hurry(): void {
    this.#lingerMs = 0;
  }

  /** Ends it now. */
  cut(): void {
    close(this.#client);
  }

  #leave(): void {
    const callbacks = this.#callbacks ?? [];
    this.#callbacks = null;
    for (const callback of callbacks) callback();
  }

  /**
   * Ends the answers, and reads what the client still sends: a connection that is
   * closed with something unread takes the end of the answer with it (RFC 9112 9.6).
   */
  async #linger(up: Promise<void>): Promise<void> {
    const timer = setTimeout(() => close(this.#client), this.#lingerMs);
    const unread = new Uint8Array(PIECE_BYTES);
    try {
      await this.#client.closeWrite();
      await up;
      while (await this.#client.read(unread) !== null);
    } catch {
      // It is gone, which is what this waits for.
    } finally {
      clearTimeout(timer);
    }
  }
}

/** A connection to the server; null when there are no file handles left. */
async function openServer(port: number): Promise<Deno.TcpConn | null> {
  try {
    return await Deno.connect({ hostname: LOOPBACK, port });
  } catch {
    return null;
  }
}

/** Copies until either side ends. Waits for the slower one, so that nothing piles up here. */
async function copy(from: Deno.TcpConn, to: Deno.TcpConn): Promise<void> {
  let piece = new Uint8Array(PIECE_BYTES);
  try {
    to.setNoDelay(true);
    for (;;) {
      const length = await from.read(piece);
      if (length === null) return;
      for (let sent = 0; sent < length;) {
        sent += await to.write(piece.subarray(sent, length));
      }
      if (length === PIECE_BYTES) piece = new Uint8Array(LARGE_PIECE_BYTES);
    }
  } catch {
    // A connection that broke is a connection that ended.
  }
}

/** Closes a connection that may be closed already. */
function close(connection: Deno.Conn): void {
  try {
    connection.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BadResource)) throw error;
  }
}
