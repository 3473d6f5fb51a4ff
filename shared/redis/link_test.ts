/** A link to a real redis-server: deadlines, outages, scripts. */
import assert from "node:assert/strict";
import { freePort } from "../../tests/support/servers/local_server.ts";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { testRedisLink } from "../../tests/support/servers/redis_link.ts";
import { startRedisServer } from "../../tests/support/servers/redis_server.ts";
import {
  SCHEDULING_ALLOWANCE_MS,
  startStopwatch,
  until,
} from "../../tests/support/wait_for.ts";
import type { RedisReply } from "./connection.ts";
import { RedisReplyError, RedisUnavailableError } from "./errors.ts";
import { defineScript, type RedisLink, type RedisLinkOptions } from "./link.ts";

const DEADLINE_MS = 300;
const RECOVERY_MS = 2_000;
/** For a server that is up, on a busy machine. */
const PATIENT_MS = 30_000;

/** A link that is ready, and is closed with the test. */
async function openReady(url: string, options: Partial<RedisLinkOptions> = {}) {
  const link = testRedisLink({ url }, { deadlineMs: DEADLINE_MS, ...options });
  await link.ready(PATIENT_MS);
  return Object.assign(link, { [Symbol.asyncDispose]: () => link.close() });
}

/** Settles a call and says how long it took and why it failed. */
async function timed(call: Promise<RedisReply>) {
  using watch = startStopwatch();
  const reason = await call.then(() => "answered", (error) => {
    if (error instanceof RedisUnavailableError) return error.reason;
    throw error;
  });
  return { tookMs: watch.ms, reason };
}

function assertWithinBudget(result: { tookMs: number }): void {
  assert.ok(
    result.tookMs <= DEADLINE_MS + SCHEDULING_ALLOWANCE_MS,
    `took ${result.tookMs} ms`,
  );
}

async function answersAgain(link: RedisLink): Promise<void> {
  await until(
    () => link.command(["PING"]).then(() => true, () => false),
    RECOVERY_MS,
  );
}

const INCREMENT = defineScript(
  "increment",
  "return redis.call('INCRBY', KEYS[1], ARGV[1])",
);

Deno.test("a link carries commands, replies of each type, and error replies, until it is closed", async () => {
  await using redis = await startRedisServer();
  await using link = await openReady(redis.url);
  assert.equal(await link.command(["SET", "a", "1"]), "OK");
  assert.equal(await link.command(["INCR", "a"]), 2);
  assert.equal(await link.command(["GET", "none"]), null);
  assert.deepEqual(await link.command(["MGET", "a", "none"]), ["2", null]);
  await assert.rejects(
    link.command(["LPUSH", "a", "x"]),
    (error) =>
      error instanceof RedisReplyError && /^WRONGTYPE /.test(error.message),
  );
  assert.equal(link.state, "ready");
  await link.close();
  assert.equal((await timed(link.command(["PING"]))).reason, "closed");
});

Deno.test("a link signs in with user and password, or gives the reason why it cannot", async () => {
  await using redis = await startRedisServer({
    config: "user default off\nuser edge on >secret ~* +@all\n",
  });
  const log = createRecordingLog();
  const { url } = redis;
  const user = { url, username: "edge", password: "secret" };
  const wrong = testRedisLink({ ...user, password: "wrong" }, { log });
  await until(() => wrong.state === "offline");
  await assert.rejects(wrong.ready(1), (error) => {
    assert.ok(error instanceof RedisUnavailableError);
    return /WRONGPASS/.test(String(error.cause));
  });
  assert.equal(log.lines.length, 1, "one line per change of state");
  assert.match(String(log.lines[0]?.fields["error"]), /WRONGPASS/);
  await wrong.close();

  const inOptions = testRedisLink({ ...user, clientName: "edge-1" });
  await inOptions.ready(PATIENT_MS);
  assert.equal(await inOptions.command(["CLIENT", "GETNAME"]), "edge-1");
  await inOptions.close();

  await using _inUrl = await openReady(url.replace("//", "//edge:secret@"));
});

Deno.test("scripts are loaded with each connection, and again if the server has lost them", async () => {
  await using redis = await startRedisServer();
  const log = createRecordingLog();
  const scripts = [INCREMENT];
  await using link = await openReady(redis.url, { log, scripts });
  assert.equal(
    await link.evalScript(INCREMENT, { keys: ["n"], args: ["1"] }),
    1,
  );
  await redis.kill();
  await redis.restart();
  await answersAgain(link);
  assert.equal(
    await link.evalScript(INCREMENT, { keys: ["n"], args: ["1"] }),
    1,
  );
  assert.equal(log.find("redis_script_load"), undefined);
  await link.command(["SCRIPT", "FLUSH"]);
  const replies = await Promise.all(
    Array.from(
      { length: 50 },
      () => link.evalScript(INCREMENT, { keys: ["n"], args: ["1"] }),
    ),
  );
  assert.equal(replies.at(-1), 51);
});

Deno.test("calls to a frozen server time out once, are then refused at once, and work again when it thaws", async () => {
  await using redis = await startRedisServer();
  await using link = await openReady(redis.url);
  await redis.freeze();
  const first = await Promise.all(
    Array.from({ length: 20 }, () => timed(link.command(["INCR", "n"]))),
  );
  for (const result of first) {
    assert.equal(result.reason, "deadline");
    assertWithinBudget(result);
  }
  assert.equal(link.state, "stalled");
  const refused = await timed(link.command(["INCR", "n"]));
  assert.equal(refused.reason, "circuit_open");
  assert.ok(refused.tookMs < 20, `took ${refused.tookMs} ms`);
  await until(() => link.state === "offline");
  assert.equal((await timed(link.command(["PING"]))).reason, "offline");
  redis.thaw();
  await answersAgain(link);
  assert.equal(link.state, "ready");
});

Deno.test("a late reply reaches the caller that abandoned the call", async () => {
  await using redis = await startRedisServer();
  await using link = await openReady(redis.url);
  const late: (RedisReply | null)[] = [];
  await redis.freeze();
  const result = await timed(
    link.command(["INCR", "n"], { onAbandoned: (reply) => late.push(reply) }),
  );
  assert.equal(result.reason, "deadline");
  assert.deepEqual(late, []);
  redis.thaw();
  await until(() => late.length > 0);
  assert.deepEqual(late, [1]);
});

/**
 * Keeps the server busy for 120 ms. So many digits that it reads one command at a
 * time, and so answers them one by one. Not a script: a newer server stops its clock
 * for those.
 */
const BUSY = ["DEBUG", "SLEEP", "0.12".padEnd(40_000, "0")];
const ALLOW_BUSY = "enable-debug-command yes";

Deno.test("the tail of a burst waits while the server answers, and no longer", async () => {
  await using redis = await startRedisServer({ config: ALLOW_BUSY });
  await using link = await openReady(redis.url);
  const startedAtMs = performance.now();
  const burst = await Promise.all(
    Array.from({ length: 6 }, () => timed(link.command(BUSY))),
  );
  assert.deepEqual(burst.map((each) => each.reason), Array(6).fill("answered"));
  assert.ok(performance.now() - startedAtMs > 2 * DEADLINE_MS);
  await redis.freeze();
  assertWithinBudget(await timed(link.command(["PING"])));
  redis.thaw();
});

Deno.test("close() waits for running calls within their own deadlines", async () => {
  await using redis = await startRedisServer({ config: ALLOW_BUSY });
  await using link = await openReady(redis.url, { deadlineMs: 50 });
  const running = link.command(BUSY, { deadlineMs: DEADLINE_MS });
  await link.close();
  assert.equal(await running, "OK");
});

Deno.test("a blocking call with a long deadline is not taken for an outage", async () => {
  await using redis = await startRedisServer();
  await using link = await openReady(redis.url);
  const reply = await link.command(["BLPOP", "empty", "1.2"], {
    deadlineMs: 3_000,
  });
  assert.equal(reply, null);
  assert.equal(link.state, "ready");
});

Deno.test("a link without a server refuses calls, and close() leaves nothing behind", async () => {
  const link = testRedisLink({ url: `redis://127.0.0.1:${freePort()}` });
  assert.equal((await timed(link.command(["PING"]))).reason, "offline");
  await assert.rejects(link.ready(50), RedisUnavailableError);
  await until(() => link.state === "offline");
  await link.close();
  assert.equal(link.state, "closed");
});
