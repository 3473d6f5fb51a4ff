// Promise: whatever happens to the server, each change of the link's state is one log
// line with its reason: one when it fails and one when it has recovered, however many
// calls fail in between.

import assert from "node:assert/strict";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { freePort } from "../../tests/support/servers/local_server.ts";
import {
  type RedisServer,
  startRedisServer,
} from "../../tests/support/servers/redis_server.ts";
import { sleep, startStopwatch, until } from "../../tests/support/wait_for.ts";
import { classifyRedisError, RedisReplyError } from "./errors.ts";
import { defineScript, type RedisLink } from "./link.ts";
import { testRedisLink } from "../../tests/support/servers/redis_link.ts";

const RECOVERY_MS = 2_000;
/** For a server that is up, on a busy machine. */
const PATIENT_MS = 30_000;
/** Long enough for several probes and attempts to connect. */
const BAD_MS = 400;
/** A state that comes and goes would change again within this time. */
const STAYS_MS = 300;
const CALLS_AT_ONCE = 5;
const CALL_EVERY_MS = 20;
const PASSWORD = "secret";
const USER = ["worker", "on", `>${PASSWORD}`, "~*", "&*", "+@all"];
/** Loads its data slowly, and replies LOADING meanwhile. */
const CONFIG = ` user ${USER.join(" ")}
key-load-delay 100000
loading-process-events-interval-bytes 1024
rdbcompression no
`;
const WORK = defineScript(
  "work",
  `redis.call('ZADD', KEYS[1], 1, 'a')
   return redis.call('INCR', KEYS[2])`,
);

interface World {
  redis: RedisServer;
  /** As an administrator of the server. */
  admin: (...args: string[]) => Promise<unknown>;
}

interface Row {
  name: string;
  /** What the log says of the failure: the new state, and why. */
  logged: readonly [state: string, why: RegExp];
  spoil(world: World): Promise<unknown>;
  mend(world: World): Promise<unknown>;
}

let restart = Promise.resolve();

const ROWS: Row[] = [
  {
    name: "killed",
    logged: ["offline", /closed|reset|ECONNREFUSED/i],
    spoil: ({ redis }) => redis.kill(),
    mend: ({ redis }) => redis.restart(),
  },
  {
    name: "frozen",
    logged: ["stalled", /^$/],
    spoil: ({ redis }) => redis.freeze(),
    mend: ({ redis }) => Promise.resolve(redis.thaw()),
  },
  {
    name: "a replica (READONLY)",
    logged: ["offline", /READONLY/],
    spoil: ({ admin }) => admin("REPLICAOF", "127.0.0.1", String(freePort())),
    mend: ({ admin }) => admin("REPLICAOF", "NO", "ONE"),
  },
  {
    name: "out of memory (OOM)",
    logged: ["refusing", /^refused .*OOM/],
    spoil: ({ admin }) => admin("CONFIG", "SET", "maxmemory", "1"),
    mend: ({ admin }) => admin("CONFIG", "SET", "maxmemory", "0"),
  },
  {
    name: "restarted and loading its data for a second (LOADING)",
    logged: ["offline", /LOADING|ECONNREFUSED|closed|reset/i],
    async spoil({ admin, redis }) {
      const value = "x".repeat(2_000);
      for (let at = 0; at < 10; at += 1) await admin("SET", `k${at}`, value);
      await admin("SAVE");
      await redis.kill();
      restart = redis.restart();
    },
    mend: () => restart,
  },
  {
    name: "denied a command in a script (NOPERM)",
    logged: ["refusing", /^denied .*(NOPERM|can't|ACL failure)/],
    spoil: ({ admin }) => admin("ACL", "SETUSER", "worker", "-zadd"),
    mend: ({ admin }) => admin("ACL", "SETUSER", "worker", "+zadd"),
  },
  {
    name: "denied every command (NOPERM)",
    logged: ["refusing", /^denied .*NOPERM/],
    spoil: ({ admin }) => admin("ACL", "SETUSER", "worker", "-@all"),
    mend: ({ admin }) => admin("ACL", "SETUSER", "worker", "+@all"),
  },
  {
    name: "without its user (NOAUTH, WRONGPASS)",
    logged: ["offline", /closed|reset|WRONGPASS/i],
    spoil: ({ admin }) => admin("ACL", "DELUSER", "worker"),
    mend: ({ admin }) => admin("ACL", "SETUSER", ...USER),
  },
];

Deno.test('error replies that mean "not now" make Redis unavailable, others do not', () => {
  const table: [string, string | null][] = [
    ["READONLY MASTERDOWN", "read_only"],
    ["LOADING OOM MISCONF NOREPLICAS BUSY CLUSTERDOWN TRYAGAIN", "refused"],
    ["ERR WRONGTYPE NOPERM NOSCRIPT BUSYGROUP", null],
  ];
  for (const [codes, reason] of table) {
    for (const code of codes.split(" ")) {
      const error = classifyRedisError(new RedisReplyError(`${code} why`));
      assert.equal("reason" in error ? error.reason : null, reason, code);
    }
  }
});

Deno.test("each change of state is one line, with its reason", async (t) => {
  for (const row of ROWS) await t.step(row.name, () => assertTwoLines(row));
});

async function assertTwoLines({ logged, spoil, mend }: Row): Promise<void> {
  await using redis = await startRedisServer({ config: CONFIG });
  const outside = testRedisLink({ url: redis.url }, { deadlineMs: 900 });
  await outside.ready(PATIENT_MS);
  const world = { redis, admin: (...args: string[]) => outside.command(args) };
  const log = createRecordingLog();
  const address = { url: redis.url, username: "worker", password: PASSWORD };
  const probe = ["ZADD", "probe", "1", "a"];
  const link = testRedisLink(address, { log, scripts: [WORK], probe });
  await using stack = new AsyncDisposableStack();
  for (const each of [link, outside]) stack.defer(() => each.close());
  await link.ready(PATIENT_MS);
  assert.equal(await works(link), true);
  log.lines.length = 0;

  await spoil(world);
  using watch = startStopwatch();
  let failed = 0;
  while (watch.ms < BAD_MS) {
    const calls = Array.from({ length: CALLS_AT_ONCE }, () => works(link));
    for (const isGood of await Promise.all(calls)) failed += isGood ? 0 : 1;
    await sleep(CALL_EVERY_MS);
  }
  assert.ok(failed > CALLS_AT_ONCE, `${failed} calls failed`);
  await mend(world);
  await until(async () => await works(link), RECOVERY_MS);
  await until(() => link.state === "ready", RECOVERY_MS);
  await sleep(STAYS_MS);

  const lines = log.lines.filter(({ event }) => event === "redis_state");
  const [state, why] = logged;
  const changes = lines.map(({ level, fields }) =>
    `${level} ${fields.from}>${fields.to}`
  );
  // On a slow machine a second passes, after which a silent server is left, or the end
  // of a server is noticed only after its silence.
  if (changes[1] === "warn stalled>offline") {
    const end = state === "stalled" ? "info stalled>ready" : changes[2] ?? "";
    changes.splice(0, 3, `warn ready>${state}`, end);
  }
  assert.deepEqual(changes, [`warn ready>${state}`, `info ${state}>ready`]);
  const entry = lines.find(({ fields }) => fields.to === state);
  const { reason = "", error } = entry?.fields ?? {};
  const text = error instanceof Error ? `${reason} ${error.message}` : "";
  assert.match(text, why);
}

const works = (link: RedisLink): Promise<boolean> =>
  link.evalScript(WORK, { keys: ["z", "n"] }).then(() => true, () => false);
