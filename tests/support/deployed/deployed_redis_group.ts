/**
 * A Redis master with two replicas and three sentinels, started by the scripts of
 * `compose.cluster.yaml` with its users. Only addresses, paths and the time after
 * which a silent master counts as gone are of this machine.
 */
import { fileURLToPath } from "node:url";
import { parseEnv } from "@gateway/shared/process/env";
import {
  REDIS_VARIABLES,
  redisAccess,
} from "@gateway/shared/process/service_variables";
import type { DeployedSecrets } from "./deployed_stores.ts";
import {
  askPort,
  type ClientTls,
  type LocalServer,
  startLocalServer,
} from "../local_server.ts";
import { clientTls, type TestAuthority } from "./test_authority.ts";
import { waitFor } from "../wait_for.ts";

const DEPLOY = fileURLToPath(new URL("../../../deploy/redis", import.meta.url));
const SENTINELS = 3;
const REPLICAS = 2;
const DOWN_AFTER_MS = 700;
const FAILOVER_TIMEOUT_MS = 3_000;
/**
 * Sentinels find each other, and a master that is back, by what they publish every
 * two seconds and ask the servers every ten. The others of their periods stay: a
 * replica is promoted only if its last answer is not older than five pings.
 */
const PERIODS = "info-period 100 publish-period 100";
const SETTLED_MS = 30_000;

export type RedisGroup = Awaited<ReturnType<typeof createGroup>>;

/** What a group is started with. */
export interface GroupOptions {
  secrets: DeployedSecrets;
  /** Absent: without TLS. With it there is no port for anything else. */
  tls?: GroupTls;
  /** Puts something between the first server and all the others: returns the port by which these know it. */
  wire?: (port: number) => number;
}

/** Certificates of a group, and whether its clients must have one of their own. */
export interface GroupTls {
  authority: TestAuthority;
  isMutual: boolean;
}

/** Starts all six and waits until they know each other. */
export async function startRedisGroup(options: GroupOptions) {
  const { secrets, wire = (port) => port } = options;
  const stack = new AsyncDisposableStack();
  const servers: LocalServer[] = [];
  const sentinels: LocalServer[] = [];
  let firstPort = 0;
  try {
    const config = await writeConfig(secrets);
    for (let index = 0; index <= REPLICAS; index++) {
      const server = await startScript("node.sh", options, [
        `REDIS_CONFIG=${config}`,
        ...(index === 0 ? [] : [`REPLICA_OF=127.0.0.1 ${firstPort}`]),
      ]);
      servers.push(stack.use(server));
      if (index === 0) firstPort = wire(server.port);
    }
    for (let index = 0; index < SENTINELS; index++) {
      const sentinel = await startScript("sentinel.sh", options, [
        `MASTER=127.0.0.1 ${firstPort}`,
        `DOWN_AFTER_MS=${DOWN_AFTER_MS}`,
        `FAILOVER_TIMEOUT_MS=${FAILOVER_TIMEOUT_MS}`,
      ]);
      sentinels.push(stack.use(sentinel));
      const password = await secrets.read("redis_sentinel_password");
      const said = await askPort(
        sentinel.port,
        `AUTH peer ${password}\r\nSENTINEL DEBUG ${PERIODS}\r\nPING\r\n`,
        await clientOf(options.tls),
      );
      if (said !== "+OK\r\n+OK\r\n+PONG\r\n") throw new Error(said);
    }
    const group = await createGroup({
      ...{ servers, sentinels, stack, firstPort },
      ...options,
    });
    await group.settled();
    return group;
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

/** `redis.conf` with the paths of this machine. */
async function writeConfig(secrets: DeployedSecrets): Promise<string> {
  const file = `${secrets.directory}/redis.conf`;
  const text = await Deno.readTextFile(`${DEPLOY}/redis.conf`);
  await Deno.writeTextFile(
    file,
    text
      .replace("/run/secrets/redis_users.acl", secrets.path("redis_users.acl"))
      .replace(/^(dir|port) .*$/gm, "")
      // A master waits five seconds for more replicas before it sends its data.
      .concat("\nrepl-diskless-sync-delay 0\n"),
  );
  return file;
}

async function startScript(
  name: string,
  { secrets, tls }: GroupOptions,
  env: string[],
): Promise<LocalServer> {
  const client = await clientOf(tls);
  return await startLocalServer({
    command: "env",
    port: undefined,
    args: (port, directory) =>
      Promise.resolve([
        ...[`DATA_DIR=${directory}`, `SECRETS_DIR=${secrets.directory}`],
        ...[...env, `${DEPLOY}/${name}`],
        ...portArguments(port, tls),
        ...["--bind", "127.0.0.1", "--dir", directory],
      ]),
    isReady: async ({ port }) =>
      (await askPort(port, "AUTH health any\r\nPING\r\n", client)).endsWith(
        "+PONG\r\n",
      ),
  });
}

/** The arguments that `docs/cluster.md` names for TLS between the servers too. */
function portArguments(port: number, tls: GroupTls | undefined): string[] {
  if (tls === undefined) return ["--port", String(port)];
  const { caFile, server, client } = tls.authority;
  return [
    ...["--port", "0", "--tls-port", String(port), "--tls-replication", "yes"],
    ...["--tls-auth-clients", tls.isMutual ? "yes" : "no"],
    ...["--tls-ca-cert-file", caFile],
    ...["--tls-cert-file", server.certFile, "--tls-key-file", server.keyFile],
    ...["--tls-client-cert-file", client.certFile],
    ...["--tls-client-key-file", client.keyFile],
  ];
}

function clientOf(tls: GroupTls | undefined): Promise<ClientTls | undefined> {
  return tls === undefined
    ? Promise.resolve(undefined)
    : clientTls(tls.authority);
}

interface GroupParts extends GroupOptions {
  servers: LocalServer[];
  sentinels: LocalServer[];
  stack: AsyncDisposableStack;
  /** By which the others know the first server. */
  firstPort: number;
}

async function createGroup(parts: GroupParts) {
  const { servers, sentinels, secrets, tls, stack, firstPort } = parts;
  const client = await clientOf(tls);
  const knownAs = (server: LocalServer) =>
    String(server === servers[0] ? firstPort : server.port);
  const ask = ({ port }: LocalServer, lines: string) =>
    askPort(port, lines, client);
  /** Variables of a service that is this user. */
  const env = (user: "edge" | "admin"): Record<string, string> => ({
    ...tlsVariables(tls),
    REDIS_SENTINELS: sentinels.map(({ port }) => `127.0.0.1:${port}`).join(),
    REDIS_SENTINEL_USERNAME: "lookup",
    REDIS_SENTINEL_PASSWORD_FILE: secrets.path("redis_lookup_password"),
    REDIS_USERNAME: user === "edge" ? "edge-auth" : "key-admin",
    REDIS_PASSWORD_FILE: secrets.path(`redis_${user}_password`),
  });
  /** What every living sentinel says of the master. */
  const views = async () => {
    const password = await secrets.read("redis_sentinel_password");
    const asked = sentinels.filter((sentinel) => sentinel.isRunning());
    return await Promise.all(asked.map(async (sentinel) => {
      const said = await ask(
        sentinel,
        `AUTH peer ${password}\r\nINFO sentinel\r\nPING\r\n`,
      );
      return /status=(\w+),address=[\d.]+:(\d+),slaves=(\d+),sentinels=(\d+)/
        .exec(said) ?? [];
    }));
  };
  const named = async () => {
    const ports = new Set((await views()).map(([, , port]) => port));
    const [port] = ports;
    return ports.size === 1
      ? servers.find((server) => knownAs(server) === port)
      : undefined;
  };
  return {
    /** In the order they were started: the first began as master. */
    servers,
    sentinels,
    env,
    /** The same for a link. */
    address: (user: "edge" | "admin") =>
      redisAccess(parseEnv(REDIS_VARIABLES, env(user), Deno.readTextFileSync)),
    /** The server that all living sentinels name, which may be dead. */
    master: () => waitFor(named, { what: "the sentinels to name one master" }),
    /** Resolves when the sentinels agree on a master that lives, has its replicas, and takes writes. */
    settled: async (replicas = REPLICAS) => {
      await waitFor(async () => {
        const all = await views();
        const master = await named();
        if (master === undefined || !master.isRunning()) return false;
        const isAgreed = all.every(([, status, port, known]) =>
          status === "ok" && port === knownAs(master) &&
          Number(known) === REPLICAS
        );
        // `*3`, then the name, the offset, and one entry for each replica.
        const isComplete = new RegExp(
          `\\$6\\r\\nmaster\\r\\n:\\d+\\r\\n\\*${replicas}\\r\\n`,
        )
          .test(await ask(master, "AUTH health any\r\nROLE\r\nPING\r\n"));
        return isAgreed && isComplete;
      }, {
        what: "the group to settle",
        timeoutMs: SETTLED_MS,
        intervalMs: 50,
      });
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

/** How a service is told of the certificates. */
function tlsVariables(tls: GroupTls | undefined): Record<string, string> {
  if (tls === undefined) return {};
  const { caFile, client } = tls.authority;
  return {
    REDIS_URL: "rediss://sentinels",
    REDIS_CA_FILE: caFile,
    ...(tls.isMutual
      ? { REDIS_CERT_FILE: client.certFile, REDIS_KEY_FILE: client.keyFile }
      : {}),
  };
}
