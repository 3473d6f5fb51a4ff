/** A private redis-server, with the connections of key-admin to it. */
import { silentLog } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisAddress } from "@gateway/shared/redis/connection";
import { aclRules } from "../../tests/support/deployed/deployed_stores.ts";
import {
  type RedisServer,
  startRedisServer,
} from "../../tests/support/servers/redis_server.ts";
import { waiting } from "../../tests/support/servers/redis_link.ts";
import { connectRedis } from "./domain/store/redis.ts";

export { freePort } from "../../tests/support/servers/local_server.ts";
export { until } from "../../tests/support/wait_for.ts";

/**
 * A private redis-server with the service's own connections to it. When it is killed
 * they are closed: they would only retry.
 */
export interface TestRedis extends RedisServer {
  /** Connects as this user of `deploy/redis/users.acl`, or as one who may do all. */
  connect(user?: string): Promise<RedisLink>;
}

const START_MS = 30_000;
const USER_PASSWORD = "only-of-this-server";
const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

/**
 * Starts a server, by default one that keeps every change, with more in its
 * environment. It ends with the `await using` block.
 */
export async function startRedis(
  settings = DURABLE,
  env: Record<string, string> = {},
): Promise<TestRedis> {
  const server = await startRedisServer({ args: settings, env });
  const { url } = server;
  const connections: RedisLink[] = [];
  const closeAll = async () => {
    await Promise.all(connections.splice(0).map((link) => link.close()));
  };
  const open = async (address: RedisAddress) => {
    const options = { address, log: silentLog, waitMs: START_MS };
    const connection = await connectRedis(options);
    connections.push(connection);
    return waiting(connection);
  };
  const connect = async (user?: string) => {
    if (user === undefined) return await open({ url });
    const administrator = await open({ url });
    const rules = await aclRules(user, USER_PASSWORD);
    await administrator.command(["ACL", "SETUSER", ...rules]);
    return await open({ url, username: user, password: USER_PASSWORD });
  };
  return {
    ...server,
    connect,
    kill: async () => {
      // The server first: a closing link waits for the calls it has sent.
      await server.kill();
      await closeAll();
    },
    [Symbol.asyncDispose]: async () => {
      await closeAll();
      await server[Symbol.asyncDispose]();
    },
  };
}
