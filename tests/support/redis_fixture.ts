import { once } from "node:events";
import { createConnection, createServer, type Socket } from "node:net";

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

const START_TIMEOUT_MS = 5_000;

/** Starts a server; `config` are lines of a redis.conf: `["maxmemory 10mb"]`. */
export async function startRedis(
  config: readonly string[] = [],
): Promise<RedisFixture> {
  const directory = await Deno.makeTempDir({ prefix: "gateway-redis-" });
  const port = freePort();
  await Deno.writeTextFile(
    `${directory}/redis.conf`,
    [
      "bind 127.0.0.1",
      `port ${port}`,
      `dir ${directory}`,
      'save ""',
      "appendonly no",
      ...config,
      "",
    ].join("\n"),
  );
  let process = spawn(directory);
  let isRunning = true;
  await untilAnswers(port);
  const end = async () => {
    if (!isRunning) return;
    isRunning = false;
    process.kill("SIGKILL");
    await process.status;
  };
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    freeze: () => process.kill("SIGSTOP"),
    thaw: () => process.kill("SIGCONT"),
    kill: end,
    async start() {
      process = spawn(directory);
      isRunning = true;
      await untilAnswers(port);
    },
    async [Symbol.asyncDispose]() {
      await end();
      await Deno.remove(directory, { recursive: true });
    },
  };
}

function spawn(directory: string): Deno.ChildProcess {
  return new Deno.Command("redis-server", {
    args: [`${directory}/redis.conf`],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
}

/** A port that nobody listens on now. */
export function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return listener.addr.port;
}

async function untilAnswers(port: number): Promise<void> {
  await until(async () => {
    const connection = await Deno.connect({ hostname: "127.0.0.1", port })
      .catch(() => null);
    if (connection === null) return false;
    using open = connection;
    await open.write(new TextEncoder().encode("PING\r\n"));
    const buffer = new Uint8Array(64);
    const count = await open.read(buffer).catch(() => null);
    const text = new TextDecoder().decode(buffer.subarray(0, count ?? 0));
    // A server with users refuses the PING, and has started nevertheless.
    return /^\+PONG|^-NOAUTH/.test(text);
  }, START_TIMEOUT_MS);
}

/** Resolves when `holds` does, asked every few milliseconds; rejects after `timeoutMs`. */
export async function until(
  holds: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  const endsAtMs = performance.now() + timeoutMs;
  while (!await holds()) {
    if (performance.now() > endsAtMs) {
      throw new Error(`Condition not met within ${timeoutMs} ms: ${holds}`);
    }
    await delay(5);
  }
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
