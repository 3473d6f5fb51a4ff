/** How many guesses of passwords are checked, and whom that keeps waiting. */
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { amountOf } from "../../../../tests/support/amount.ts";
import { startRedis } from "../../redis_fixture.ts";
import { asTexts } from "../store/redis.ts";
import {
  type Attempt,
  forgetFailures,
  rememberDevice,
  takeAttempt,
} from "./attempts.ts";

Deno.test("ASVS 6.1.1, 6.3.1: the wait doubles with each failure and ends with a success", async () => {
  await using server = await startRedis();
  const redis = await server.connect();
  const attempt = { email: "ada@example.org", ip: "192.0.2.1", device: "" };
  const waits: number[] = [];
  for (let tries = 0; tries < 5 + 12; tries++) {
    assert.equal(await takeAttempt(redis, attempt), 0);
    const stranger = { ...attempt, ip: `198.51.100.${tries}` };
    const waitMs = tries < 4 ? 0 : await takeAttempt(redis, stranger);
    waits.push(Math.round(waitMs / 1_000));
    // Skips the wait: the count alone decides the next one.
    for (const name of asTexts(await redis.command(["KEYS", "try:*"]))) {
      await redis.command(["HDEL", name, "until"]);
    }
  }
  assert.deepEqual(waits.slice(0, 10), [0, 0, 0, 0, 1, 2, 4, 8, 16, 32]);
  assert.equal(Math.max(...waits), 900, "never more than 15 minutes");
  assert.equal(await forgetFailures(redis, attempt), 16);
  assert.equal(await takeAttempt(redis, attempt), 0);
  assert.equal(await takeAttempt(redis, attempt), 0, "free attempts again");
});

/** More attempts than may proceed, wherever they come from. */
const TRIES = amountOf({ usual: 1_500, full: 3_000 });
const AT_ONCE = 250;

/** Makes a number of attempts, some at once; returns how many may proceed. */
async function allowed(redis: RedisLink, attempt: (n: number) => Attempt) {
  let count = 0;
  for (let n = 0; n < TRIES; n += AT_ONCE) {
    const attempts = Array.from(
      { length: AT_ONCE },
      (_, at) => attempt(n + at),
    );
    const waits = await Promise.all(
      attempts.map((each) => takeAttempt(redis, each)),
    );
    count += waits.filter((waitMs) => waitMs === 0).length;
  }
  return count;
}

const hex = (n: number) => n.toString(16);
const site = (n: number) => `2001:db8:${hex(n)}::1`;
/** Sources of thousands of guesses, and how many of these are checked. */
const GUESSERS: {
  name: string;
  ip: (n: number) => string;
  attemptsMax: (seconds: number) => number;
}[] = [
  {
    name: "one address",
    ip: () => "192.0.2.1",
    attemptsMax: (s) => 20 + s / 30,
  },
  {
    name: "five addresses",
    ip: (n) => `192.0.2.${n % 5}`,
    attemptsMax: (s) => 5 * (20 + s / 30),
  },
  {
    name: "250 addresses",
    ip: (n) => `192.0.2.${n % 250}`,
    attemptsMax: (s) => 850 + 3 * s,
  },
  {
    name: "an IPv6 /48",
    ip: (n) => `2001:db8:1:${hex(n)}::1`,
    attemptsMax: (s) => 40 + s / 15,
  },
  { name: "an IPv6 /32", ip: site, attemptsMax: (s) => 80 + s / 7.5 },
  // Five at once, then after 1, 2, 4 … s.
  {
    name: "one account, from a /32",
    ip: site,
    attemptsMax: (s) => 5 + Math.log2(s + 1),
  },
  {
    name: "everywhere",
    ip: (n) => `10.0.${n >> 8}.${n & 255}`,
    attemptsMax: (s) => 1_000 + s / 0.06,
  },
];

Deno.test("ASVS 2.4.1, 6.1.1, 6.3.1, API2, API4: thousands of guesses lock nobody out, and few are checked", async () => {
  await using server = await startRedis(["--appendonly", "no"]);
  const redis = await server.connect();
  const email = "ada@example.org";
  const device = await rememberDevice(redis, randomBytes, email);
  const own = { email, ip: "192.0.2.1", device };
  for (const { name, ip, attemptsMax } of GUESSERS) {
    const startMs = performance.now();
    const count = await allowed(redis, (n) => ({
      email: name.startsWith("one account") ? email : `user${n}@x.org`,
      ip: ip(n),
      device: "",
    }));
    const seconds = (performance.now() - startMs) / 1_000;
    assert.ok(
      count <= Math.ceil(attemptsMax(seconds)),
      `${name}: ${count} in ${seconds} s`,
    );
    assert.equal(await takeAttempt(redis, own), 0, "the owner's device");
    await forgetFailures(redis, own);
    const elsewhere = name === "everywhere"
      ? []
      : ["198.51.100.1", "2001:db9::1"];
    for (const ip of elsewhere) {
      const attempt = { email: `${ip}@example.org`, ip, device: "" };
      for (let tries = 0; tries < 3; tries++) {
        assert.equal(await takeAttempt(redis, attempt), 0, ip);
      }
    }
    const counts = asTexts(await redis.command(["KEYS", "try:*"]));
    await redis.command(["DEL", ...counts]);
  }
});
