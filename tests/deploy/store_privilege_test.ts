// Promise: what deploy/redis/users.acl lets a service's user do is what the service
// does. Every command on every key is tried in store_intruder_test.ts; that the edge
// can work, in services/edge-auth/redis_acl_test.ts.
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { RedisReplyError } from "@gateway/shared/redis/errors";
import { createRedisLink, type RedisLink } from "@gateway/shared/redis/link";
import {
  type DeployedSecrets,
  makeSecrets,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";

const OWNER = "{own_a}";
/** What nobody but an administrator of Redis itself, or Sentinel, may do. */
const FOR_NOBODY = [
  ["KEYS", "*"],
  ["SCAN", "0"],
  ["RANDOMKEY"],
  ["EVAL", "return 1", "0"],
  ["SCRIPT", "FLUSH"],
  ["CONFIG", "SET", "dir", "/tmp"],
  ["CONFIG", "REWRITE"],
  ["FLUSHALL"],
  ["SHUTDOWN", "NOSAVE"],
  ["REPLICAOF", "NO", "ONE"],
  ["ACL", "LIST"],
  ["ACL", "SETUSER", "key-admin", "+@all"],
  ["CLIENT", "LIST"],
  ["CLIENT", "KILL", "TYPE", "normal"],
  ["MONITOR"],
  ["MODULE", "LIST"],
  ["MIGRATE", "h", "1", "k", "0", "1"],
  ["GET", "somebody:else"],
  ["SET", "somebody:else", "x"],
];

interface User {
  name: string;
  secret: string;
  allowed: string[][];
  denied: string[][];
}

const USERS: User[] = [
  {
    name: "key-admin",
    secret: "redis_admin_password",
    allowed: [
      ["HSET", `key:${OWNER}:k`, "state", "enabled"],
      ["HGET", `lim:${OWNER}:k`, "lu"],
      ["CONFIG", "GET", "append*"],
    ],
    denied: [
      // Counters and running requests are the edges' alone.
      ["HSET", `lim:${OWNER}:k`, "tat", "0"],
      ["DEL", `lim:${OWNER}:k`],
      ["ZADD", `lease:${OWNER}`, "1", "r"],
      ["HSET", `use:${OWNER}:k:20260101`, "a", "1"],
      ["DUMP", `key:${OWNER}:k`],
      ["PSYNC", "?", "-1"],
      ["ACL", "LOAD"],
    ],
  },
  {
    name: "edge-auth",
    secret: "redis_edge_password",
    allowed: [["HMGET", `key:${OWNER}:k`, "state"], ["TIME"]],
    denied: [
      ["HSET", `key:${OWNER}:k`, "state", "enabled"],
      ["GET", "sess:x"],
      ["HGET", `acct:${OWNER}`, "password"],
      ["CONFIG", "GET", "append*"],
      ["PSYNC", "?", "-1"],
      ["ACL", "LOAD"],
    ],
  },
  {
    name: "operator",
    secret: "redis_operator_password",
    allowed: [["INFO", "server"]],
    denied: [
      ["GET", "hash:x"],
      ["HSET", `key:${OWNER}:k`, "state", "enabled"],
      ["CONFIG", "GET", "*"],
    ],
  },
  {
    // A replica copies everything, so it may read nothing but the copy.
    name: "replica",
    secret: "redis_replica_password",
    allowed: [["REPLCONF", "listening-port", "6379"]],
    denied: [
      ["GET", "hash:x"],
      ["HSET", `key:${OWNER}:k`, "state", "enabled"],
      ["INFO"],
      ["ACL", "LOAD"],
    ],
  },
  {
    // It makes masters and replicas, and sees and changes no data.
    name: "sentinel",
    secret: "redis_sentinel_password",
    allowed: [
      ["ROLE"],
      ["INFO", "replication"],
      ["PUBLISH", "__sentinel__:hello", "x"],
    ],
    denied: [
      ["GET", "hash:x"],
      ["HSET", `key:${OWNER}:k`, "state", "enabled"],
      ["PUBLISH", "elsewhere", "x"],
      ["CONFIG", "GET", "*"],
      ["PSYNC", "?", "-1"],
      ["ACL", "LOAD"],
    ],
  },
];

/** What is denied to all others and is what Sentinel is for. */
const FOR_SENTINEL = ["CONFIG REWRITE", "CLIENT KILL TYPE normal"];

function deniedTo(user: User): string[][] {
  const general = user.name !== "sentinel" ? FOR_NOBODY : FOR_NOBODY.filter(
    (command) => !FOR_SENTINEL.includes(command.join(" ")),
  );
  return [...general, ...user.denied];
}

async function signIn(
  url: string,
  secrets: DeployedSecrets,
  user: User,
): Promise<RedisLink> {
  const link = createRedisLink({
    address: {
      url,
      username: user.name,
      password: await secrets.read(user.secret),
    },
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
    deadlineMs: 2_000,
  });
  await link.ready(5_000);
  return link;
}

Deno.test("ASVS 13.2.2: a user of Redis may do what its service does and nothing else", async (t) => {
  await using secrets = await makeSecrets();
  await using redis = await startDeployedRedis(secrets);
  for (const user of USERS) {
    const link = await signIn(redis.url, secrets, user);
    for (const command of user.allowed) {
      await t.step(`${user.name}: ${command.join(" ")}`, async () => {
        await link.command(command);
      });
    }
    for (const command of deniedTo(user)) {
      await t.step(`${user.name} not: ${command.join(" ")}`, async () => {
        await assert.rejects(
          link.command(command),
          (error) =>
            error instanceof RedisReplyError && /NOPERM/.test(error.message),
        );
      });
    }
    await link.close();
  }
});

Deno.test("ASVS 13.2.1, 13.2.3: without a user Redis only says that one is needed; the health user only pings", async () => {
  await using secrets = await makeSecrets();
  await using redis = await startDeployedRedis(secrets);
  const ask = async (...lines: string[]) => {
    await using connection = await Deno.connect({ port: redis.server.port });
    const text = lines.map((line) => `${line}\r\n`).join("");
    await connection.write(new TextEncoder().encode(text));
    const answers: string[] = [];
    const buffer = new Uint8Array(4_096);
    while (answers.length < lines.length) {
      const length = await connection.read(buffer) ?? 0;
      const said = new TextDecoder().decode(buffer.subarray(0, length));
      answers.push(...said.trim().split("\r\n"));
    }
    return answers;
  };
  const [ping = "", get = ""] = await ask("PING", "GET hash:x");
  assert.match(ping, /^-NOAUTH/);
  assert.match(get, /^-NOAUTH/);
  const [auth, pong, read = ""] = await ask(
    "AUTH health any",
    "PING",
    "GET hash:x",
  );
  assert.deepEqual([auth, pong], ["+OK", "+PONG"]);
  assert.match(read, /^-NOPERM/);
});

Deno.test("a rotated password of Redis holds at once, the old one until it is retired", async () => {
  await using secrets = await makeSecrets();
  await using redis = await startDeployedRedis(secrets);
  const [admin, , operator] = USERS;
  assert.ok(admin !== undefined && operator !== undefined);
  const control = await signIn(redis.url, secrets, operator);
  const old = await secrets.read(admin.secret);
  const enter = async (password: string) => {
    const link = createRedisLink({
      address: { url: redis.url, username: admin.name, password },
      log: silentLog,
      now: monotonicNow,
      random: Math.random,
    });
    try {
      await link.ready(1_000);
      return "in";
    } catch {
      return "refused";
    } finally {
      await link.close();
    }
  };

  await secrets.run("rotate", "redis-admin");
  await control.command(["ACL", "LOAD"]);
  const fresh = await secrets.read(admin.secret);
  assert.notEqual(fresh, old);
  assert.deepEqual([await enter(old), await enter(fresh)], ["in", "in"]);

  await secrets.run("retire");
  await control.command(["ACL", "LOAD"]);
  assert.deepEqual([await enter(old), await enter(fresh)], ["refused", "in"]);
  await control.close();
});
