import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { startRedis } from "../../redis_fixture.ts";
import { asTexts } from "../store/reply.ts";
import {
  ADDRESS_RATE,
  type Attempt,
  forgetFailures,
  type Rate,
  rememberDevice,
  takeAttempt,
  takeRate,
} from "./attempts.ts";

Deno.test("ASVS 6.1.1, 6.3.1: the wait doubles with each failure and ends with a success", async () => {
  await using server = await startRedis();
  const redis = await server.connect();
  const attempt = { email: "ada@example.org", ip: "192.0.2.1", device: "" };
  const waits: number[] = [];
  for (let tries = 0; tries < 5 + 12; tries++) {
    assert.equal(await takeAttempt(redis, attempt), 0);
    const waitMs = tries < 4 ? 0 : await takeAttempt(redis, {
      ...attempt,
      ip: `198.51.100.${tries}`,
    });
    waits.push(Math.round(waitMs / 1_000));
    // Time passes: what is remembered is the count, so the pause may be taken away.
    for (const name of asTexts(await redis.command(["KEYS", "try:*"]))) {
      await redis.command(["HDEL", name, "until"]);
    }
  }
  assert.deepEqual(waits.slice(0, 10), [0, 0, 0, 0, 1, 2, 4, 8, 16, 32]);
  assert.equal(Math.max(...waits), 900, "never more than 15 minutes");
  assert.equal(await forgetFailures(redis, attempt), 16);
  assert.equal(await takeAttempt(redis, attempt), 0);
  assert.equal(await takeAttempt(redis, attempt), 0, "free tries again");
});

/** Lets time pass for a rate: what was taken is paid off earlier. */
async function pass(redis: RedisLink, byMs: number): Promise<void> {
  const [name = ""] = asTexts(await redis.command(["KEYS", "try:*"]));
  const paidAtMs = Number(await redis.command(["HGET", name, "paid"]));
  await redis.command(["HSET", name, "paid", String(paidAtMs - byMs)]);
}

Deno.test("ASVS 2.4.1: takeRate() lets the count through at once, and then one at a time", async (t) => {
  await using server = await startRedis();
  const redis = await server.connect();
  const rates: [name: string, rate: Rate, count: number, everyMs: number][] = [
    ["an address", ADDRESS_RATE, 20, 30_000],
    ["any other", { count: 3, perMs: 90_000 }, 3, 30_000],
  ];
  for (const [name, rate, count, everyMs] of rates) {
    await t.step(name, async () => {
      assert.equal(rate.perMs / rate.count, everyMs);
      await redis.command(["FLUSHALL"]);
      const startMs = performance.now();
      let taken = -1;
      let waitMs = 0;
      while (waitMs === 0 && taken < 2 * count) {
        waitMs = await takeRate(redis, name, rate);
        taken++;
      }
      const later = Math.floor((performance.now() - startMs) / everyMs);
      assert.ok(taken >= count && taken <= count + later, `${taken}`);
      assert.ok(waitMs > 0 && waitMs <= everyMs, `${waitMs}`);
      // Its wait is exact: one millisecond less is too soon, and a refusal took nothing.
      const [key = ""] = asTexts(await redis.command(["KEYS", "try:*"]));
      const paidAtMs = await redis.command(["HGET", key, "paid"]);
      await takeRate(redis, name, rate);
      assert.equal(await redis.command(["HGET", key, "paid"]), paidAtMs);
      await pass(redis, everyMs);
      assert.equal(await takeRate(redis, name, rate), 0);
      assert.ok(
        await takeRate(redis, name, rate) > everyMs / 2,
        "one, not two",
      );
    });
  }
});

const TRIES = 3_000;
const AT_ONCE = 250;

/** Asks for that many tries, some at once; gives how many may go on. */
async function allowed(
  redis: RedisLink,
  attempt: (n: number) => Attempt,
): Promise<number> {
  let count = 0;
  for (let n = 0; n < TRIES; n += AT_ONCE) {
    const waits = await Promise.all(
      Array.from(
        { length: AT_ONCE },
        (_, at) => takeAttempt(redis, attempt(n + at)),
      ),
    );
    count += waits.filter((waitMs) => waitMs === 0).length;
  }
  return count;
}

Deno.test("ASVS 2.4.1, 6.3.1, API2: of thousands of tries hardly any is checked, and the owner's own device is free", async (t) => {
  await using server = await startRedis({ settings: ["--appendonly", "no"] });
  const redis = await server.connect();
  const email = "ada@example.org";
  const device = await rememberDevice(redis, randomBytes, email);
  const from = (n: number) => `2001:db8:${n >> 8}:${n & 255}::1`;
  const rows: [
    name: string,
    attempt: (n: number) => Attempt,
    most: (seconds: number) => number,
  ][] = [
    [
      "passwords for one account, from everywhere",
      (n) => ({ email, ip: from(n), device: "" }),
      // Five at once, then after 1, 2, 4 … s.
      (seconds) => 5 + Math.ceil(Math.log2(seconds + 1)),
    ],
    [
      "accounts from one address",
      (n) => ({ email: `user${n}@x.org`, ip: "192.0.2.1", device: "" }),
      (seconds) => 20 + Math.ceil(seconds / 30),
    ],
    [
      "accounts from one IPv6 /32",
      (n) => ({ email: `user${n}@x.org`, ip: from(n), device: "" }),
      (seconds) => 80 + Math.ceil(seconds / 7.5),
    ],
    [
      "accounts from everywhere",
      (n) => ({
        email: `user${n}@x.org`,
        ip: `10.0.${n >> 8}.${n & 255}`,
        device: "",
      }),
      (seconds) => 1_000 + Math.ceil(seconds / 0.06),
    ],
  ];
  for (const [name, attempt, most] of rows) {
    await t.step(name, async () => {
      const startMs = performance.now();
      const count = await allowed(redis, attempt);
      const seconds = (performance.now() - startMs) / 1_000;
      assert.ok(count <= most(seconds), `${count} in ${seconds} s`);
      assert.equal(
        await takeAttempt(redis, { email, ip: "192.0.2.1", device }),
        0,
        "the owner's own device",
      );
      await forgetFailures(redis, { email, ip: "192.0.2.1", device });
      await redis.command([
        "DEL",
        ...asTexts(await redis.command(["KEYS", "try:*"])),
      ]);
    });
  }
});

Deno.test("ASVS 6.1.1, API4: however often a few networks try, somebody from elsewhere can sign in", async (t) => {
  await using server = await startRedis({ settings: ["--appendonly", "no"] });
  const redis = await server.connect();
  const crowds: [name: string, ip: (n: number) => string][] = [
    ["five addresses", (n) => `192.0.2.${n % 5}`],
    ["250 addresses", (n) => `192.0.2.${n % 250}`],
    ["the /64s of a /48", (n) => `2001:db8:1:${n.toString(16)}::1`],
    ["the /48s of a /32", (n) => `2001:db8:${n.toString(16)}::1`],
  ];
  for (const [name, ip] of crowds) {
    await t.step(name, async () => {
      await redis.command(["FLUSHALL"]);
      await allowed(
        redis,
        (n) => ({ email: `user${n}@x.org`, ip: ip(n), device: "" }),
      );
      for (const elsewhere of ["198.51.100.1", "2001:db9::1"]) {
        const email = `${elsewhere}@example.org`;
        for (let tries = 0; tries < 3; tries++) {
          const waitMs = await takeAttempt(redis, {
            email,
            ip: elsewhere,
            device: "",
          });
          assert.equal(waitMs, 0, `try ${tries} from ${elsewhere}`);
        }
      }
    });
  }
});
