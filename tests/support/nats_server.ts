import { askPort, type LocalServer, startLocalServer } from "./local_server.ts";

/** What differs from a plain server on a free port. */
export interface NatsServerOptions {
  port?: number;
  /** Text of the configuration file: permissions, TLS, limits. Not the port. */
  config?: string;
  /** Further arguments, for example `["-m", "8222"]`. */
  args?: string[];
}

/** A nats-server on 127.0.0.1. */
export interface NatsServer extends LocalServer {
  /** `127.0.0.1:<port>`, as `connectBus` takes it. */
  readonly server: string;
  /** Replaces the configuration and has the running server read it. */
  reload(config: string): Promise<void>;
  /** Asks the server to retire: it tells its clients, then cuts them off one by one. */
  retire(): void;
}

/**
 * Starts a nats-server, ready to serve in some tens of milliseconds.
 *
 * ```ts
 * await using nats = await startNatsServer();
 * ```
 */
export async function startNatsServer(
  options: NatsServerOptions = {},
): Promise<NatsServer> {
  let config = options.config ?? "";
  const server = await startLocalServer({
    command: "nats-server",
    port: options.port,
    args: async (port, directory) => {
      const file = configFile(directory);
      await Deno.writeTextFile(file, config);
      const address = ["-a", "127.0.0.1", "-p", String(port)];
      const name = ["-n", directory];
      return ["-c", file, ...address, ...name, ...options.args ?? []];
    },
    isReady: async ({ port, directory }) =>
      (await askPort(port, "")).includes(`"server_name":"${directory}"`),
  });
  return {
    ...server,
    server: `127.0.0.1:${server.port}`,
    reload: async (text) => {
      config = text;
      await Deno.writeTextFile(configFile(server.directory), config);
      server.signal("SIGHUP");
    },
    retire: () => server.signal("SIGUSR2"),
  };
}

const configFile = (directory: string): string => `${directory}/nats.conf`;
