import { askPort, startLocalServer } from "./local_server.ts";
import { waitFor } from "./wait_for.ts";

/** What differs from a plain server on a free port. */
export interface NatsServerOptions {
  port?: number;
  /** Text of the configuration file: permissions, TLS, limits. Not the port. */
  config?: string;
}

/** A nats-server on 127.0.0.1. */
export type NatsServer = Awaited<ReturnType<typeof startNatsServer>>;

/**
 * Starts a nats-server, ready to serve in some tens of milliseconds.
 *
 * ```ts
 * await using nats = await startNatsServer();
 * ```
 */
export async function startNatsServer(options: NatsServerOptions = {}) {
  let config = options.config ?? "";
  const server = await startLocalServer({
    command: "nats-server",
    port: options.port,
    args: async (port, directory) => {
      const file = configFile(directory);
      await Deno.writeTextFile(file, withName(config, directory));
      return ["-c", file, "-a", "127.0.0.1", "-p", String(port)];
    },
    isReady: async ({ port, directory }) =>
      (await askPort(port, "")).includes(`"server_name":"${directory}"`),
  });
  return {
    ...server,
    /** `127.0.0.1:<port>`, as `connectBus` takes it. */
    server: `127.0.0.1:${server.port}`,
    /** Replaces the configuration and returns when the running server has taken it. */
    reload: async (text: string) => {
      config = text;
      const file = configFile(server.directory);
      await Deno.writeTextFile(file, withName(config, server.directory));
      const reloads = () => server.output().match(RELOAD_OUTCOME) ?? [];
      const before = reloads().length;
      server.signal("SIGHUP");
      const said = await waitFor(() => reloads()[before], {
        what: "the server to read its configuration",
      });
      if (said.startsWith("Failed")) throw new Error(said);
    },
    /** Asks the server to retire: it tells its clients, then cuts them off one by one. */
    retire: () => server.signal("SIGUSR2"),
  };
}

const RELOAD_OUTCOME = /(Reloaded|Failed to reload) server configuration.*/g;

/** The name tells this server from another one on its port. */
const withName = (config: string, directory: string): string =>
  `server_name: "${directory}"\n${config}`;

const configFile = (directory: string): string => `${directory}/nats.conf`;
