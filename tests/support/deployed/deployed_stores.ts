// NATS, Redis and the front proxy with the very configuration of `compose.yaml`: its
// files, and passwords made by its script. Only addresses and paths are of this
// machine.
import { fileURLToPath } from "node:url";
import { askPort } from "../servers/ask_port.ts";
import { freePort, startLocalServer } from "../servers/local_server.ts";
import { type NatsServer, startNatsServer } from "../servers/nats_server.ts";
import { makeTempDir, runProcess } from "../process.ts";
import { type RedisServer, startRedisServer } from "../servers/redis_server.ts";
import type { TestAuthority } from "./test_authority.ts";

const DEPLOY = fileURLToPath(new URL("../../../deploy", import.meta.url));

/** The folder of secrets of a deployment. */
export interface DeployedSecrets extends AsyncDisposable {
  directory: string;
  /** The path of a secret. */
  path(name: string): string;
  /** Runs the script again: `run("rotate", "redis-edge")`. Returns what it prints. */
  run(...args: string[]): Promise<string>;
  /** The value of a secret. */
  read(name: string): Promise<string>;
}

/** Runs `deploy/secrets.sh` in a folder of its own. */
export async function makeSecrets(): Promise<DeployedSecrets> {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  const run = (...args: string[]) => {
    const env = { SECRETS_DIR: directory };
    return runProcess(`${DEPLOY}/secrets.sh`, args, { env });
  };
  await run();
  const path = (name: string) => `${directory}/${name}`;
  return {
    directory,
    path,
    run,
    read: (name) => Deno.readTextFile(path(name)),
    [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }),
  };
}

/** `deploy/nats/nats.conf`; with an authority, only over mutual TLS. */
export async function startDeployedNats(
  secrets: DeployedSecrets,
  authority?: TestAuthority,
): Promise<NatsServer> {
  const config = await deployedNatsConfig(secrets) + natsTls(authority);
  return await startNatsServer({ config, jetStream: true });
}

/** `deploy/nats/nats.conf` with the passwords of now. */
export async function deployedNatsConfig(secrets: DeployedSecrets) {
  const text = await Deno.readTextFile(`${DEPLOY}/nats/nats.conf`);
  const passwords = await secrets.read("nats_passwords.conf");
  return text.replace(/^include "passwords.conf"$/m, passwords)
    .replace(/^(http_port: 8222|jetstream ).*$/gm, "");
}

/** Configuration of a server that takes clients over mutual TLS only. */
export function natsTls(authority: TestAuthority | undefined): string {
  if (authority === undefined) return "";
  const { caFile, server } = authority;
  return ` tls { ca_file: "${caFile}", cert_file: "${server.certFile}",
      key_file: "${server.keyFile}", verify: true, timeout: 2 }\n`;
}

/** A Redis with the configuration of a deployment. */
export interface DeployedRedis extends AsyncDisposable {
  server: RedisServer;
  /** With an authority, over mutual TLS. */
  url: string;
}

/**
 * `deploy/redis/redis.conf` and `users.acl`; with an authority, also over mutual TLS,
 * as `url` says.
 */
export async function startDeployedRedis(
  secrets: DeployedSecrets,
  authority?: TestAuthority,
): Promise<DeployedRedis> {
  const tlsPort = authority === undefined ? undefined : freePort();
  const server = await startRedisServer({
    config: await deployedRedisConfig(secrets),
    args: redisTls(authority, tlsPort),
  });
  return {
    server,
    url: tlsPort === undefined ? server.url : `rediss://127.0.0.1:${tlsPort}`,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/**
 * Runs `deploy/secrets.sh load` where `docker compose` reaches this server, and returns
 * which services it was called for.
 */
export async function loadUsers(
  { secrets, redis }: Omit<DeployedStores, "nats">,
): Promise<string> {
  await using bin = await makeTempDir();
  const commands = {
    docker: `shift; case $1 in
      ps) echo edge-auth nats nats-2 redis redis-2 redis-sentinel-1 | tr ' ' '\\n' ;;
      kill) echo "$@" ;;
      exec) shift 2; echo "$1"; shift; exec "$@" ;; esac`,
    "redis-cli": `PATH=\${PATH#*:} exec redis-cli -p ${redis.server.port} "$@"`,
  };
  for (const [name, text] of Object.entries(commands)) {
    const file = `${bin.path}/${name}`;
    await Deno.writeTextFile(file, `#!/bin/sh\n${text}`, { mode: 0o755 });
  }
  const PATH = `${bin.path}:${Deno.env.get("PATH")}`;
  const env = { SECRETS_DIR: secrets.directory, PATH };
  return await runProcess(`${DEPLOY}/secrets.sh`, ["load"], { env });
}

/** `deploy/redis/redis.conf` with the paths of this machine. */
export async function deployedRedisConfig(secrets: DeployedSecrets) {
  const text = await Deno.readTextFile(`${DEPLOY}/redis/redis.conf`);
  const users = secrets.path("redis_users.acl");
  return text.replace("/run/secrets/redis_users.acl", users)
    .replace(/^(dir|port) .*$/gm, "");
}

/**
 * The rules of one user of `deploy/redis/users.acl` with this password, as `ACL
 * SETUSER` takes them.
 */
export async function aclRules(user: string, password: string) {
  const text = await Deno.readTextFile(`${DEPLOY}/redis/users.acl`);
  const lines = text.replaceAll(/\n +/g, " ").split("\n");
  const line = lines.find((each) => each.startsWith(`user ${user} `));
  if (line === undefined) throw new Error(`No user ${user}`);
  return line.replace(/#@\w+@/, `>${password}`).split(" ").slice(1);
}

/** The stores of a deployment, and what is needed to reach them. */
export interface DeployedStores {
  secrets: DeployedSecrets;
  nats: NatsServer;
  redis: DeployedRedis;
  /** With mutual TLS. */
  authority?: TestAuthority | undefined;
}

const USERS = {
  edge: "edge-auth",
  worker: "chat-worker",
  media: "media-worker",
  admin: "key-admin",
};

/** How compose.yaml tells a service of the stores. */
export function deployedEnv(
  { secrets, nats, redis, authority }: DeployedStores,
  service: keyof typeof USERS,
): Record<string, string> {
  const signIn = (store: "NATS" | "REDIS", name: string) => ({
    [`${store}_${name}`]: USERS[service],
    [`${store}_PASSWORD_FILE`]: secrets.path(
      `${store.toLowerCase()}_${service}_password`,
    ),
    ...authority && tlsVariables(store, authority),
  });
  const bus = { NATS_URL: `nats://${nats.server}`, ...signIn("NATS", "USER") };
  return service === "worker" || service === "media"
    ? bus
    : { ...bus, REDIS_URL: redis.url, ...signIn("REDIS", "USERNAME") };
}

/** How a service is told of its certificates. */
export const tlsVariables = (
  store: "NATS" | "REDIS",
  { caFile, client: { certFile, keyFile } }: TestAuthority,
): Record<string, string> => ({
  [`${store}_CA_FILE`]: caFile,
  [`${store}_CERT_FILE`]: certFile,
  [`${store}_KEY_FILE`]: keyFile,
});

/** Arguments of a server that takes clients on `port` over mutual TLS. */
export function redisTls(
  authority: TestAuthority | undefined,
  port: number | undefined,
): string[] {
  if (authority === undefined) return [];
  const { caFile, server } = authority;
  return [
    "--tls-port",
    `${port}`,
    "--tls-auth-clients",
    "yes",
    "--tls-ca-cert-file",
    caFile,
    "--tls-cert-file",
    server.certFile,
    "--tls-key-file",
    server.keyFile,
  ];
}

/**
 * Starts Caddy with the file of `deploy/` before an edge and a console; its
 * certificates are of its own authority.
 */
export async function startFrontProxy(ports: {
  httpsPort: number;
  edgePort: number;
  edgeReadyPort: number;
  consolePort: number;
  /** Files of a certificate and its key, in place of Caddy's own authority. */
  tls?: { certificate: string; key: string };
}) {
  const server = await startLocalServer({
    command: "env",
    args: (healthPort, directory) => [
      `HOME=${directory}`,
      `XDG_DATA_HOME=${directory}`,
      `XDG_CONFIG_HOME=${directory}`,
      `HTTPS_PORT=${ports.httpsPort}`,
      `HTTP_PORT=${freePort()}`,
      `HEALTH_PORT=${healthPort}`,
      "EDGE_HOST=localhost",
      `EDGE_PORT=${ports.edgePort}`,
      `EDGE_READY_PORT=${ports.edgeReadyPort}`,
      `CONSOLE_UPSTREAM=127.0.0.1:${ports.consolePort}`,
      ...ports.tls ? [`TLS=${ports.tls.certificate} ${ports.tls.key}`] : [],
      "caddy",
      "run",
      "--adapter",
      "caddyfile",
      "--config",
      `${DEPLOY}/proxy/Caddyfile`,
    ],
    isReady: async ({ port }) =>
      (await askPort(port, "GET /healthz HTTP/1.0\r\n\r\n")).includes(" 200 "),
  });
  const root = ports.tls?.certificate ??
    `${server.directory}/caddy/pki/authorities/local/root.crt`;
  return { ...server, ca: await Deno.readTextFile(root) };
}
