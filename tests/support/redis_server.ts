import { askPort, type LocalServer, startLocalServer } from "./local_server.ts";

/** What differs from a server in memory on a free port. */
export interface RedisServerOptions {
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
export async function startRedisServer(options: RedisServerOptions = {}) {
  const server = await startLocalServer({
    command: "redis-server",
    port: undefined,
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
