/** Real redis-servers on free ports. */
import { askPort } from "./ask_port.ts";
import { type LocalServer, startLocalServer } from "./local_server.ts";

/** A running redis-server. */
export interface RedisServer extends LocalServer {
  /** `redis://127.0.0.1:<port>` */
  readonly url: string;
}

/**
 * Starts a redis-server, whose data survives `restart()` only with `args:
 * ["--appendonly", "yes"]`.
 */
export async function startRedisServer(options: {
  /** Text of the configuration file: ACL users, persistence, memory. Not the port. */
  config?: string;
  args?: string[];
  /** Added to its environment. */
  env?: Record<string, string>;
} = {}): Promise<RedisServer> {
  const server = await startLocalServer({
    command: "redis-server",
    env: options.env,
    args: async (port, directory) => {
      const file = `${directory}/redis.conf`;
      const defaults = `save ""\nappendonly no\n`;
      await Deno.writeTextFile(file, defaults + (options.config ?? ""));
      const place = ["--bind", "127.0.0.1", "--dir", directory];
      return [file, "--port", String(port), ...place, ...options.args ?? []];
    },
    isReady: async ({ port, pid }) => {
      const answer = await askPort(port, "INFO server\r\nPING\r\n");
      // One that asks for a password serves; one that still loads its data does not.
      return answer.startsWith("-NOAUTH") ||
        answer.includes(`process_id:${pid}\r\n`) &&
          answer.endsWith("+PONG\r\n");
    },
  });
  return { ...server, url: `redis://127.0.0.1:${server.port}` };
}
