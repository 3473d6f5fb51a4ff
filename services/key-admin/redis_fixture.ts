import { silentLog } from "@gateway/shared/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { startRedisServer } from "../../tests/support/redis_server.ts";
import { waitFor } from "../../tests/support/wait_for.ts";
import { connectRedis } from "./store/redis.ts";

export { freePort } from "../../tests/support/free_port.ts";

/** A private redis-server with the service's own connections to it. */
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

/** Starts a server that keeps every change, unless told otherwise; it ends with the `await using` block. */
export async function startRedis(
  { settings = DURABLE, env = {} }: TestRedisOptions = {},
): Promise<TestRedis> {
  const server = await startRedisServer({ args: settings, env });
  const { url, port, directory } = server;
  const connections: RedisLink[] = [];
  const closeAll = async () => {
    await Promise.all(connections.splice(0).map((link) => link.close()));
  };
  return {
    ...{ url, port, folder: directory },
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
      // First the server: a link that closes waits for the calls it has sent.
      await server.kill();
      await closeAll();
    },
    freeze: () => server.signal("SIGSTOP"),
    thaw: () => server.cont(),
    restart: () => server.restart(),
    [Symbol.asyncDispose]: async () => {
      await closeAll();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Resolves when `condition` holds; fails loudly when it does not in time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  timeoutMs: number,
): Promise<void> {
  await waitFor(condition, { what: () => `${condition}`, timeoutMs });
}
