import { waitFor } from "./wait_for.ts";
import { askPort, type LocalServer, startLocalServer } from "./local_server.ts";

export { freePort } from "./local_server.ts";

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

/** What differs from a server in memory on a free port. */
export interface RedisServerOptions {
  port?: number;
  /** Text of the configuration file: ACL users, persistence, memory. Not the port. */
  config?: string;
  /** Further arguments, for example `["--appendonly", "yes"]`. */
  args?: string[];
  /** Added to its environment. */
  env?: Record<string, string>;
}

/** A redis-server on 127.0.0.1. */
export interface RedisServer extends LocalServer {
  /** `redis://127.0.0.1:<port>`. */
  readonly url: string;
}

/**
 * Starts a redis-server. It writes nothing to disk unless told to; with
 * `args: ["--appendonly", "yes"]` its data survives `restart()`.
 */
export async function startRedisServer(
  options: RedisServerOptions = {},
): Promise<RedisServer> {
  const server = await startLocalServer({
    command: "redis-server",
    port: options.port,
    ...(options.env === undefined ? {} : { env: options.env }),
    args: async (port, directory) => {
      const file = `${directory}/redis.conf`;
      const defaults = `save ""\nappendonly no\n`;
      await Deno.writeTextFile(file, defaults + (options.config ?? ""));
      const place = ["--bind", "127.0.0.1", "--dir", directory];
      return [file, "--port", String(port), ...place, ...options.args ?? []];
    },
    isReady: async ({ port, pid }) =>
      isServing(await askPort(port, "INFO server\r\nPING\r\n"), pid),
  });
  return { ...server, url: `redis://127.0.0.1:${server.port}` };
}

/** A server that asks for a password serves; one that still loads its data does not. */
function isServing(answer: string, pid: number): boolean {
  if (answer.startsWith("-NOAUTH")) return true;
  return answer.includes(`process_id:${pid}\r\n`) &&
    answer.endsWith("+PONG\r\n");
}
