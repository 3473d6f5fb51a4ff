import { silentLog } from "@gateway/shared/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { connectRedis } from "./store/redis.ts";

/** A private redis-server on a free port, with its data in a folder of its own. */
export interface TestRedis extends AsyncDisposable {
  url: string;
  port: number;
  folder: string;
  connect(): Promise<RedisLink>;
  /** SIGKILL, and waits until the process is gone. Connections made before are closed: they would only retry. */
  kill(): Promise<void>;
  /** Stops the process without ending it, as a frozen host does. */
  freeze(): void;
  thaw(): void;
  /** Starts it again on the same port and data. */
  restart(): Promise<void>;
}

export interface TestRedisOptions {
  /** Extra settings, such as `["--appendonly", "yes"]`. */
  settings?: string[];
  /** Added to the server's environment. */
  env?: Record<string, string>;
}

const START_MS = 10_000;
const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

/** Starts a server; it ends with the `await using` block. */
export async function startRedis(
  { settings = DURABLE, env = {} }: TestRedisOptions = {},
): Promise<TestRedis> {
  const folder = await Deno.makeTempDir({ prefix: "key-admin-redis-" });
  const port = freePort();
  const url = `redis://127.0.0.1:${port}`;
  const connections: RedisLink[] = [];
  const start = async () => {
    const child = new Deno.Command("redis-server", {
      args: [
        ...["--port", String(port), "--bind", "127.0.0.1", "--dir", folder],
        ...["--save", "", "--loglevel", "warning", ...settings],
      ],
      env,
      stdout: "null",
      stderr: "null",
    }).spawn();
    await until(() => answersPing(port), START_MS);
    return child;
  };
  let process = await start();
  const stop = async (signal: Deno.Signal) => {
    try {
      process.kill(signal);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // It has ended already.
    }
    await process.status;
  };
  const closeAll = async () => {
    await Promise.all(connections.splice(0).map((link) => link.close()));
  };
  return {
    url,
    port,
    folder,
    connect: async () => {
      const connection = await connectRedis({
        address: { url },
        log: silentLog,
        waitMs: START_MS,
      });
      connections.push(connection);
      return connection;
    },
    kill: async () => {
      await closeAll();
      await stop("SIGKILL");
    },
    freeze: () => process.kill("SIGSTOP"),
    thaw: () => process.kill("SIGCONT"),
    restart: async () => {
      process = await start();
    },
    [Symbol.asyncDispose]: async () => {
      await closeAll();
      await stop("SIGKILL");
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Resolves when `condition` holds; fails loudly when it does not in time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > end) {
      throw new Error(`Condition not met after ${timeoutMs} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A port nobody listens on at this moment. */
export function freePort(): number {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr;
  listener.close();
  return port;
}

async function answersPing(port: number): Promise<boolean> {
  try {
    using socket = await Deno.connect({ hostname: "127.0.0.1", port });
    await socket.write(new TextEncoder().encode("PING\r\n"));
    const reply = new Uint8Array(64);
    const length = await socket.read(reply) ?? 0;
    return new TextDecoder().decode(reply.subarray(0, length))
      .startsWith("+PONG");
  } catch {
    return false; // Not listening yet.
  }
}
