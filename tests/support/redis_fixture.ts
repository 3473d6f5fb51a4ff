import { once } from "node:events";
import { createConnection, createServer, type Socket } from "node:net";
import { startRedisServer } from "./redis_server.ts";
import { waitFor } from "./wait_for.ts";

export { freePort } from "./free_port.ts";

/** A private redis-server on a free port of 127.0.0.1, its data in a temporary directory. */
export interface RedisFixture extends AsyncDisposable {
  readonly port: number;
  readonly url: string;
  /** Stops the process without ending it, as a frozen host does. */
  freeze(): void;
  thaw(): void;
  /** Ends it at once, as a crash does. */
  kill(): Promise<void>;
  /** Starts it again on the same port and directory. */
  start(): Promise<void>;
}

/** Starts a server; `config` are lines of a redis.conf: `["maxmemory 10mb"]`. */
export async function startRedis(
  config: readonly string[] = [],
): Promise<RedisFixture> {
  const server = await startRedisServer({ config: `${config.join("\n")}\n` });
  return {
    port: server.port,
    url: server.url,
    freeze: () => server.signal("SIGSTOP"),
    thaw: () => server.cont(),
    kill: () => server.kill(),
    start: () => server.restart(),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** Resolves when `holds` does; rejects after `timeoutMs`. */
export async function until(
  holds: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  await waitFor(holds, { what: () => `${holds}`, timeoutMs });
}

export function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A TCP relay whose answers can be slowed down, held or cut. */
export interface SlowProxy extends AsyncDisposable {
  readonly url: string;
  /** Time each piece of an answer is held back. */
  delayMs: number;
  /** Breaks every connection. */
  cut(): void;
}

/** Relays a free port to `port`. */
export async function startSlowProxy(port: number): Promise<SlowProxy> {
  const sockets = new Set<Socket>();
  const timers = new Set<ReturnType<typeof setTimeout>>();
  const proxy = { delayMs: 0 };
  const track = (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
  };
  const server = createServer((client) => {
    const upstream = createConnection(port, "127.0.0.1");
    track(client);
    track(upstream);
    client.pipe(upstream);
    upstream.on("data", (piece) => {
      const timer = setTimeout(() => {
        timers.delete(timer);
        if (client.writable) client.write(piece);
      }, proxy.delayMs);
      timers.add(timer);
    });
    client.on("close", () => upstream.destroy());
    upstream.on("close", () => client.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") {
    throw new Error("Proxy has no port");
  }
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `redis://127.0.0.1:${address.port}`,
    get delayMs() {
      return proxy.delayMs;
    },
    set delayMs(ms) {
      proxy.delayMs = ms;
    },
    cut,
    async [Symbol.asyncDispose]() {
      for (const timer of timers) clearTimeout(timer);
      cut();
      const closed = once(server, "close");
      server.close();
      await closed;
    },
  };
}
