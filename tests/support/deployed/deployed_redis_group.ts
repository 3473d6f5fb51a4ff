// A Redis master with two replicas and three sentinels, started by the scripts of
// `compose.cluster.yaml` with its users. Only addresses, paths and the time after
// which a silent master counts as gone are of this machine.
import { fileURLToPath } from "node:url";
import { parseEnv } from "@gateway/shared/process/env";
import {
  REDIS_VARIABLES,
  redisAccess,
} from "@gateway/shared/process/service_variables";
import {
  deployedRedisConfig,
  type DeployedSecrets,
  redisTls,
  tlsVariables,
} from "./deployed_stores.ts";
import {
  askPort,
  type LocalServer,
  startLocalServer,
} from "../local_server.ts";
import { clientTls, type TestAuthority } from "./test_authority.ts";
import { owning } from "../process.ts";
import { until, waitFor } from "../wait_for.ts";

const DEPLOY = fileURLToPath(new URL("../../../deploy/redis", import.meta.url));
const SENTINELS = 3;
const REPLICAS = 2;
const TIMES = ["DOWN_AFTER_MS=700", "FAILOVER_TIMEOUT_MS=3000"];
/**
 * Sentinels find each other, and a master that is back, by what they publish every
 * two seconds and ask the servers every ten. The others of their periods stay: a
 * replica is promoted only if its last answer is not older than five pings.
 */
const PERIODS = "info-period 100 publish-period 100";
const SETTLED_MS = 30_000;

/** Starts a master, replicas and sentinels as `docs/cluster.md` describes them. */
export async function startRedisGroup(
  { secrets, tls, wire = (port) => port }: {
    secrets: DeployedSecrets;
    /** With it, all speak mutual TLS and nothing else. */
    tls?: TestAuthority;
    /**
     * Puts something between the first server and all the others: returns the port by
     * which these know it.
     */
    wire?: (port: number) => number;
  },
) {
  await using starting = new AsyncDisposableStack();
  const client = tls && await clientTls(tls);
  const ask = ({ port }: { port: number }, lines: string) =>
    askPort(port, lines, client);
  const start = async (script: string, env: string[]) =>
    starting.use(
      await startLocalServer({
        command: "env",
        args: (port, directory) => [
          `DATA_DIR=${directory}`,
          `SECRETS_DIR=${secrets.directory}`,
          ...env,
          `${DEPLOY}/${script}`,
          ...portArguments(port, tls),
          "--bind",
          "127.0.0.1",
          "--dir",
          directory,
        ],
        isReady: async (server) =>
          (await ask(server, "AUTH health any\r\nPING\r\n"))
            .endsWith("+PONG\r\n"),
      }),
    );
  const config = secrets.path("redis.conf");
  // A master waits five seconds for more replicas before it sends its data.
  const delay = "\nrepl-diskless-sync-delay 0\n";
  await Deno.writeTextFile(config, await deployedRedisConfig(secrets) + delay);
  const first = await start("node.sh", [`REDIS_CONFIG=${config}`]);
  /** By which the others know the first server. */
  const firstPort = wire(first.port);
  const address = `127.0.0.1 ${firstPort}`;
  const servers = [first];
  while (servers.length <= REPLICAS) {
    const env = [`REDIS_CONFIG=${config}`, `REPLICA_OF=${address}`];
    servers.push(await start("node.sh", env));
  }
  const password = await secrets.read("redis_sentinel_password");
  const sentinels: LocalServer[] = [];
  while (sentinels.length < SENTINELS) {
    const env = [`MASTER=${address}`, ...TIMES];
    const sentinel = await start("sentinel.sh", env);
    sentinels.push(sentinel);
    const said = await ask(
      sentinel,
      `AUTH peer ${password}\r\nSENTINEL DEBUG ${PERIODS}\r\nPING\r\n`,
    );
    if (said !== "+OK\r\n+OK\r\n+PONG\r\n") throw new Error(said);
  }
  const knownAs = (server: LocalServer) =>
    String(server === first ? firstPort : server.port);
  /** Variables of a service that is this user. */
  const env = (user: "edge" | "admin"): Record<string, string> => ({
    ...tls &&
      { REDIS_URL: "rediss://sentinels", ...tlsVariables("REDIS", tls) },
    REDIS_SENTINELS: sentinels.map(({ port }) => `127.0.0.1:${port}`).join(),
    REDIS_SENTINEL_USERNAME: "lookup",
    REDIS_SENTINEL_PASSWORD_FILE: secrets.path("redis_lookup_password"),
    REDIS_USERNAME: user === "edge" ? "edge-auth" : "key-admin",
    REDIS_PASSWORD_FILE: secrets.path(`redis_${user}_password`),
  });
  /** What every living sentinel says of the master. */
  const views = async () => {
    const asked = sentinels.filter((sentinel) => sentinel.isRunning());
    const question = `AUTH peer ${password}\r\nINFO sentinel\r\nPING\r\n`;
    const said = await Promise.all(asked.map((each) => ask(each, question)));
    return said.map((text) =>
      /status=(\w+),address=[\d.]+:(\d+),slaves=(\d+)/.exec(text) ?? []
    );
  };
  const named = async () => {
    const ports = new Set((await views()).map(([, , port]) => port));
    const [port] = ports;
    return ports.size === 1
      ? servers.find((server) => knownAs(server) === port)
      : undefined;
  };
  const isSettled = async (replicas: number) => {
    const all = await views();
    const master = await named();
    if (master === undefined || !master.isRunning()) return false;
    const agreed = `ok ${knownAs(master)} ${REPLICAS}`;
    const isAgreed = all.every(([, ...view]) => view.join(" ") === agreed);
    const role = await ask(master, "AUTH health any\r\nROLE\r\nPING\r\n");
    // `*3`, then the name, the offset, and one entry for each replica.
    const form = `\\$6\\r\\nmaster\\r\\n:\\d+\\r\\n\\*${replicas}\\r\\n`;
    return isAgreed && new RegExp(form).test(role);
  };
  /**
   * Resolves when the sentinels agree on a master that lives, has its replicas, and
   * takes writes.
   */
  const settled = async (replicas = REPLICAS) => {
    await waitFor(() => isSettled(replicas), {
      what: "the group to settle",
      timeoutMs: SETTLED_MS,
      intervalMs: 50,
    });
  };
  await settled();
  return owning(starting, {
    /** In the order they were started: the first began as master. */
    servers,
    sentinels,
    env,
    settled,
    /** The same for a link. */
    address: (user: "edge" | "admin") =>
      redisAccess(parseEnv(REDIS_VARIABLES, env(user), Deno.readTextFileSync)),
    /** The server that all living sentinels name, which may be dead. */
    master: () => until(named),
  });
}

/** The arguments that `docs/cluster.md` names for TLS between the servers too. */
function portArguments(port: number, tls: TestAuthority | undefined): string[] {
  if (tls === undefined) return ["--port", String(port)];
  const { certFile, keyFile } = tls.client;
  return [
    "--port",
    "0",
    "--tls-replication",
    "yes",
    ...redisTls(tls, port),
    "--tls-client-cert-file",
    certFile,
    "--tls-client-key-file",
    keyFile,
  ];
}
