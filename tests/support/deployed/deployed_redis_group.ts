// A Redis master with two replicas and three sentinels, started by the scripts of
// `compose.cluster.yaml` with its users. Only addresses, paths and the time after
// which a silent master counts as gone are of this machine.
import { fileURLToPath } from "node:url";
import type { RedisAddress } from "@gateway/shared/redis/connection";
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
import { askPort } from "../servers/ask_port.ts";
import { type LocalServer, startLocalServer } from "../servers/local_server.ts";
import {
  type ClientTls,
  clientTls,
  type TestAuthority,
} from "./test_authority.ts";
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

/** What a group is started with. */
export interface RedisGroupOptions {
  secrets: DeployedSecrets;
  /** With it, all speak mutual TLS and nothing else. */
  tls?: TestAuthority;
  /**
   * Puts something between the first server and all the others: returns the port by
   * which these know it.
   */
  wire?: (port: number) => number;
}

/** A script of `deploy/redis`, and its variables. */
interface Script {
  name: "node.sh" | "sentinel.sh";
  env: readonly string[];
}

/** A master, its replicas and their sentinels. */
export class RedisGroup implements AsyncDisposable {
  /** In the order they were started: the first began as master. */
  readonly servers: LocalServer[] = [];
  readonly sentinels: LocalServer[] = [];
  readonly #running = new AsyncDisposableStack();
  readonly #secrets: DeployedSecrets;
  readonly #tls: TestAuthority | undefined;
  readonly #wire: (port: number) => number;
  /** By which the others know the first server. */
  #firstPort = 0;
  #client: ClientTls | undefined;
  #peerPassword = "";

  constructor({ secrets, tls, wire = (port) => port }: RedisGroupOptions) {
    this.#secrets = secrets;
    this.#tls = tls;
    this.#wire = wire;
  }

  /** Starts all servers and waits until they have found each other. */
  async start(): Promise<void> {
    this.#client = this.#tls && await clientTls(this.#tls);
    await this.#startServers();
    await this.#startSentinels();
    await this.settled();
  }

  /** Variables of a service that is this user. */
  env(user: "edge" | "admin"): Record<string, string> {
    const tls = this.#tls;
    return {
      ...tls &&
        { REDIS_URL: "rediss://sentinels", ...tlsVariables("REDIS", tls) },
      REDIS_SENTINELS: this.sentinels
        .map(({ port }) => `127.0.0.1:${port}`).join(),
      REDIS_SENTINEL_USERNAME: "lookup",
      REDIS_SENTINEL_PASSWORD_FILE: this.#secrets.path("redis_lookup_password"),
      REDIS_USERNAME: user === "edge" ? "edge-auth" : "key-admin",
      REDIS_PASSWORD_FILE: this.#secrets.path(`redis_${user}_password`),
    };
  }

  /** The same for a link. */
  address(user: "edge" | "admin"): RedisAddress {
    const env = this.env(user);
    return redisAccess(parseEnv(REDIS_VARIABLES, env, Deno.readTextFileSync));
  }

  /** The server that all living sentinels name, which may be dead. */
  master(): Promise<LocalServer> {
    return until(() => this.#masterByName());
  }

  /**
   * Resolves when the sentinels agree on a master that lives, has its replicas, and
   * takes writes.
   */
  async settled(replicas = REPLICAS): Promise<void> {
    await waitFor(() => this.#isSettled(replicas), {
      what: "the group to settle",
      timeoutMs: SETTLED_MS,
      intervalMs: 50,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#running.disposeAsync();
  }

  async #startServers(): Promise<void> {
    const config = this.#secrets.path("redis.conf");
    // A master waits five seconds for more replicas before it sends its data.
    const delay = "\nrepl-diskless-sync-delay 0\n";
    const lines = await deployedRedisConfig(this.#secrets) + delay;
    await Deno.writeTextFile(config, lines);
    const env = [`REDIS_CONFIG=${config}`];
    const first = await this.#start({ name: "node.sh", env });
    this.#firstPort = this.#wire(first.port);
    this.servers.push(first);
    env.push(`REPLICA_OF=127.0.0.1 ${this.#firstPort}`);
    while (this.servers.length <= REPLICAS) {
      this.servers.push(await this.#start({ name: "node.sh", env }));
    }
  }

  async #startSentinels(): Promise<void> {
    this.#peerPassword = await this.#secrets.read("redis_sentinel_password");
    const env = [`MASTER=127.0.0.1 ${this.#firstPort}`, ...TIMES];
    while (this.sentinels.length < SENTINELS) {
      const sentinel = await this.#start({ name: "sentinel.sh", env });
      this.sentinels.push(sentinel);
      const reply = await this.#askSentinel(
        sentinel,
        `SENTINEL DEBUG ${PERIODS}`,
      );
      if (reply !== "+OK\r\n+OK\r\n+PONG\r\n") throw new Error(reply);
    }
  }

  async #start({ name, env }: Script): Promise<LocalServer> {
    const server = await startLocalServer({
      command: "env",
      args: (port, directory) => [
        `DATA_DIR=${directory}`,
        `SECRETS_DIR=${this.#secrets.directory}`,
        ...env,
        `${DEPLOY}/${name}`,
        ...portArguments(port, this.#tls),
        "--bind",
        "127.0.0.1",
        "--dir",
        directory,
      ],
      isReady: async (server) =>
        (await this.#ask(server, "AUTH health any\r\nPING\r\n"))
          .endsWith("+PONG\r\n"),
    });
    return this.#running.use(server);
  }

  #ask({ port }: { port: number }, lines: string): Promise<string> {
    return askPort(port, lines, this.#client);
  }

  #askSentinel(sentinel: LocalServer, line: string): Promise<string> {
    const auth = `AUTH peer ${this.#peerPassword}`;
    return this.#ask(sentinel, `${auth}\r\n${line}\r\nPING\r\n`);
  }

  #knownAs(server: LocalServer): string {
    const isFirst = server === this.servers[0];
    return String(isFirst ? this.#firstPort : server.port);
  }

  /** How every living sentinel sees the master: its state, port and replicas. */
  async #views(): Promise<string[][]> {
    const living = this.sentinels.filter((sentinel) => sentinel.isRunning());
    const replies = await Promise.all(
      living.map((sentinel) => this.#askSentinel(sentinel, "INFO sentinel")),
    );
    return replies.map((text) => {
      const form = /status=(\w+),address=[\d.]+:(\d+),slaves=(\d+)/;
      return form.exec(text)?.slice(1) ?? [];
    });
  }

  async #masterByName(): Promise<LocalServer | undefined> {
    const ports = new Set((await this.#views()).map(([, port]) => port));
    const [port] = ports;
    return ports.size === 1
      ? this.servers.find((server) => this.#knownAs(server) === port)
      : undefined;
  }

  async #isSettled(replicas: number): Promise<boolean> {
    const views = await this.#views();
    const master = await this.#masterByName();
    if (master === undefined || !master.isRunning()) return false;
    const agreed = `ok ${this.#knownAs(master)} ${REPLICAS}`;
    const isAgreed = views.every((view) => view.join(" ") === agreed);
    const role = await this.#ask(
      master,
      "AUTH health any\r\nROLE\r\nPING\r\n",
    );
    // `*3`, then the name, the offset, and one entry for each replica.
    const form = `\\$6\\r\\nmaster\\r\\n:\\d+\\r\\n\\*${replicas}\\r\\n`;
    return isAgreed && new RegExp(form).test(role);
  }
}

/** Starts a master, replicas and sentinels as `docs/cluster.md` describes them. */
export async function startRedisGroup(
  options: RedisGroupOptions,
): Promise<RedisGroup> {
  await using starting = new AsyncDisposableStack();
  const group = starting.use(new RedisGroup(options));
  await group.start();
  starting.move();
  return group;
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
