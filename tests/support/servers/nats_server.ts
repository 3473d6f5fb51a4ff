/** Real nats-servers on free ports. */
import { askPort } from "./ask_port.ts";
import { type LocalServer, startLocalServer } from "./local_server.ts";
import { until } from "../wait_for.ts";

/** A running nats-server. */
export interface NatsServer extends LocalServer {
  /** `127.0.0.1:<port>`, as `connectBus` takes it. */
  readonly server: string;
  /** Replaces the configuration and returns when the running server has taken it. */
  reload(text: string): Promise<void>;
  /**
   * Asks the server to retire: it tells its clients, then cuts them off one by one.
   */
  retire(): void;
}

const RELOAD_OUTCOME = /(Reloaded|Failed to reload) server configuration.*/g;

/**
 * Starts a nats-server; `config` is the text of its configuration file, without the
 * port. `jetStream`: it has its durable log.
 */
export async function startNatsServer(
  options: { port?: number; config?: string; jetStream?: boolean } = {},
): Promise<NatsServer> {
  let { config = "" } = options;
  const { jetStream = false } = options;
  const writeConfig = async (directory: string) => {
    const file = `${directory}/nats.conf`;
    // The name tells this server from another one on its port.
    const name = `server_name: "${directory}"\n`;
    const store = jetStream ? `jetstream { store_dir: "${directory}" }\n` : "";
    await Deno.writeTextFile(file, name + store + config);
    return file;
  };
  const server = await startLocalServer({
    command: "nats-server",
    port: options.port,
    args: async (port, directory) => {
      const file = await writeConfig(directory);
      return ["-c", file, "-a", "127.0.0.1", "-p", String(port)];
    },
    isReady: async ({ port, directory }) =>
      (await askPort(port, "")).includes(`"server_name":"${directory}"`),
  });
  return {
    ...server,
    server: `127.0.0.1:${server.port}`,
    reload: async (text) => {
      config = text;
      await writeConfig(server.directory);
      const reloads = () => server.output().match(RELOAD_OUTCOME) ?? [];
      const before = reloads().length;
      server.signal("SIGHUP");
      const outcome = await until(() => reloads()[before]);
      if (outcome.startsWith("Failed")) throw new Error(outcome);
    },
    retire: () => server.signal("SIGUSR2"),
  };
}
