/**
 * NATS and Redis with the very configuration of `compose.yaml`: its files, and
 * passwords made by its script. Only addresses and paths are of this machine.
 */
import { fileURLToPath } from "node:url";
import { freePort } from "../local_server.ts";
import { type NatsServer, startNatsServer } from "../nats_server.ts";
import { startProcess } from "../process.ts";
import { startRedisServer } from "../redis_server.ts";
import type { TestAuthority } from "./test_authority.ts";

const DEPLOY = fileURLToPath(new URL("../../../deploy", import.meta.url));

/** Secret files as `deploy/secrets.sh` makes them. */
export type DeployedSecrets = Awaited<ReturnType<typeof makeSecrets>>;

/** Makes all secrets in a directory of its own. */
export async function makeSecrets() {
  const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
  /** Runs the script again: `run("rotate", "redis-edge")`. */
  const run = async (...args: string[]) => {
    await using script = startProcess({
      command: `${DEPLOY}/secrets.sh`,
      args,
      env: { SECRETS_DIR: directory },
    });
    const { success } = await script.exited;
    if (!success) throw new Error(`secrets.sh failed: ${script.output()}`);
  };
  await run();
  /** Path of a file: `nats_edge_password`. */
  const path = (name: string) => `${directory}/${name}`;
  return {
    ...{ directory, path, run },
    read: (name: string) => Deno.readTextFile(path(name)),
    [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }),
  };
}

/** `deploy/nats/nats.conf`; with an authority, only over mutual TLS. */
export async function startDeployedNats(
  secrets: DeployedSecrets,
  authority?: TestAuthority,
): Promise<NatsServer> {
  const config = await deployedNatsConfig(secrets);
  return await startNatsServer({ config: config + natsTls(authority) });
}

/** `deploy/nats/nats.conf` with the passwords of now. */
export async function deployedNatsConfig(secrets: DeployedSecrets) {
  const text = await Deno.readTextFile(`${DEPLOY}/nats/nats.conf`);
  return text.replace(
    /^include "passwords.conf"$/m,
    await secrets.read("nats_passwords.conf"),
  )
    .replace(/^http_port: 8222.*$/m, "");
}

/** Configuration of a server that takes clients over mutual TLS only. */
export function natsTls(authority: TestAuthority | undefined): string {
  if (authority === undefined) return "";
  const { caFile, server } = authority;
  return ` tls { ca_file: "${caFile}", cert_file: "${server.certFile}",
      key_file: "${server.keyFile}", verify: true, timeout: 2 }\n`;
}

/** A server, and its address over mutual TLS where there is one. */
export type DeployedRedis = Awaited<ReturnType<typeof startDeployedRedis>>;

/** `deploy/redis/redis.conf` and `users.acl`; with an authority, also over mutual TLS. */
export async function startDeployedRedis(
  secrets: DeployedSecrets,
  authority?: TestAuthority,
) {
  const text = await Deno.readTextFile(`${DEPLOY}/redis/redis.conf`);
  const tlsPort = authority === undefined ? undefined : freePort();
  const server = await startRedisServer({
    config: text
      .replace("/run/secrets/redis_users.acl", secrets.path("redis_users.acl"))
      .replace(/^dir .*$/m, ""),
    args: redisTls(authority, tlsPort),
  });
  return {
    server,
    url: tlsPort === undefined ? server.url : `rediss://127.0.0.1:${tlsPort}`,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** The stores of a deployment. */
export interface DeployedStores {
  secrets: DeployedSecrets;
  nats: NatsServer;
  redis: DeployedRedis;
  /** With mutual TLS. */
  authority?: TestAuthority | undefined;
}

/** How compose.yaml tells a service of the stores. */
export function deployedEnv(
  { secrets, nats, redis, authority }: DeployedStores,
  service: "edge" | "worker" | "media" | "admin",
): Record<string, string> {
  const user = {
    edge: "edge-auth",
    worker: "chat-worker",
    media: "media-worker",
    admin: "key-admin",
  };
  const env: Record<string, string> = { NATS_URL: `nats://${nats.server}` };
  const signIn = (store: "NATS" | "REDIS", name: string) => {
    env[`${store}_${name}`] = user[service];
    const secret = `${store.toLowerCase()}_${service}_password`;
    env[`${store}_PASSWORD_FILE`] = secrets.path(secret);
    if (authority === undefined) return;
    env[`${store}_CA_FILE`] = authority.caFile;
    env[`${store}_CERT_FILE`] = authority.client.certFile;
    env[`${store}_KEY_FILE`] = authority.client.keyFile;
  };
  signIn("NATS", "USER");
  if (service === "worker" || service === "media") return env;
  env.REDIS_URL = redis.url;
  signIn("REDIS", "USERNAME");
  return env;
}

/** Arguments of a server that takes clients on `port` over mutual TLS. */
export function redisTls(
  authority: TestAuthority | undefined,
  port: number | undefined,
): string[] {
  if (authority === undefined) return [];
  const { caFile, server } = authority;
  return [
    ...["--tls-port", String(port), "--tls-auth-clients", "yes"],
    ...["--tls-ca-cert-file", caFile],
    ...["--tls-cert-file", server.certFile],
    ...["--tls-key-file", server.keyFile],
  ];
}
