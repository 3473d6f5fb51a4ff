// Promise: the password of a service's Redis user allows what that service does and
// nothing else: the test tries every command of the server on every family of keys,
// directly and from a script.
import assert from "node:assert/strict";
import { z } from "zod";
import { RedisReplyError } from "@gateway/shared/redis/errors";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import type { RedisReply } from "@gateway/shared/redis/connection";
import { askPort } from "../support/servers/ask_port.ts";
import {
  aclRules,
  makeSecrets,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import { startRedisWorld } from "../support/limits/admission_fixture.ts";
import { testRedisLink } from "../support/servers/redis_link.ts";

const PASSWORD = "correct-horse";

/** A key of each family, and some that no service uses. */
const KEYS = ("hash:h key:{own_a}:k keys:{own_a} own:{own_a} " +
  "lim:{own_a}:k lease:{own_a}:k use:{own_a}:k:20260101 requests:{own_a} logged:accounts deleted:h " +
  "spend:{own_a}:k:total hold:{own_a}:k lengths:20260101 " +
  "kept:{own_a}:r job:{own_a}:video_a jobs:{own_a} audit:{own_a} once:{own_a}:d " +
  "acct:{own_a} mail:d owners operators proj:{prj_a} members:{prj_a} defaults:{own_a} " +
  "projects joined:{own_a} owner:first sess:d " +
  "sessions:{own_a} ticket:reset:d try:d known:d oidc:d barrier fsync store " +
  "users:{own_a}:k admin_keys overrides ledger:currency " +
  "used:{own_a}:20260101 usage:summed " +
  "sweep:leases notices:due noticed:d session:d other:d").split(" ");

/** The complete permissions: user, family of keys, commands. */
const MAY: Record<string, Record<string, string>> = {
  "edge-auth": {
    hash: "get",
    deleted: "get",
    store: "get",
    key: "hmget",
    own: "hmget",
    lim: "evalsha hget hset pexpire",
    lease: "evalsha pexpire zadd zrem zremrangebyscore zcard zcount zscore " +
      "zrangebyscore",
    sweep: "set",
    use: "evalsha hincrby expire",
    spend: "hmget hincrby expire",
    hold: "hmget hget hset hexists hgetall hdel pexpire",
    lengths: "hgetall hincrby expire",
    users: "pexpire zadd zcard zrangebyscore zrem",
    overrides: "hvals",
    requests: "evalsha pexpire xadd xtrim",
    logged: "evalsha zadd zremrangebyscore",
    kept: "evalsha get set del hget hmget hset hdel hincrby pexpire pttl " +
      "zadd zrem zrangebyscore",
    job: "evalsha hget hset del pexpireat",
    notices: "sadd",
    jobs: "evalsha pexpire zadd zrem zremrangebyscore zrangebyscore zrank " +
      "zrevrank zrange zrevrange",
  },
  "key-admin": {
    hash: "set del",
    deleted: "set",
    store: "set",
    barrier: "set",
    fsync: "del sadd srem scard",
    key: "evalsha pexpireat del hmget hgetall hset",
    keys: "evalsha zadd zrem zcard zcount zrevrank zrevrange",
    lim: "evalsha hget",
    lease: "evalsha zcount zrange",
    use: "evalsha hgetall hset del expire",
    used: "hgetall hset del expire",
    usage: "get set del",
    spend: "hmget copy hdel",
    hold: "hgetall",
    requests: "xrange",
    logged: "zrangebyscore",
    audit: "evalsha xadd xrevrange",
    once: "evalsha exists set",
    admin_keys: "hdel hget hkeys hlen hset hvals",
    overrides: "hdel hset hvals",
    ledger: "get set",
    owner: "get set",
    owners: "zadd zrevrange",
    operators: "evalsha zadd zrem zcard zscore",
    notices: "evalsha srandmember srem",
    noticed: "evalsha set",
    own: "evalsha del hget hgetall hset",
    proj: "evalsha exists hgetall hset",
    members: "evalsha hdel hget hgetall hlen hset hvals",
    defaults: "evalsha hget hgetall hset",
    projects: "zadd zrevrange",
    joined: "zadd zcard zrange zrem",
    acct: "del hgetall hset hdel",
    mail: "get set",
    oidc: "get set",
    sess: "expire del hgetall hset",
    sessions: "expire zadd zrem zrevrange",
    ticket: "get getdel set",
    known: "get set",
    try: "evalsha expire pexpire del hget hmget hset",
  },
  operator: {},
  health: {},
};

/** Commands for administrators of Redis and Sentinel only. */
const FOR_NOBODY = ("KEYS *;SCAN 0;RANDOMKEY;EVAL return 0;SCRIPT FLUSH;" +
  "CONFIG SET dir /tmp;CONFIG REWRITE;FLUSHALL;SHUTDOWN NOSAVE;" +
  "REPLICAOF NO ONE;ACL LIST;ACL SETUSER key-admin +@all;CLIENT LIST;" +
  "CLIENT KILL TYPE normal;MONITOR;MODULE LIST;MIGRATE h 1 k 0 1;" +
  "GET somebody:else;SET somebody:else x").split(";");

/** A command of Redis that takes keys. */
interface KeyedCommand {
  /** Its name, and that of the subcommand. */
  words: string[];
  /** The fewest words that it takes. */
  argsMin: number;
  /** Positions of its keys among the words; the last one may count from the end. */
  firstKey: number;
  lastKey: number;
}

/**
 * Every command of the server that takes keys, subcommands too, with the positions of
 * its keys. An entry of what COMMAND answers: name, arity, flags, first key, last key,
 * …, subcommands.
 */
function keyedCommands(reply: unknown): KeyedCommand[] {
  const entries = z.array(z.array(z.unknown()));
  const commands = entries.parse(reply);
  const subcommands = commands.flatMap((entry) =>
    entries.parse(entry[9] ?? [])
  );
  return [...commands, ...subcommands]
    .filter(([, , flags, first]) =>
      Number(first) > 0 || String(flags).includes("movablekeys")
    ).map(([name, arity, , first, last]) => ({
      words: String(name).split("|"),
      argsMin: Math.abs(Number(arity)),
      firstKey: Number(first),
      lastKey: Number(last),
    }));
}

/** A call with the key wherever the command takes one. All other arguments are "1". */
function callOf(command: KeyedCommand, key: string): string[] {
  const { words, argsMin, firstKey, lastKey } = command;
  // If the number of keys is an argument: a name or none, "1", the key.
  if (firstKey === 0) return [...words, "1", "1", key, key, key, key];
  const call = [...words];
  const end = Math.max(argsMin, firstKey + 1, lastKey + 1);
  while (call.length < end) call.push("1");
  const last = lastKey < 0 ? call.length - 1 : lastKey;
  for (let at = firstKey; at <= last; at += 1) call[at] = key;
  return call;
}

const ANY_CALL = defineScript("any", "return redis.call(unpack(ARGV))");
const DENIED =
  /NOPERM|ACL failure|can't (access|run)|not allowed from script|protected config/;

async function isDenied(call: Promise<RedisReply>): Promise<boolean> {
  try {
    await call;
    return false;
  } catch (error) {
    if (!(error instanceof RedisReplyError)) throw error;
    return DENIED.test(error.message);
  }
}

Deno.test("ASVS 13.2.2: every command on every family of keys: a user may do exactly what is listed", async () => {
  await using world = await startRedisWorld();
  const commands = keyedCommands(await world.command("COMMAND"));
  assert.ok(commands.length > 150, `only ${commands.length} commands`);
  /** What the user may do, directly or in a script. */
  const allowedTo = async (link: RedisLink, { isInScript = false } = {}) => {
    const allowed: string[] = [];
    for (const command of commands) {
      await Promise.all(KEYS.map(async (key) => {
        const call = callOf(command, key);
        const reply = isInScript
          ? link.evalScript(ANY_CALL, { args: call })
          : link.command(call);
        if (await isDenied(reply)) return;
        const [family] = key.split(":");
        allowed.push(`${command.words.join("|")} ${family}`);
      }));
    }
    return allowed.sort();
  };
  for (const [username, may] of Object.entries(MAY)) {
    const rules = await aclRules(username, PASSWORD);
    await world.command("ACL", "SETUSER", ...rules);
    const address = { url: world.redis.url, username, password: PASSWORD };
    const link = testRedisLink(address, { deadlineMs: 5_000 });
    await link.ready(5_000);
    for (const command of FOR_NOBODY) {
      assert.ok(await isDenied(link.command(command.split(" "))), command);
    }
    const pairs = Object.entries(may).flatMap(([family, commands]) =>
      commands.split(" ").map((command) => `${command} ${family}`)
    ).sort();
    assert.deepEqual(await allowedTo(link), pairs, username);
    // A script cannot run another one.
    const inScript = pairs.filter((pair) => !pair.startsWith("evalsha "));
    const mayRun = inScript.length < pairs.length;
    if (mayRun) {
      assert.deepEqual(await allowedTo(link, { isInScript: true }), inScript);
    }
    await link.close();
  }
});

Deno.test("ASVS 13.2.1, 13.2.3: without a user Redis only asks for one; the health user can only ping", async () => {
  await using secrets = await makeSecrets();
  await using redis = await startDeployedRedis(secrets);
  const ask = (...lines: string[]) =>
    askPort(redis.server.port, lines.map((line) => `${line}\r\n`).join(""));
  assert.match(await ask("GET hash:x", "PING"), /^-NOAUTH.*\r\n-NOAUTH/);
  assert.match(
    await ask("AUTH health any", "GET hash:x", "PING"),
    /^\+OK\r\n-NOPERM.*\r\n\+PONG\r\n$/,
  );
});
